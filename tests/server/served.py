"""A fresh `alara serve`, and requests to it. Python's standard library only."""

import contextlib
import http.client
import json
import os
import pathlib
import subprocess
import tempfile
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Longer than any answer here takes, even by a debug build on a busy machine.
PATIENCE = 120


class NotServed(Exception):
    """The server doesn't start."""


class Server(tuple):
    """Host and port, and the id of the process if it is one of ours."""

    pid = None


@contextlib.contextmanager
def served(binary, *arguments, token=None, keep_log=None):
    """A fresh server, until the end of the block. `keep_log` = a file for what it says."""
    with tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory() as home, contextlib.ExitStack() as stack:
        log = stack.enter_context(open(keep_log or pathlib.Path(work) / "log", "w+"))
        environment = {key: value for key, value in os.environ.items() if not key.startswith("ALARA_")} | {"HOME": home}
        if token:
            environment["ALARA_TOKEN"] = token
        for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
            environment.pop(name, None)
        command = [pathlib.Path(binary).resolve(), "serve", "--port", "0", "--json", "--cache", "off", *map(str, arguments)]
        process = subprocess.Popen(
            command, cwd=work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        try:
            line = process.stdout.readline()
            if not line:
                process.wait()
                log.seek(0)
                raise NotServed(f"the server doesn't start: {log.read().strip()}")
            server = address(json.loads(line)["url"])
            server.pid = process.pid
            yield server
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


def address(url):
    """The server at http://HOST:PORT, whatever path follows."""
    parts = urllib.parse.urlsplit(url)
    return Server((parts.hostname, parts.port))


class Answer:
    """What came back: `status`, `headers` (by lower-case name), `text`, and `body`, which is JSON or a list of events."""

    def __init__(self, status, headers, text):
        self.status, self.headers, self.text = status, headers, text
        kind = headers.get("content-type", "")
        if kind.startswith("text/event-stream"):
            self.body = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ") and line != "data: [DONE]"]
        elif kind.startswith("application/x-ndjson"):
            self.body = [json.loads(line) for line in text.splitlines() if line]
        elif kind.startswith("application/json"):
            self.body = json.loads(text)
        else:
            self.body = text


def ask(server, method, path, body=None, headers=None, patience=PATIENCE):
    """Sends a request; `body` is JSON, or bytes as they are."""
    connection = http.client.HTTPConnection(*server, timeout=patience)
    try:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        kind = {} if data is None else {"Content-Type": "application/json"}
        connection.request(method, path, data, kind | (headers or {}))
        response = connection.getresponse()
        text = response.read().decode(errors="replace")
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, text)
    finally:
        connection.close()

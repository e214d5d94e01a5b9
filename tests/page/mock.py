"""A server of the page with recorded answers, or before a real server.

    python3 tests/page/mock.py [--port N] [--to http://127.0.0.1:8080]

With `--to`, what is asked below /v1 goes there: to work on the page without building alara.
"""

import argparse
import http.client
import json
import pathlib
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import answers

PAGE = pathlib.Path(__file__).resolve().parents[2] / "crates" / "server" / "page"
TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
         ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
          "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
MODELS = ["alara-tiny.gguf", "worker", "writer"]


def word(body):
    """The first word of what the user said last; what was not answered is said once more."""
    return body["messages"][-1]["content"].split("\n\n")[-1].split()[0]


class Mock(ThreadingHTTPServer):
    """`requests` are the bodies that came, `answered` what questions were answered, `left` how many clients left
    within an answer; `lead` is the NPC that the page begins with."""

    daemon_threads = True

    def __init__(self, port=0, to=None):
        super().__init__(("127.0.0.1", port), Handler)
        self.to, self.token, self.lead = to, None, None
        self.url = f"http://127.0.0.1:{self.server_address[1]}/"
        self.requests, self.answered, self.left = [], [], 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        """A browser may close a connection at any time."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Says nothing."""

    def send(self, status, kind, body, **headers):
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": len(body), **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status, error, headers):
        body = b"<h1>Bad gateway</h1>" if error is None else json.dumps({"error": error}).encode()
        self.send(status, "application/json", body, **headers)

    def do_GET(self):
        if self.path.startswith("/v1/"):
            return self.forward() if self.server.to else self.models()
        file = PAGE / (self.path.split("?")[0].strip("/") or "index.html")
        if file.parent != PAGE or not file.is_file():
            return self.refuse(404, {"message": "no such page"}, {})
        headers = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff",
                   "Cache-Control": "no-cache"}
        return self.send(200, TYPES[file.suffix], file.read_bytes(), **headers)

    def models(self):
        if self.allowed():
            data = [{"id": name, "object": "model"} for name in MODELS]
            for model in data:
                if model["id"] == self.server.lead:
                    model["alara"] = {"lead": True}
            self.send(200, "application/json", json.dumps({"data": data}).encode())

    def allowed(self):
        token, given = self.server.token, self.headers["Authorization"]
        if token is None or given == f"Bearer {token}":
            return True
        message = "the token is wrong" if given else "this server wants a token"
        self.refuse(401, {"message": message, "code": "invalid_api_key"}, {})
        return False

    def do_POST(self):
        if self.server.to:
            return self.forward()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.allowed():
            return None
        if self.path == "/v1/alara/answers":
            return self.answer(body)
        self.server.requests.append(body)
        words = [word(request) for request in self.server.requests]
        stream = answers.streams(words[-1], words.count(words[-1]))
        if isinstance(stream, tuple):
            return self.refuse(*stream)
        self.begin()
        try:
            for piece in stream:
                if isinstance(piece, str):
                    self.piece(piece.encode())
                else:
                    time.sleep(piece)
            self.piece(b"")
        except OSError:
            self.server.left += 1
            self.close_connection = True
        return None

    def answer(self, body):
        """Takes the answer to a question."""
        if body["id"] not in answers.WAITING:
            return self.refuse(404, {"message": "no question with this `id` waits"}, {})
        self.server.answered.append(body["answer"])
        answers.GIVEN[body["id"]] = body["answer"]
        return self.send(200, "application/json", json.dumps(body).encode())

    def begin(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def piece(self, data):
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def forward(self):
        """Asks the real server, and gives on what it says as it comes."""
        to = urllib.parse.urlsplit(self.server.to)
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        upstream = http.client.HTTPConnection(to.hostname, to.port, timeout=600)
        headers = {name: self.headers[name] for name in ("Authorization", "Content-Type") if self.headers[name]}
        try:
            upstream.request(self.command, self.path, body, headers)
            answer = upstream.getresponse()
            if answer.getheader("Content-Type") != "text/event-stream":
                return self.send(answer.status, "application/json", answer.read())
            self.begin()
            while data := answer.read1():
                self.piece(data)
            self.piece(b"")
        except OSError:
            self.close_connection = True
        finally:
            upstream.close()
        return None


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--port", type=int, default=8081)
    arguments.add_argument("--to")
    asked = arguments.parse_args()
    print(Mock(asked.port, asked.to).url)
    threading.Event().wait()

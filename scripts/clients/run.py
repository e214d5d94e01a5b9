#!/usr/bin/env python3
"""Runs real clients against `alara serve` and prints what works.

    scripts/clients/run.py [CLIENT ...] [--alara FILE | --url URL] [-m MODEL] [--dir DIR] [--list]

A client is a file `python/NAME.py` or `node/NAME.mjs`.
Its line `needs:` pins packages; they come from the registries, once, into a folder of the client's own.
Its cases hold the form of answers: events in order, calls and JSON valid for their schema, usage present.
So the model that ships is enough.
A few cases leave the choice of tools to the model and hold that it calls them; they are skipped unless -m names a real model.

Each case is `ok`, a fault of the client with the reason, or FAILED with the first line of what went wrong.
A client that can't be installed is skipped, and the table says why.
The exit code is 1 if a case failed.
"""
import argparse
import contextlib
import fnmatch
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# Settings of the person's own that clients would take up.
PRIVATE = re.compile(
    r"(OPENAI|ANTHROPIC|CLAUDE|OLLAMA|QWEN|CONTINUE|INSPECT|LITELLM|LLM|AIDER|OPENCODE|CODEX|NPCSH|DSPY|LANGCHAIN|LANGSMITH|XDG|ALARA|PYTHON|NODE)_|.*_PROXY$",
    re.I)
# Clients talk to the server only: whatever else they reach for goes to a closed port, and fails at once.
QUIET = {
    "HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1,localhost",
    "DO_NOT_TRACK": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "ANONYMIZED_TELEMETRY": "False", "HF_HUB_OFFLINE": "1", "CI": "1", "NO_COLOR": "1", "TERM": "dumb",
}
# How pip and npm say that there's no network.
OFFLINE = re.compile(
    r"establish a new connection|ConnectionError|timed out|ProxyError|from versions: none|ENOTFOUND|EAI_AGAIN|ECONN|ETIMEDOUT")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help="which ones, as a name or a pattern [default: all]")
    parser.add_argument("--alara", type=pathlib.Path, default=ROOT / "target/release/alara", help="the server's binary")
    parser.add_argument("--url", help="a server that runs already, as http://127.0.0.1:8080")
    parser.add_argument("-m", "--model", help="the model to serve [default: the one that ships]")
    parser.add_argument("--dir", type=pathlib.Path, default=ROOT / "target/clients", help="where the clients are kept")
    parser.add_argument("--seconds", type=int, default=300, help="most seconds for all cases of a client")
    parser.add_argument("--list", action="store_true", help="name the clients and what they need")
    args = parser.parse_args()
    files = [path for path in sorted([*HERE.glob("python/*.py"), *HERE.glob("node/*.mjs")]) if path.stem != "cases"]
    files = [path for path in files if not args.clients or any(fnmatch.fnmatch(name(path), one) for one in args.clients)]
    if not files:
        parser.error("no such client; --list names them")
    if args.list:
        for path in files:
            print(f"{name(path):24}{needs(path)}")
        return 0
    args.dir.mkdir(parents=True, exist_ok=True)
    ready = []
    for path in files:
        note(f"{name(path)}: installing {needs(path)}" if not is_installed(path, args.dir) else f"{name(path)} is installed")
        ready.append((path, install(path, args.dir)))
    rows = []
    with contextlib.nullcontext(args.url) if args.url else served(args) as url:
        url = url.rstrip("/").removesuffix("/v1")
        model, real = first_model(url)
        for path, lack in ready:
            if lack:
                rows.append((name(path), "", *lack))
            else:
                note(f"{name(path)} runs")
                rows += [(name(path), *row) for row in run(path, args, url, model, real)]
    return table(rows)


def name(path):
    """As in the table: `openai` is Python's, `openai (node)` npm's."""
    return path.stem if path.suffix == ".py" else f"{path.stem} (node)"


def needs(path):
    return re.search(r"^\W*needs: (.+)$", path.read_text(), re.M).group(1)


def home(path, folder):
    return folder / path.parent.name / path.stem


def is_installed(path, folder):
    mark = home(path, folder) / "installed"
    return mark.exists() and mark.read_text().strip() == needs(path)


def install(path, folder):
    """Installs what the client needs, unless it's there. Returns its state and why it can't, else None."""
    if path.suffix == ".mjs" and not (shutil.which("node") and shutil.which("npm")):
        return "skipped", "no node or npm"
    if is_installed(path, folder):
        return None
    place = home(path, folder)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    if path.suffix == ".py":
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
        command = [sys.executable, "-m", "pip", "--python", place / "bin/python", "install", "--no-compile", "--quiet",
                   "--disable-pip-version-check", *needs(path).split()]
    else:
        command = ["npm", "install", "--no-fund", "--no-audit", "--prefix", place, *needs(path).split()]
    done = subprocess.run(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if "rror" in line] or done.stdout.splitlines() or ["no reason given"]
        # Only a network that isn't there is a reason to go without.
        return "skipped" if OFFLINE.search(done.stdout) else "FAILED", f"not installed: {lines[0]}"
    (place / "installed").write_text(needs(path) + "\n")
    return None


@contextlib.contextmanager
def served(args):
    """The URL of a fresh server, until the end of the block."""
    if not args.alara.exists():
        sys.exit(f"{args.alara} is missing: `cargo build --release`, or name a binary by --alara")
    model = ["-m", str(pathlib.Path(args.model).resolve()) if os.path.exists(args.model) else args.model] if args.model else []
    with tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory() as home, open(args.dir / "server.log", "w") as log:
        process = subprocess.Popen(
            [args.alara.resolve(), "serve", "--port", "0", "--json", "--cache", "off", *model], cwd=work, stdout=subprocess.PIPE,
            stderr=log, text=True, env=dict(os.environ, HOME=home))
        try:
            line = process.stdout.readline()
            if not line:
                sys.exit(f"the server doesn't start: {(args.dir / 'server.log').read_text().strip()}")
            yield json.loads(line)["url"]
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def first_model(url):
    """The name of the model, and whether it's a real one: the one that ships has 3 million weights."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    model = json.load(opener.open(f"{url}/v1/models", timeout=30))["data"][0]
    return model["id"], model.get("meta", {}).get("n_params", 0) > 100e6


def run(path, args, url, model, real):
    """Runs a client's cases in a process of their own. Returns (case, state, why) of each."""
    place = home(path, args.dir).resolve()
    # A copy beside the packages: Node finds them only there, and a file named as a package would hide it.
    program = place / f"client{path.suffix}"
    shutil.copy(path, program)
    shutil.copy(path.with_stem("cases"), place / f"cases{path.suffix}")
    results = place / "results"
    results.write_text("")
    environment = {key: value for key, value in os.environ.items() if not PRIVATE.match(key)}
    environment |= QUIET | {key.lower(): value for key, value in QUIET.items() if key.endswith("_PROXY")}
    interpreter = [str(place / "bin/python")] if path.suffix == ".py" else ["node"]
    # A home outside of any repository, which coding agents would look at.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as own, open(place / "log", "w") as log:
        environment |= {"HOME": own, "PWD": own, "SERVER": url, "MODEL": model, "REAL": "1" if real else "", "RESULTS": str(results)}
        process = subprocess.Popen([*interpreter, str(program)], cwd=own, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   start_new_session=True)
        try:
            process.wait(args.seconds)
            late = f"ended with code {process.returncode}; {place / 'log'} tells more"
        except subprocess.TimeoutExpired:
            late = f"not done after {args.seconds} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    if not lines:
        return [("", "FAILED", late)]
    done = {line["case"]: line for line in lines[1:]}
    return [(case, done[case]["state"], done[case]["why"]) if case in done else (case, "FAILED", late) for case in lines[0]["cases"]]


def table(rows):
    widths = [max(len(row[column]) for row in rows) + 2 for column in range(3)]
    for row in rows:
        print("".join(cell.ljust(width) for cell, width in zip(row, widths)) + shorten(row[3]))
    states = [row[2] for row in rows]
    print(f"\n{states.count('ok')} ok, {states.count('fault')} faults of a client, {states.count('FAILED')} failed, "
          f"{states.count('skipped')} skipped")
    return int("FAILED" in states)


def shorten(text):
    return text if len(text) <= 200 else text[:199] + "…"


def note(text):
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

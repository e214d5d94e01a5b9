"""What llama.cpp's server answers, asked of `alara serve`; and the same request by each wire format.

    python3 tests/server/run.py [FILE…] [--alara FILE | --url URL] [--all] [--docs]

Starts fresh servers on the model that ships, and prints a line for each case that doesn't hold.
A case that isn't as with llama.cpp's server says why (`differs.py`), and so does docs/serve.md: `--docs` holds it against that.
The exit code is 1 if a case failed.
"""

import argparse
import contextlib
import pathlib
import sys
import time

import access
import chat
import completions
import context
import embeddings
import formats
import messages
import native
import responses
from case import filled, wrong
from differs import REASONS
from served import ROOT, NotServed, address, ask, served

FILES = [native, chat, completions, messages, responses, embeddings, context, access]
# Their flags and token. `--any-model` is how llama.cpp's server takes names of models.
SERVERS = {
    "plain": (["--any-model"], None),
    "small": (["--any-model", "--ctx", 256, "--parallel", 2], None),
    "token": ([], access.TOKEN),
}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [name(file) for file in [*FILES, formats]]
    arguments.add_argument("files", nargs="*", metavar="FILE", help=f"of {', '.join(names)} [default: all]")
    arguments.add_argument("--alara", type=pathlib.Path, default=ROOT / "target/debug/alara", help="the server's binary")
    arguments.add_argument("--url", help="a server that runs already with --any-model; cases that take another one are left out")
    arguments.add_argument("--all", action="store_true", help="print the cases that hold, too")
    arguments.add_argument("--docs", action="store_true", help="hold docs/serve.md against the reasons, and ask nothing")
    asked = arguments.parse_args()
    if asked.docs:
        return docs()
    unknown = set(asked.files) - set(names)
    if unknown:
        arguments.error(f"no such file: {', '.join(sorted(unknown))}")
    began = time.monotonic()
    rows = []
    with contextlib.ExitStack() as stack:
        servers = {}

        def server(kind):
            if asked.url:
                return address(asked.url) if kind == "plain" else None
            if kind not in servers:
                flags, token = SERVERS[kind]
                servers[kind] = stack.enter_context(served(asked.alara, *flags, token=token))
            return servers[kind]

        try:
            for file in [file for file in FILES if not asked.files or name(file) in asked.files]:
                rows += [(name(file), *row) for row in check(file.CASES, server)]
            if not asked.files or "formats" in asked.files:
                rows += [("formats", about, None, failure) for about, failure in formats.rows(server("plain"))]
        except (NotServed, OSError) as error:
            sys.exit(f"{asked.alara}: {error}" if not asked.url else f"{asked.url}: {error}")
    return table(rows, asked.all, time.monotonic() - began)


def name(file):
    return file.__name__


def check(cases, server):
    """Of each case its name, why it differs from llama.cpp's server, and what is wrong; each None if nothing is."""
    kept = {}
    for case in cases:
        where = server(case.server)
        if where is None:
            continue
        method, path = case.request.split(" ")
        try:
            answer = ask(where, method, path, filled(case.body, kept), case.headers)
            failure = wrong(case, answer, kept)
        except KeyError as error:
            failure = f"an earlier case keeps no {error}"
        except (OSError, ValueError) as error:
            failure = repr(error)
        yield case.name, case.differs, failure and f"{case.request}: {failure}"


def table(rows, all_of_them, seconds):
    for file, about, differs, failure in rows:
        if failure:
            print(f"FAILED   {file}: {about}: {failure}")
        elif all_of_them:
            print(f"{'differs' if differs else 'ok':9}{file}: {about}")
    requests = [row for row in rows if row[0] != "formats"]
    differing, failed = sum(row[2] is not None for row in requests), sum(row[3] is not None for row in rows)
    print(f"{len(requests)} requests of llama.cpp's tests, {differing} of them with another answer for a reason; "
          f"{len(rows) - len(requests)} comparisons of wire formats; {failed} failed; {seconds:.0f} s")
    return int(failed > 0)


def docs():
    """Holds the documentation against the reasons, and these against the cases."""
    told = " ".join((ROOT / "docs/serve.md").read_text().split())
    used = {case.differs for file in FILES for case in file.CASES}
    missing = [reason for reason in REASONS.values() if reason not in told]
    print(*[f"- {reason}" for reason in missing], f"{len(REASONS)} reasons, {len(missing)} of them not in docs/serve.md", sep="\n")
    stray = (used - {None}) ^ set(REASONS)
    if stray:
        print(f"reasons without a case, or cases without a reason: {', '.join(sorted(stray))}")
    return int(bool(missing or stray))


if __name__ == "__main__":
    sys.exit(main())

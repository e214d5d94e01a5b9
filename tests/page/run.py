"""Tests of the page that `alara serve` has at /: a headless Chromium and a server with recorded answers.

    python3 tests/page/run.py [NAME…] [--shots DIR] [--served URL]

Says "skipped: no chromium" where there is none; then node, if it is there, checks that Markdown takes time in proportion
to its text. `--shots` leaves pictures, to look at. With `--served`, the tests of
test_served.py that are named run against the real server at that address, whose team and script they know:
crates/cli/tests/serve/page.rs starts it.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import time
import traceback

import browser
import test_answers, test_asked, test_attached, test_kept, test_looks, test_markdown, test_served  # noqa: E401, F401 (they register themselves)
from harness import SERVED, TESTS, same, say
from mock import Mock


def shots(page, folder):
    """Pictures of a chat, wide and narrow, light and dark."""
    folder.mkdir(parents=True, exist_ok=True)
    page.shot(folder / "empty.png")
    for word in ("agent", "reasoning", "refused", "markdown"):
        say(page, word)
    for width, dark in [(1200, False), (1200, True), (400, False), (400, True)]:
        page.size(width, 800)
        page.dark(dark)
        page.js("document.querySelector('#log').scrollTop = 1e6")
        page.shot(folder / f"end-{width}-{'dark' if dark else 'light'}.png")
        page.js("document.querySelector('#log').scrollTop = 0")
        page.shot(folder / f"begin-{width}-{'dark' if dark else 'light'}.png")
    page.click("#menu")
    page.shot(folder / "side-400.png")
    page.key("Escape")
    page.click("#settings")
    page.shot(folder / "settings-400.png")


def check(opened, server, name, function):
    """Runs a test on a page of its own; what went wrong, if anything did."""
    page = opened.page()
    server.requests.clear()
    server.answered.clear()
    began = time.monotonic()
    try:
        page.open(server.url)
        function(page, server)
        page.faults += page.js("window.violations")
        page.faults += [f"asked {url}" for url in page.requests if not url.startswith((server.url, "blob:", "data:"))]
        same(page.faults, [])
    except (browser.Failure, LookupError, ValueError) as failure:
        where = traceback.extract_tb(failure.__traceback__)
        line = next((at.lineno for at in reversed(where) if at.name == name), 0)
        return f"{name}, line {line}: {failure!r}" + "".join(f"\n  {fault}" for fault in page.faults)
    finally:
        page.close()
        print(f"{name}: {time.monotonic() - began:.1f} s")
    return None


def by_node():
    """What can be checked without a browser."""
    node = shutil.which("node")
    if node is None:
        print("skipped: no node")
        return 0
    check = pathlib.Path(__file__).with_name("linear_node.mjs")
    slow = json.loads(subprocess.run([node, check], check=True, capture_output=True, timeout=300).stdout)
    print(*slow, f"markdown_takes_time_in_proportion, by node: {len(slow)} texts take longer", sep="\n")
    return 1 if slow else 0


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("names", nargs="*", metavar="NAME")
    arguments.add_argument("--shots", type=pathlib.Path, metavar="DIR")
    arguments.add_argument("--served", metavar="URL")
    asked = arguments.parse_args()
    program = browser.find()
    if program is None:
        print("skipped: no chromium (Debian: apt-get install chromium; or its path in ALARA_CHROMIUM)")
        return by_node()
    known = SERVED if asked.served else TESTS
    unknown = [name for name in asked.names if name not in known]
    if unknown:
        print(f"no such test: {', '.join(unknown)} (there are {', '.join(known)})")
        return 2
    with browser.Browser(program) as opened:
        server = test_served.Served(asked.served) if asked.served else Mock()
        if asked.shots:
            page = opened.page()
            page.open(server.url)
            shots(page, asked.shots)
            return 0
        tests = {name: known[name] for name in asked.names or known}
        failures = [check(opened, server, name, function) for name, function in tests.items()]
    failures = [failure for failure in failures if failure]
    print(*failures, f"{len(tests)} tests, {len(failures)} failed", sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

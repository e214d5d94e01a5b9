"""A preprocessor of mdBook: links that leave docs/ lead to the repository, at the commit that the site is made of.

Where the repository is says `repository` in Cargo.toml, else GitHub's own variables in its workflows; where neither
does, links stay as they are.
"""

import json
import os
import re
import sys
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent


def repository():
    found = re.search(r'^repository = "([^"]+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    if found:
        return found[1]
    if "GITHUB_REPOSITORY" in os.environ:
        return f"{os.environ['GITHUB_SERVER_URL']}/{os.environ['GITHUB_REPOSITORY']}"
    return None


def mend(content, page, base):
    def target(match):
        path, anchor = match[1], match[2] or ""
        parts = []
        for part in ("docs" / PurePosixPath(page).parent / path).parts:
            if part == "..":
                parts.pop()
            elif part != ".":
                parts.append(part)
        if parts[:1] == ["docs"]:
            return match[0]
        return f"]({base}/{'/'.join(parts)}{anchor})"

    return re.sub(r"\]\((\.\./[^)#]*)(#[^)]*)?\)", target, content)


def walk(value, base):
    """Mends the chapters in `value`, wherever they are in it."""
    if isinstance(value, list):
        for item in value:
            walk(item, base)
    elif isinstance(value, dict):
        if isinstance(value.get("content"), str) and value.get("path"):
            value["content"] = mend(value["content"], value["path"], base)
        for item in value.values():
            walk(item, base)


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    _, book = json.load(sys.stdin)
    place = repository()
    if place:
        walk(book, f"{place}/blob/{os.environ.get('GITHUB_SHA', 'main')}")
    json.dump(book, sys.stdout)


main()

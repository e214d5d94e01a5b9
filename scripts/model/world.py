"""What a task sees while it writes one step of a conversation.

A `Step` is one clause of an instruction with the tool calls that carry it out, their results, and a closing phrase. The
`World` knows the permitted tools and the files made so far, and offers one preferred way for each operation.
So the same job is always done alike. Standard library only.
"""

import contextlib
import io
import re
from collections import namedtuple

from wording import say

Step = namedtuple("Step", "clause calls closing")
Call = namedtuple("Call", "name arguments result")
TASKS = []


class Unavailable(Exception):
    """The step needs a tool that is not permitted in this conversation."""


def task(weight=1.0):
    """Registers a function `World -> Step` with its share among the tasks."""

    def register(function):
        TASKS.append((function, weight))
        return function

    return register


def ok(output=""):
    return {"ok": True, "output": output.rstrip("\n")}


def failed(error, code=1, output=""):
    result = {"ok": False, "exit": code}
    if output:
        result["output"] = output.rstrip("\n")
    result["error"] = error
    return result


def sh(text):
    """The text as one word of a bash command."""
    if re.fullmatch(r"[\w./@:+=,%-]+", text):
        return text
    return "'" + text.replace("'", "'\\''") + "'"


def run_python(code):
    """What a program of ours prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {"__name__": "__main__"})
    return out.getvalue()


class World:
    def __init__(self, rng, values, tools):
        self.rng, self.v, self.tools = rng, values, tools
        self.sources = []  # files that the instruction expects to exist
        self.files = {}  # path -> text (None where it does not matter), made by earlier steps
        self.last = None  # the file that the previous step made
        self.mark = rng.choices(["{}", "`{}`", "'{}'", '"{}"'], [70, 12, 9, 9])[0]
        self.quote = rng.choices(['"{}"', "'{}'", "`{}`"], [55, 33, 12])[0]

    # Words of the instruction ---------------------------------------------------------------------------------------

    def say(self, templates, **slots):
        return say(self.rng, self.v.split, templates, slots)

    def p(self, path):
        """How the instruction names a path."""
        if path == self.last and self.rng.random() < 0.25:
            return self.rng.choice(["it", "that file", "this file", "the file"])
        if "/" in path and self.rng.random() < 0.15:
            folder, base = path.rsplit("/", 1)
            form = self.rng.choice(["{b} in the folder {f}", "{b} in the {f} directory", "{b} inside {f}"])
            return form.format(b=self.mark.format(base), f=self.mark.format(folder))
        return self.mark.format(path)

    def d(self, folder):
        return self.mark.format(folder)

    def q(self, text):
        """A quoted text."""
        quote = self.quote
        if quote[0] in text:
            quote = '"{}"' if '"' not in text else "`{}`"
        return quote.format(text)

    def listing(self, items, form="{}"):
        """`a, b and c`"""
        items = [form.format(i) for i in items]
        if len(items) == 1:
            return items[0]
        if self.rng.random() < 0.3:
            return ", ".join(items)
        return ", ".join(items[:-1]) + self.rng.choice([" and ", " and ", ", and "]) + items[-1]

    # Paths ----------------------------------------------------------------------------------------------------------

    def source(self, ext=None):
        """A file that exists: the one just made, or one that the task's setup made."""
        if self.last and ext is None and self.rng.random() < 0.7:
            return self.last
        return self.given(self.v.path(ext))

    def given(self, path):
        """Notes a file that exists before the first step."""
        self.sources.append(path)
        return path

    def target(self, ext=None):
        """A file to make."""
        return self.v.path(ext)

    def made(self, path, text=None):
        self.files[path] = text
        self.last = path

    # Calls ----------------------------------------------------------------------------------------------------------

    def need(self, tool):
        if tool not in self.tools:
            raise Unavailable(tool)

    def shell(self, command, output=""):
        """A bash command; the folder of a file that its output goes to is made first."""
        self.need("shell")
        redirected = re.search(r" > (\S+)/[^/ ]+( \|\| true)?$", command)
        if redirected and not command.startswith("mkdir"):
            command = f"mkdir -p {redirected[1]} && {command}"
        return Call("shell", {"command": command}, ok(output))

    def python(self, code, output=None):
        self.need("python")
        return Call("python", {"code": code}, ok(run_python(code) if output is None else output))

    def read(self, path, text):
        if "read_file" in self.tools:
            return Call("read_file", {"path": path}, ok(text))
        return self.shell(f"cat {path}", text)

    def write(self, path, text):
        """Writes a whole file with the most direct permitted tool."""
        if "write_file" in self.tools:
            return Call("write_file", {"path": path, "content": text}, ok(f"wrote {path}"))
        if "shell" in self.tools:
            folder = path.rpartition("/")[0]
            lines = " ".join(sh(line) if line else "''" for line in text.split("\n"))
            return self.shell((f"mkdir -p {folder} && " if folder else "") + f"printf '%s\\n' {lines} > {path}")
        if "/" in path:
            raise Unavailable("write_file")
        return self.python(f"open({path!r}, 'w').write({text + chr(10)!r})", "")

    def edit(self, path, find, replace):
        if "edit_file" in self.tools:
            return Call("edit_file", {"path": path, "find": find, "replace": replace}, ok(f"changed {path}"))
        if re.fullmatch(r"[\w .,:=-]+", find + replace):
            return self.shell(f"sed -i 's/{find}/{replace}/' {path}")
        raise Unavailable("edit_file")

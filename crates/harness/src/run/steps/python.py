# Runs one Python step: {"code", "name", "context", "values", "modules", "module", "rights"} as JSON on stdin. On stdout: a line of JSON that says what follows
# (`json`: a value, or else text) and whether the step wants the work to end (`stop`), then the result.
# The result is `output`, if the step sets it as a variable or in `context`, otherwise all that the step and its programs print.
import sys

# A file of the work directory never stands in for a module of Python's own; other modules of it can be imported.
sys.path[:] = [path for path in sys.path if path not in ("", ".")]
import builtins, json, os, tempfile, traceback, types


class Record(dict):
    """The NPC: a mapping whose keys are attributes too."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"npc has no {name} here, only {' and '.join(self)}") from None


class Context(dict):
    """A mapping that knows whether its `output` was set."""

    set = False

    def __setitem__(self, key, value):
        self.set |= key == "output"
        super().__setitem__(key, value)


step = json.load(sys.stdin)
# With more rights than other steps, none runs what those have written.
if not step["rights"]:
    sys.path.append("")
code, name, context = step["code"], step["name"], Context(step["context"])
real = os.dup(1)
printed = tempfile.TemporaryFile()
os.dup2(printed.fileno(), 1)
null = os.open(os.devnull, os.O_RDONLY)
os.dup2(null, 0)

before = context.get("output")
context["npc"] = Record(context.get("npc") or {})
variables = {"__name__": "__main__", "context": context, "npc": context["npc"], "__v": [None, *step["values"]]}
# The step sees what was there before, and what it sets is told from that.
variables["__builtins__"] = {**vars(builtins), "output": before}
# What such steps use without importing it.
for module in step["modules"]:
    if module in code:
        variables[module] = __import__(module)
if "alara" in code:
    sys.modules["alara"] = types.ModuleType("alara")
    exec(step["module"], vars(sys.modules["alara"]))


def told(error):
    """An error in one line."""
    missing = getattr(error, "name", None) or ""
    package = missing.split(".")[0]
    if isinstance(error, ModuleNotFoundError) and package in ("npcpy", "npcsh", "npcrs"):
        return f"this jinx needs {package}, which is not part of alara"
    if isinstance(error, NameError) and missing == "get_llm_response":
        return "this jinx needs get_llm_response of npcpy, which is not part of alara: use an llm step"
    if isinstance(error, ModuleNotFoundError):
        return f"this jinx needs the Python package {package}, which is not installed"
    text = "".join(traceback.format_exception_only(type(error), error)).rstrip()
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == name]
    # An error of the system says what it is about; for the others the line helps.
    if lines and not isinstance(error, OSError):
        text += f" (line {lines[-1]})"
    return text


status = 0
try:
    exec(compile(code, name, "exec"), variables)
except SystemExit as leave:
    if isinstance(leave.code, str):
        print(leave.code, file=sys.stderr)
    status = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
except BaseException as error:
    print(told(error), file=sys.stderr)
    status = 1

sys.stdout.flush()
output = variables.get("output")
if output is None and (context.set or context.get("output") is not before):
    output = context.get("output")
typed = output is not None and not isinstance(output, str)
header = json.dumps({"json": typed, "stop": bool(context.get("stop_requested"))})
with os.fdopen(real, "wb") as out:
    out.write(header.encode() + b"\n")
    if output is None:
        printed.seek(0)
        while piece := printed.read(1 << 16):
            out.write(piece)
    else:
        text = json.dumps(output, ensure_ascii=False, default=str) if typed else output
        out.write(text.encode("utf-8", "replace"))
sys.stderr.flush()
os._exit(status & 0xFF)

# Runs one Python step: {"code", "name", "context"} as JSON on stdin; the result on stdout.
# The result is the variable `output` if the step sets it, otherwise all that the step and its programs print.
import json, os, sys, tempfile, traceback

step = json.load(sys.stdin)
real = os.dup(1)
printed = tempfile.TemporaryFile()
os.dup2(printed.fileno(), 1)
null = os.open(os.devnull, os.O_RDONLY)
os.dup2(null, 0)

values = {"__name__": "__main__", "context": step["context"]}
status = 0
try:
    exec(compile(step["code"], step["name"], "exec"), values)
except SystemExit as leave:
    if isinstance(leave.code, str):
        print(leave.code, file=sys.stderr)
    status = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
except BaseException as error:
    text = "".join(traceback.format_exception_only(type(error), error)).rstrip()
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == step["name"]]
    # An error of the system says what it is about; for the others the line helps.
    if lines and not isinstance(error, OSError):
        text += f" (line {lines[-1]})"
    print(text, file=sys.stderr)
    status = 1

sys.stdout.flush()
output = values.get("output")
with os.fdopen(real, "wb") as out:
    if output is None:
        printed.seek(0)
        while piece := printed.read(1 << 16):
            out.write(piece)
    else:
        text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
        out.write(text.encode("utf-8", "replace"))
sys.stderr.flush()
os._exit(status)

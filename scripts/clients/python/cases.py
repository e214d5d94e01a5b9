"""What the Python clients share: cases, the server's address, and the tool and schema that cases use."""
import asyncio
import inspect
import json
import os
import subprocess
import traceback

SERVER = os.environ["SERVER"]
V1 = SERVER + "/v1"
MODEL = os.environ["MODEL"]
# Whether the model can be expected to choose a tool.
REAL = bool(os.environ.get("REAL"))
KEY = "none"

# Bounded, so that even a model that speaks nonsense ends soon.
PLACE = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}, "days": {"type": "integer", "enum": [1, 2, 3]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOL = {"name": "get_weather", "description": "Gives the weather of a city.", "parameters": PLACE}
FUNCTION = {"type": "function", "function": TOOL}
QUESTION = "What is the weather in Paris for two days?"

CASES = []


def case(function=None, *, fault=None, real=False):
    """A case. `fault` = (text of the error, why): a failure with that text is the client's. `real`: it takes a real model."""
    if function is None:
        return lambda function: case(function, fault=fault, real=real)
    CASES.append((function.__name__, function, fault, real))
    return function


def holds(place):
    """Asserts that `place` (a dictionary or JSON) is valid for PLACE."""
    place = json.loads(place) if isinstance(place, str) else place
    assert set(place) == {"city", "days"} and place["city"] in ["Paris", "Rome"] and place["days"] in [1, 2, 3], f"not valid: {place}"


def command(*arguments, seconds=120, **more):
    """Runs a command-line client. Returns what it printed; a failure has its last lines."""
    done = subprocess.run([str(one) for one in arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=seconds, **more)
    print(done.stdout)
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stdout.strip()[-180:]}"
    return done.stdout


def run():
    """Runs all cases and tells the driver of each as soon as it is known."""
    # One loop for all, since clients keep connections that belong to it.
    loop = asyncio.new_event_loop()
    with open(os.environ["RESULTS"], "w", buffering=1) as results:
        print(json.dumps({"cases": [name for name, *_ in CASES]}), file=results)
        for name, function, fault, real in CASES:
            print(f"== {name}", flush=True)
            state, why = "ok", ""
            if real and not REAL:
                print(json.dumps({"case": name, "state": "skipped", "why": "takes a real model"}), file=results)
                continue
            try:
                value = function()
                if inspect.isawaitable(value):
                    loop.run_until_complete(value)
            except Exception as error:
                traceback.print_exc()
                state, why = "FAILED", told(error)
                if fault and fault[0] in f"{error!r} {error}":
                    state, why = "fault", fault[1]
            print(json.dumps({"case": name, "state": state, "why": why}), file=results)


def told(error):
    """One line of an error; of an assertion without words, its source."""
    text = " ".join(str(error).split())
    if isinstance(error, AssertionError) and not text:
        text = traceback.extract_tb(error.__traceback__)[-1].line
    return f"{type(error).__name__}: {text}"[:400]

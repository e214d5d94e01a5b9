"""Synthetic tool-use conversations in the harness's prompt format.

    python scripts/model/generate.py --count 5 --split heldout      prints conversations as text

A conversation is an instruction, the calls that carry it out, their results, and a closing sentence.
Some contain a failed call or a failed check and the recovery from it.
It depends on (seed, split, index) alone. Standard library only.
"""

import argparse
import json
import pathlib
import random

import tasks_code  # noqa: F401  each import registers its tasks
import tasks_data  # noqa: F401
import tasks_files  # noqa: F401
import tasks_more  # noqa: F401
import tasks_system  # noqa: F401
import tasks_text  # noqa: F401
from values import Values, make_rng
from wording import instruction
from world import TASKS, Call, Unavailable, World, failed, ok

FUNCTIONS = [function for function, _ in TASKS]
WEIGHTS = [weight * (1.5 if function.__module__ == "tasks_more" else 1) for function, weight in TASKS]
SPLITS = ("train", "heldout")
# Training conversations (seed, index) that share words with the benchmark; see check_overlap.py.
LEFT_OUT_FILE = pathlib.Path(__file__).with_name("left_out.txt")
LEFT_OUT = {tuple(map(int, line.split())) for line in LEFT_OUT_FILE.read_text().splitlines()}


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def call_message(call):
    return {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": call.name, "arguments": call.arguments}}]}


def result_message(call):
    return {"role": "tool", "content": compact(call.result)}


def plan(rng, world):
    """One to four steps."""
    count = rng.choices([1, 2, 3, 4], [74, 17, 7, 2])[0]
    steps = []
    while len(steps) < count:
        function = rng.choices(FUNCTIONS, WEIGHTS)[0]
        step = function(world)
        # A question or an instruction in several sentences stays alone, it cannot be joined to others.
        if count > 1 and ("?" in step.clause or "\n" in step.clause or ". " in step.clause or "! " in step.clause):
            world.last = None
            continue
        steps.append(step)
    return steps


def failing(world, call):
    """A first attempt at `call` that fails, with the error that the real tool prints; None where there is no such."""
    if call.name == "read_file":
        path = call.arguments["path"]
        wrong = path.rsplit("/", 1)[-1] if "/" in path else path.rsplit(".", 1)[0]
        if wrong == path or "shell" not in world.tools:
            return None
        return [
            Call("read_file", {"path": wrong}, failed(f"cat: {wrong}: No such file or directory")),
            Call("shell", {"command": "find . -type f"}, ok("\n".join(sorted(["./" + path, "./" + world.v.path()])))),
        ]
    return None


FEEDBACK = [
    "{p} does not exist", "{p} is missing", "{p}: No such file or directory", "expected another content in {p}", "{p} has the wrong content", "diff: {p} differs",
]


def paths_of(call):
    if "path" in call.arguments:
        return call.arguments["path"]
    text = call.arguments.get("command", "")
    return text.rsplit(" > ", 1)[1] if " > " in text else text.split()[-1] if text else "the result"


def conversation(seed, split, index, tools):
    """Messages of one conversation (user, assistant, tool; no system) with the given permitted tool names."""
    rng = make_rng(seed, split, index)
    values = Values(rng, split)
    while True:
        try:
            world = World(rng, values, tools)
            steps = plan(rng, world)
            break
        except Unavailable:
            continue
    messages = [{"role": "user", "content": instruction(rng, values, [step.clause for step in steps], world.sources)}]
    calls = [call for step in steps for call in step.calls]
    trouble = rng.random()
    for position, call in enumerate(calls):
        attempts = failing(world, call) if trouble < 0.12 else None
        if attempts:
            for attempt in attempts:
                messages += [call_message(attempt), result_message(attempt)]
        messages += [call_message(call), result_message(call)]
    closing = steps[-1].closing if len(steps) == 1 else "All steps are done."
    messages.append({"role": "assistant", "content": closing})
    if trouble > 0.95:
        # The check failed although the calls were right as far as anyone can tell: do the last step again, by other means.
        last = calls[-1]
        text = rng.choice(FEEDBACK).format(p=paths_of(last))
        messages.append({"role": "user", "content": rng.choice([f"The check failed: {text}\nTry again.", f"The check failed: {text}\nTry again.", "The check failed.\nTry again."])})
        second = World(rng, values, [tool for tool in tools if tool != "write_file"])
        for call in steps[-1].calls:
            if call.name == "write_file" and "shell" in tools:
                call = second.write(call.arguments["path"], call.arguments["content"])
            messages += [call_message(call), result_message(call)]
        messages.append({"role": "assistant", "content": steps[-1].closing})
    return messages


def body(messages):
    """The conversation as pieces (text, whether the model writes it), exactly as chat_template.jinja renders it."""
    pieces, previous = [], None
    for i, message in enumerate(messages):
        role = message["role"]
        if role == "assistant":
            pieces.append(("<|im_start|>assistant\n", False))
            text = message["content"]
            for call in message.get("tool_calls", []):
                function = call["function"]
                head = f'{{"name": {json.dumps(function["name"])}, "arguments": '
                text += f"<tool_call>\n{head}{json.dumps(function['arguments'], ensure_ascii=False)}}}\n</tool_call>"
            pieces += [(text + "<|im_end|>", True), ("\n", False)]
        elif role == "tool":
            text = ("\n" if previous == "tool" else "<|im_start|>user\n") + f"<tool_response>\n{message['content']}\n</tool_response>"
            if i + 1 == len(messages) or messages[i + 1]["role"] != "tool":
                text += "<|im_end|>\n"
            pieces.append((text, False))
        else:
            pieces.append((f"<|im_start|>{role}\n{message['content']}<|im_end|>\n", False))
        previous = role
    return pieces


ALL = ("shell", "python", "read_file", "write_file", "edit_file")


def tool_sets(count=24, seed=0):
    """The permitted tools of each prompt variant; variant 0 is the stock list, and most conversations have it."""
    rng, sets = random.Random(seed), [ALL]
    while len(sets) < count:
        tools = rng.sample(ALL, rng.choice([1, 2, 3, 3, 4, 4, 5]))
        if set(tools) & {"shell", "write_file", "python"} and tuple(tools) not in sets:
            sets.append(tuple(tools))
    return sets


SETS = tool_sets()


def variant_of(seed, split, index):
    rng = make_rng("variant", seed, split, index)
    return 0 if rng.random() < 0.94 else rng.randrange(1, len(SETS))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--split", choices=SPLITS, default="train")
    arguments = parser.parse_args()
    for index in range(arguments.start, arguments.start + arguments.count):
        tools = SETS[variant_of(arguments.seed, arguments.split, index)]
        print(f"=== {index} {','.join(tools)}")
        print("".join(text for text, _ in body(conversation(arguments.seed, arguments.split, index, tools))))


if __name__ == "__main__":
    main()

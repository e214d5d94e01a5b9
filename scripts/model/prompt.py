"""The static part of every prompt: system text and tools, read from the repository's team and jinx files.

After a change of those files, training again is all that is needed. Needs PyYAML.
"""

import json
import pathlib

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEMPLATE = pathlib.Path(__file__).with_name("chat_template.jinja")


def directive():
    """The stock worker's directive, trimmed."""
    return yaml.safe_load((ROOT / "teams/alara/worker.npc").read_text())["primary_directive"].strip()


def worker_tools():
    """Names of the stock worker's jinxes in the order of its file."""
    return yaml.safe_load((ROOT / "teams/alara/worker.npc").read_text())["jinxes"]


def schema(name):
    """The function description of a stock jinx, keys in the order in which the harness prints them."""
    jinx = yaml.safe_load((ROOT / f"jinxes/core/{name}.jinx").read_text())
    properties, required = {}, []
    for item in jinx["inputs"]:
        (key, about), = item.items()
        properties[key] = {"type": about["type"], "description": about["description"]}
        if "default" not in about:
            required.append(key)
        elif about["default"] is not None:
            properties[key]["default"] = about["default"]
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"type": "function", "function": {"name": jinx["jinx_name"], "description": jinx["description"], "parameters": parameters}}


SYSTEMS = [
    "You do small tasks on this computer with the tools.",
    "You are a helpful agent. Use the tools to do what the user asks, then answer in one sentence.",
    "Do the task step by step. Use relative paths.",
    "You work in a directory of files. Call tools until the task is done.",
]


def prefix(variant, tools):
    """The system turn of a prompt variant, exactly as chat_template.jinja renders it; variant 0 is the stock prompt."""
    system = directive() if variant == 0 or variant % 3 == 0 else SYSTEMS[variant % len(SYSTEMS)]
    if not tools:
        return f"<|im_start|>system\n{system}<|im_end|>\n"
    lines = "".join(json.dumps(schema(name), ensure_ascii=False) + "\n" for name in tools)
    how = 'Call a tool like this:\n<tool_call>\n{"name": NAME, "arguments": {...}}\n</tool_call>'
    return f"<|im_start|>system\n{system}\n\n# Tools\n<tools>\n{lines}</tools>\n{how}<|im_end|>\n"

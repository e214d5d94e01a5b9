"""Checks that generate.body and prompt.prefix print exactly what chat_template.jinja renders. Needs Jinja2 and PyYAML.

    python scripts/model/check_template.py
"""

import json
import sys

import jinja2

import generate
import prompt


def template():
    """The chat template in Hugging Face's environment."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string(prompt.TEMPLATE.read_text())


def main():
    render, checked = template().render, 0
    for index in range(2000):
        variant = generate.variant_of(1, "train", index)
        tools = generate.SETS[variant]
        messages = generate.conversation(1, "train", index, tools)
        ours = prompt.prefix(variant, tools) + "".join(text for text, _ in generate.body(messages))
        system = ours.split("system\n", 1)[1].split("\n\n# Tools", 1)[0]
        theirs = render(messages=[{"role": "system", "content": system}, *messages], tools=[prompt.schema(name) for name in tools], add_generation_prompt=False)
        if ours != theirs:
            sys.exit(f"conversation {index} differs\n--- generator\n{ours}\n--- template\n{theirs}")
        checked += 1
    # Without tools, and the beginning of a turn.
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    expected = "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n"
    if render(messages=messages, tools=None, add_generation_prompt=True) != expected:
        sys.exit("a conversation without tools differs")
    print(f"{checked} conversations render alike")


if __name__ == "__main__":
    main()

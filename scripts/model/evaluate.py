"""How often the model's first call is exactly the expected one, on held-out instructions (llama.cpp evaluates the file).

    python scripts/model/evaluate.py models/alara-tiny.gguf --count 200

Held-out conversations come from templates, words and made-up names that training never showed. Decoding is greedy and free
(no grammar). Needs llama-cpp-python.
"""

import argparse
import collections
import json
import re

from llama_cpp import Llama

import generate
import prompt

STOCK = prompt.prefix(0, generate.SETS[0])


def call_of(text):
    """The first tool call of a turn as (name, arguments), or None."""
    match = re.search(r"<tool_call>\n(.*?)\n</tool_call>", text, re.S)
    try:
        call = json.loads(match[1])
        return call["name"], call["arguments"]
    except (TypeError, ValueError, KeyError):
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--split", default="heldout")
    parser.add_argument("--show", type=int, default=10, help="how many wrong answers to print")
    parser.add_argument("--prompt", help="print the answer to this instruction instead")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    llama = Llama(arguments.model, n_ctx=2048, n_threads=arguments.threads, verbose=False)

    def answer(user):
        text = f"{STOCK}<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"
        tokens = llama.tokenize(text.encode(), add_bos=False, special=True)
        out = []
        for token in llama.generate(tokens, temp=0.0, repeat_penalty=1.0):
            if token == llama.token_eos() or len(out) > 400:
                break
            out.append(token)
        return llama.detokenize(out, special=True).decode(errors="replace")

    if arguments.prompt:
        print(answer(arguments.prompt))
        return
    exact, names, seen, kinds = 0, 0, 0, collections.Counter()
    for index in range(arguments.count):
        messages = generate.conversation(arguments.seed, arguments.split, 1_000_000 + index, generate.ALL)
        function = messages[1]["tool_calls"][0]["function"]
        wanted, got = (function["name"], function["arguments"]), call_of(answer(messages[0]["content"]))
        seen += 1
        names += got is not None and got[0] == wanted[0]
        exact += got == wanted
        if got != wanted and arguments.show > 0:
            arguments.show -= 1
            print(f"- {messages[0]['content']}\n  wanted {wanted}\n  got    {got}")
        kinds[got == wanted, wanted[0]] += 1
    print(f"{seen} {arguments.split} instructions: first call exact {exact / seen:.1%}, right tool {names / seen:.1%}")
    for name in generate.ALL:
        total = kinds[True, name] + kinds[False, name]
        if total:
            print(f"  {name:<11} {kinds[True, name]:4}/{total}")


if __name__ == "__main__":
    main()

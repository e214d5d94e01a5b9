"""Trains the byte-level BPE tokenizer on synthetic conversations.

    python scripts/model/tokenizer.py --out tokenizer.json

The pre-tokenizer is Qwen2's: words, single digits, runs of punctuation, whitespace.
"""

import argparse

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import generate
import prompt

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
USER_DEFINED = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]


def texts(seed, count):
    for variant, tools in enumerate(generate.SETS):
        for _ in range(300 if variant == 0 else 10):  # every prompt begins with it, so it should be few tokens
            yield prompt.prefix(variant, tools)
    for index in range(count):
        tools = generate.SETS[generate.variant_of(seed, "train", index)]
        yield "".join(text for text, _ in generate.body(generate.conversation(seed, "train", index, tools)))


def train(seed, count, vocabulary):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(t, special=True, normalized=False) for t in CONTROL]
    user = [AddedToken(t, special=False, normalized=False) for t in USER_DEFINED]
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=special + user, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    tokenizer.train_from_iterator(texts(seed, count), trainer)
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=30000)
    parser.add_argument("--vocabulary", type=int, default=2048)
    parser.add_argument("--out", default="tokenizer.json")
    arguments = parser.parse_args()
    train(arguments.seed, arguments.count, arguments.vocabulary).save(arguments.out)


if __name__ == "__main__":
    main()

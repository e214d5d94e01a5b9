"""Conversations as token arrays, packed into batches that share one prompt prefix.

Every conversation of a batch has the same system turn, so the model computes it once a batch (see model.py).
"""

import multiprocessing
import pathlib
import time

import numpy as np
from tokenizers import Tokenizer

import generate

LONGEST = 640


def encode_range(job):
    tokenizer_file, seed, split, start, stop = job
    tokenizer = Tokenizer.from_file(tokenizer_file)
    examples = []
    for index in range(start, stop):
        if split == "train" and (seed, index) in generate.LEFT_OUT:
            continue
        variant = generate.variant_of(seed, split, index)
        pieces = generate.body(generate.conversation(seed, split, index, generate.SETS[variant]))
        ids, mask = [], []
        for (text, own), encoded in zip(pieces, tokenizer.encode_batch([text for text, _ in pieces], add_special_tokens=False)):
            ids += encoded.ids
            mask += [own] * len(encoded.ids)
        if len(ids) <= LONGEST:
            examples.append((variant, np.array(ids, np.uint16), np.array(mask)))
    return examples


def examples(tokenizer_file, seed, split, start, stop, workers=2, chunk=1000):
    jobs = [(tokenizer_file, seed, split, i, min(i + chunk, stop)) for i in range(start, stop, chunk)]
    with multiprocessing.Pool(workers) as pool:
        for part in pool.imap(encode_range, jobs):
            yield from part


SHARD = 10000


def shard(folder, seed, split, start):
    return pathlib.Path(folder) / f"{split}-{seed}-{start:07}.npz"


def prepare(tokenizer_file, folder, seed, split, start):
    """Writes the conversations [start, start + SHARD) to a file, unless it is there."""
    path = shard(folder, seed, split, start)
    if path.exists():
        return
    items = [item for i in range(start, start + SHARD, 1000) for item in encode_range((tokenizer_file, seed, split, i, i + 1000))]
    part = path.with_suffix(".part.npz")
    np.savez(part, ids=np.concatenate([i[1] for i in items]), own=np.packbits(np.concatenate([i[2] for i in items])), lens=np.array([len(i[1]) for i in items], np.int32), variants=np.array([i[0] for i in items], np.int16))
    part.rename(path)


def prepared(folder, seed, split, start, stop):
    """What examples gives, from files of prepare; waits for those that are still being made."""
    for a in range(start, stop, SHARD):
        while not shard(folder, seed, split, a).exists():
            time.sleep(1)
        with np.load(shard(folder, seed, split, a)) as file:
            ids, own, lens, variants = (file[k] for k in ("ids", "own", "lens", "variants"))
        ends = np.cumsum(lens)
        own = np.unpackbits(own)[: ends[-1]].astype(bool)
        for variant, end, n in zip(variants, ends, lens):
            yield int(variant), ids[end - n : end], own[end - n : end]


def batches(items, tokens, rng):
    """Batches [B, S] of one variant and similar lengths; S is a multiple of 32, B*S about `tokens`."""
    items = sorted(items, key=lambda item: (item[0], len(item[1]) + rng.random()))
    out, i = [], 0
    while i < len(items):
        variant, size = items[i][0], -(-len(items[i][1]) // 32) * 32
        j = i
        while j < len(items) and items[j][0] == variant:
            grown = max(size, -(-len(items[j][1]) // 32) * 32)
            if (j + 1 - i) * grown > tokens:
                break
            size, j = grown, j + 1
        j = max(j, i + 1)
        ids, mask = np.zeros((j - i, size), np.int64), np.zeros((j - i, size), bool)
        for row, (_, tokens_of, own) in enumerate(items[i:j]):
            ids[row, : len(tokens_of)], mask[row, : len(own)] = tokens_of, own
        out.append((variant, ids, mask))
        i = j
    rng.shuffle(out)
    return out

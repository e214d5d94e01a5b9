"""Trains the small model: tokenizer, data, steps, checkpoint. One command, on a CPU or one GPU.

    python scripts/model/train.py --out build/model --steps 3000
    python scripts/model/export.py build/model models/alara-tiny.gguf

Loss is cross-entropy on the tokens that the assistant writes. Matrices are updated by Muon, embedding and norms by AdamW;
the rate warms up, stays, and falls linearly to zero over the last part. Weights are kept in f32, arithmetic is bf16. What is
kept is a moving average of the weights. A checkpoint is written every --save steps; --init goes on from one.
"""

import argparse
import copy
import json
import pathlib
import random
import time

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import data
import generate
import model
import prompt
import tokenizer as bpe


def rate(step, steps, warmup, decay):
    """The share of the peak learning rate at a step."""
    return min(1.0, (step + 1) / warmup, (steps - step) / (decay * steps))


def stream(arguments, tokenizer_file, rng):
    """Endless batches; every conversation is used once."""
    start = arguments.start
    while True:
        stop = start + arguments.pool
        items = list(data.examples(tokenizer_file, arguments.seed, "train", start, stop, arguments.workers))
        if arguments.short_prefix:
            items = [item for item in items if item[0] == 0]
        start = stop
        for variant, ids, mask in data.batches(items, arguments.tokens, rng):
            yield start, variant, torch.from_numpy(ids), torch.from_numpy(mask)


def loss_of(network, prefixes, variant, ids, mask, device):
    """Mean cross-entropy over the assistant's tokens, and how many of them were the most likely one."""
    ids, mask = ids.to(device), mask.to(device)
    select = torch.zeros_like(mask)
    select[:, :-1] = mask[:, 1:]
    with torch.autocast(device.split(":")[0], dtype=torch.bfloat16):
        logits = network(prefixes[variant], ids, select)
    targets = ids[mask]
    return F.cross_entropy(logits, targets), (logits.argmax(-1) == targets).float().mean()


def heldout_loss(network, prefixes, items, tokens, device):
    total, right, count = 0.0, 0.0, 0
    with torch.no_grad():
        for variant, ids, mask in data.batches(items, tokens, random.Random(0)):
            loss, hits = loss_of(network, prefixes, variant, torch.from_numpy(ids), torch.from_numpy(mask), device)
            n = int(mask.sum())
            total, right, count = total + loss.item() * n, right + hits.item() * n, count + n
    return total / count, right / count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="build/model")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--tokens", type=int, default=4096, help="tokens a batch, without the prefix")
    parser.add_argument("--pool", type=int, default=8000, help="conversations generated and sorted by length at a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", type=int, default=0, help="index of the first conversation")
    parser.add_argument("--matrix-rate", type=float, default=0.012)
    parser.add_argument("--vector-rate", type=float, default=0.003)
    parser.add_argument("--warmup", type=int, default=40)
    parser.add_argument("--decay", type=float, default=0.4)
    parser.add_argument("--save", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=0, help="shorten the run so that it ends after so many minutes")
    parser.add_argument("--vocabulary", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--feed-forward", type=int, default=512)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--init", help="checkpoint to start from")
    parser.add_argument("--tokenizer", help="tokenizer.json to use instead of training one")
    parser.add_argument("--short-prefix", action="store_true", help="leave the tools out of the prompt (cheaper), for a first phase")
    arguments = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(arguments.threads)
    out = pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer_file = str(out / "tokenizer.json")
    if arguments.tokenizer:
        (out / "tokenizer.json").write_text(pathlib.Path(arguments.tokenizer).read_text())
    else:
        bpe.train(arguments.seed, 30000, arguments.vocabulary).save(tokenizer_file)
    words = Tokenizer.from_file(tokenizer_file)
    prefixes = [torch.tensor(words.encode(prompt.prefix(i, () if arguments.short_prefix else tools), add_special_tokens=False).ids, device=device) for i, tools in enumerate(generate.SETS)]

    sizes = model.Sizes(V=words.get_vocab_size(), D=arguments.width, L=arguments.layers, F=arguments.feed_forward)
    network = model.Decoder(sizes).to(device)
    network.start_copying(arguments.seed)
    before = torch.load(arguments.init, weights_only=True) if arguments.init else {}
    if before:
        network.load_state_dict(before.get("raw", before["weights"]))
    average = copy.deepcopy(network)
    if before:
        average.load_state_dict(before["weights"])
    matrices = [p for name, p in network.named_parameters() if p.ndim == 2 and "embedding" not in name]
    vectors = [p for name, p in network.named_parameters() if p.ndim != 2 or "embedding" in name]
    optimizers = [
        torch.optim.Muon(matrices, lr=arguments.matrix_rate, weight_decay=0.01, adjust_lr_fn="original"),
        torch.optim.AdamW(vectors, lr=arguments.vector_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    peaks = [arguments.matrix_rate, arguments.vector_rate]
    print(f"{sum(p.numel() for p in network.parameters())} parameters, prefix {len(prefixes[0])} tokens, {device}", flush=True)
    held = list(data.examples(tokenizer_file, arguments.seed, "heldout", 0, 300, arguments.workers))
    if arguments.short_prefix:
        held = [item for item in held if item[0] == 0]

    def save(step):
        state = {"weights": average.state_dict(), "raw": network.state_dict(), "sizes": vars(sizes), "step": done + step, "tokens": before.get("tokens", 0) + trained, "conversations": seen, "arguments": vars(arguments)}
        torch.save(state, out / "checkpoint.tmp")
        (out / "checkpoint.tmp").rename(out / "checkpoint.pt")

    done = before.get("step", 0)
    began, trained, seen, steps, step = time.time(), 0, 0, arguments.steps, 0
    log = open(out / "log.jsonl", "a")
    batches = stream(arguments, tokenizer_file, random.Random(arguments.seed))
    while step < steps:
        seen, variant, ids, mask = next(batches)
        share = rate(step, steps, arguments.warmup, arguments.decay)
        for optimizer, peak in zip(optimizers, peaks):
            for group in optimizer.param_groups:
                group["lr"] = peak * share
        loss, hits = loss_of(network, prefixes, variant, ids, mask, device)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            keep = min(0.99, step / (step + 10)) if not before else 0.99
            torch._foreach_lerp_(list(average.parameters()), list(network.parameters()), 1 - keep)
        trained += ids.numel() + len(prefixes[variant])
        step += 1
        if step % 20 == 0:
            elapsed = time.time() - began
            if arguments.minutes:
                steps = max(step + 1, int(step + (arguments.minutes * 60 - elapsed) * step / elapsed)) if step < 0.6 * steps or step < 100 else steps
            record = {"step": step, "steps": steps, "loss": round(loss.item(), 4), "accuracy": round(hits.item(), 4), "tokens": trained, "seconds": round(elapsed, 1)}
            print(json.dumps(record), file=log, flush=True)
            print(record, flush=True)
        if step % arguments.save == 0 or step == steps:
            save(step)
            held_loss, held_accuracy = heldout_loss(average, prefixes, held, arguments.tokens, device)
            record = {"step": step, "heldout_loss": round(held_loss, 4), "heldout_token_accuracy": round(held_accuracy, 4)}
            print(json.dumps(record), file=log, flush=True)
            print(record, flush=True)


if __name__ == "__main__":
    main()

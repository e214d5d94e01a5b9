"""Trains the small model: tokenizer, data, steps, checkpoint. One command, on a CPU or one GPU.

    python scripts/model/train.py --out build/model --minutes 90
    python scripts/model/export.py build/model models/alara-tiny.gguf

Loss is cross-entropy on the tokens that the assistant writes. Matrices are updated by Muon, embedding and norms by AdamW;
the rate warms up, stays, and falls linearly to zero over the last part. Weights are kept in f32, arithmetic is bf16. What is
kept is a moving average of the weights. A checkpoint is written every --save steps, and --resume goes on from it.
--init begins a new run from the weights of a checkpoint or of a GGUF file. On an x86 CPU with AMX, loss and gradients are computed by fast.c.
"""

import argparse
import copy
import json
import pathlib
import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import data
import fast
import generate
import model
import prompt
import tokenizer as bpe


def rate(step, progress, warmup, decay):
    """The share of the peak learning rate at a step, where `progress` (0-1) of the run is done."""
    return min(1.0, (step + 1) / warmup, max(0.0, 1 - progress) / decay)


def stream(arguments, tokenizer_file, rng, start):
    """Endless batches; every conversation is used once. Gives the index of the next conversation, the variant, tokens and mask."""
    while True:
        stop = start + arguments.pool
        items = list(data.prepared(arguments.data, arguments.seed, "train", start, stop) if arguments.data else data.examples(tokenizer_file, arguments.seed, "train", start, stop, arguments.workers))
        for variant, ids, mask in data.batches(items, arguments.tokens, rng):
            yield start, variant, ids, mask
        start = stop


def loss_of(network, prefix, ids, mask):
    """Mean cross-entropy over the assistant's tokens, and how many of them were the most likely one."""
    select = torch.zeros_like(mask)
    select[:, :-1] = mask[:, 1:]
    with torch.autocast(ids.device.type, dtype=torch.bfloat16):
        logits = network(prefix, ids, select)
    targets = ids[mask]
    return F.cross_entropy(logits, targets), (logits.argmax(-1) == targets).float().mean()


class Plain:
    """Loss and gradients by PyTorch; fast.Fast does the same."""

    def __init__(self, network, device):
        self.network, self.device = network, device

    def __call__(self, prefix, ids, mask, average=None):
        prefix, ids, mask = (torch.from_numpy(np.asarray(x)).to(self.device) for x in (prefix, ids, mask))
        if average is not None:
            with torch.no_grad():
                loss, hits = loss_of(average, prefix, ids, mask)
        else:
            loss, hits = loss_of(self.network, prefix, ids, mask)
            loss.backward()
        return loss.item(), hits.item()


def heldout_loss(compute, average, prefixes, items, tokens):
    total, right, count = 0.0, 0.0, 0
    for variant, ids, mask in data.batches(items, tokens, random.Random(0)):
        loss, hits = compute(prefixes[variant], ids, mask, average)
        n = int(mask.sum())
        total, right, count = total + loss * n, right + hits * n, count + n
    return total / count, right / count


def begin(path, network):
    """Loads the weights of a checkpoint or of a GGUF file that export.py wrote; the checkpoint."""
    if path.endswith(".gguf"):
        import export

        network.load_state_dict(export.read(path, network.s))
        return {}
    state = torch.load(path, weights_only=True)
    network.load_state_dict(state["weights"])
    return state


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="build/model")
    parser.add_argument("--minutes", type=float, default=90, help="length of the run; the learning rate follows it")
    parser.add_argument("--steps", type=int, default=0, help="length of the run in steps instead")
    parser.add_argument("--tokens", type=int, default=8192, help="tokens a batch, without the prefix")
    parser.add_argument("--pool", type=int, default=10000, help="conversations sorted by length at a time")
    parser.add_argument("--data", help="folder where prepare.py has put conversations (a multiple of 10000); else they are made on the way")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--start", type=int, default=0, help="index of the first conversation")
    parser.add_argument("--matrix-rate", type=float, default=0.012)
    parser.add_argument("--vector-rate", type=float, default=0.003)
    parser.add_argument("--warmup", type=int, default=40)
    parser.add_argument("--decay", type=float, default=0.6, help="the last share of the run, over which the rate falls")
    parser.add_argument("--short", type=float, default=0.0, help="the first share of the run, in which most prompts lack the tool list (cheaper)")
    parser.add_argument("--save", type=int, default=200)
    parser.add_argument("--vocabulary", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--feed-forward", type=int, default=512)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--init", help="checkpoint or GGUF file whose weights to begin from")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out")
    parser.add_argument("--tokenizer", help="tokenizer.json to use instead of training one")
    parser.add_argument("--plain", action="store_true", help="compute with PyTorch even where fast.c could")
    arguments = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(arguments.threads)
    out = pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer_file = str(out / "tokenizer.json")
    if arguments.tokenizer:
        (out / "tokenizer.json").write_text(pathlib.Path(arguments.tokenizer).read_text())
    elif not arguments.resume:
        bpe.train(arguments.seed, 30000, arguments.vocabulary).save(tokenizer_file)
    words = Tokenizer.from_file(tokenizer_file)
    encode = lambda text: np.array(words.encode(text, add_special_tokens=False).ids)  # noqa: E731
    prefixes = [encode(prompt.prefix(i, tools)) for i, tools in enumerate(generate.SETS)]
    brief = [encode(prompt.prefix(i, ())) for i in range(len(generate.SETS))]

    sizes = model.Sizes(V=words.get_vocab_size(), D=arguments.width, L=arguments.layers, F=arguments.feed_forward)
    network = model.Decoder(sizes)
    network.start_copying(arguments.seed)
    before = begin(str(out / "checkpoint.pt") if arguments.resume else arguments.init, network) if arguments.resume or arguments.init else {}
    average = copy.deepcopy(network).to(device)
    if "raw" in before:
        network.load_state_dict(before["raw"])
    network = network.to(device)
    if not arguments.resume:
        before = {"tokens": before.get("tokens", 0), "step": before.get("step", 0)}
    if device == "cpu" and fast.available() and not arguments.plain:
        compute = fast.Fast(network, out, arguments.tokens + 2048, data.LONGEST, max(map(len, prefixes)), arguments.threads)
    else:
        compute = Plain(network, device)
    smooth = compute.flat(average) if isinstance(compute, fast.Fast) else average
    matrices = [p for name, p in network.named_parameters() if p.ndim == 2 and "embedding" not in name]
    vectors = [p for name, p in network.named_parameters() if p.ndim != 2 or "embedding" in name]
    optimizers = [
        torch.optim.Muon(matrices, lr=arguments.matrix_rate, weight_decay=0.01, adjust_lr_fn="original"),
        torch.optim.AdamW(vectors, lr=arguments.vector_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    for optimizer, state in zip(optimizers, before.get("optimizers", [])):
        optimizer.load_state_dict(state)
    peaks = [arguments.matrix_rate, arguments.vector_rate]
    print(f"{sum(p.numel() for p in network.parameters())} parameters, prefix {len(prefixes[0])} tokens, {device}, {type(compute).__name__}", flush=True)
    held = list(data.examples(tokenizer_file, arguments.seed, "heldout", 0, 400, arguments.workers))

    def save():
        state = {"weights": average.state_dict(), "raw": network.state_dict(), "optimizers": [o.state_dict() for o in optimizers], "sizes": vars(sizes), "step": before.get("step", 0) + step, "tokens": before["tokens"] + trained if before else trained, "conversations": seen, "here": step, "seconds": spent, "arguments": vars(arguments)}
        torch.save(state, out / "checkpoint.tmp")
        (out / "checkpoint.tmp").rename(out / "checkpoint.pt")

    spent, step = (before["seconds"], before["here"]) if arguments.resume else (0.0, 0)
    if arguments.resume:
        before["step"] -= step
    began, trained, seen = time.time(), 0, 0
    log = open(out / "log.jsonl", "a")
    rng = random.Random(arguments.seed + step)
    batches = stream(arguments, tokenizer_file, rng, before["conversations"] + arguments.pool if arguments.resume else arguments.start)
    progress, recent = 0.0, []
    while progress < 1:
        spent += min(60.0, time.time() - began)  # a process that is stopped for a while loses nothing of its run
        began = time.time()
        progress = step / arguments.steps if arguments.steps else spent / 60 / arguments.minutes
        seen, variant, ids, mask = next(batches)
        share = rate(step, progress, arguments.warmup, arguments.decay)
        for optimizer, peak in zip(optimizers, peaks):
            for group in optimizer.param_groups:
                group["lr"] = peak * share
        prefix = (brief if progress < arguments.short and rng.random() < 0.85 else prefixes)[variant]
        recent.append(compute(prefix, ids, mask))
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        with torch.no_grad():
            keep = min(0.99, (step + 1) / (step + 11))
            torch._foreach_lerp_(list(average.parameters()), list(network.parameters()), 1 - keep)
        trained += ids.size + len(prefix)
        step += 1
        if step % 20 == 0:
            loss, hits = np.mean(recent, 0)
            recent = []
            record = {"step": step, "progress": round(progress, 4), "loss": round(loss, 4), "accuracy": round(hits, 4), "tokens": trained, "conversations": seen, "seconds": round(spent, 1)}
            print(json.dumps(record), file=log, flush=True)
            print(record, flush=True)
        if step % arguments.save == 0 or progress >= 1:
            save()
            held_loss, held_accuracy = heldout_loss(compute, smooth, prefixes, held, arguments.tokens)
            record = {"step": step, "heldout_loss": round(held_loss, 4), "heldout_token_accuracy": round(held_accuracy, 4)}
            print(json.dumps(record), file=log, flush=True)
            print(record, flush=True)


if __name__ == "__main__":
    main()

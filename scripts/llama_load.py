"""Compares how soon alara and llama.cpp's server answer: the time from the start of the process to the first token.

    scripts/compare-llama load MODEL.gguf [-t 2] [-r 5] [--json]

Each is started in turn, A B A B ..., asked for one token as soon as it says that it is ready, and ended. The model file was read once
before, so that it is in memory. llama.cpp's server computes no token to warm up. It is built as for `compare-llama prefix`.
"""
import argparse
import json
import os
import statistics
import sys
import time

import llama_servers as servers


def main(arguments):
    parser = argparse.ArgumentParser(
        prog="compare-llama load", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="GGUF file")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-r", "--repetitions", type=int, default=5, help="alternating pairs of starts")
    parser.add_argument("--ctx", type=int, default=4096, help="tokens of a conversation")
    parser.add_argument("--chat-template", help="a Jinja file for both, instead of the model file's")
    parser.add_argument("--alara", default=str(servers.ROOT / "target/release/alara"), help="alara's binary")
    parser.add_argument("--llama-server", help="a server that is built already")
    parser.add_argument("--cc", help="the C compiler to build it with [default: clang, or the newest clang-N]")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(arguments)
    if args.repetitions < 1:
        parser.error("--repetitions: at least 1")
    for path in [args.model, args.alara]:
        if not os.path.exists(path):
            sys.exit(f"{path} is missing")
    llama = args.llama_server or servers.build(args.cc)
    commands = {
        "alara": [args.alara, "serve", "-m", args.model, "--threads", str(args.threads), "--ctx", str(args.ctx), "--parallel", "1",
                  "--cache", "off", *(["--chat-template", args.chat_template] if args.chat_template else [])],
        "llama.cpp": [llama, "-m", args.model, "-t", str(args.threads), "-c", str(args.ctx), "-np", "1", "--jinja", "--no-webui",
                      "--no-warmup", *(["--chat-template-file", args.chat_template] if args.chat_template else [])],
    }
    with open(args.model, "rb") as file:
        while file.read(1 << 24):
            pass
    times = {name: [] for name in commands}
    for _ in range(args.repetitions):
        for name, command in commands.items():
            times[name].append(start(name, command))
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    ratios = [b / a for a, b in zip(times["alara"], times["llama.cpp"])]
    if args.json:
        print(json.dumps({"model": args.model, "threads": args.threads, "seconds": times, "ratio": statistics.median(ratios)}, indent=2))
        return
    print(f"load to first token: alara {medians['alara']:.2f} s, llama.cpp {medians['llama.cpp']:.2f} s (medians of {args.repetitions}); "
          f"alara is {statistics.median(ratios):.2f} times as fast ({min(ratios):.2f} to {max(ratios):.2f})")


def start(name, command):
    """Seconds from the start of a server to its first token."""
    port = servers.free_port()
    begun = time.monotonic()
    with servers.running(name, port, [*command, "--port", str(port)]):
        model = servers.model(port) if name == "alara" else ""
        servers.post(port, {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1})
        return time.monotonic() - begun

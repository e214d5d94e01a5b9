"""Compares what the prefix caches of alara and of llama.cpp's server save: the total time of a trace of agents.

    scripts/compare-llama prefix MODEL.gguf [-t 2] [--turns 20] [--generate 24] [--skill-words 400] [--json]

Three agents that share skills ({a, b}, {a, c}, {a, b, d}) take turns, 20 each: 60 requests by HTTP, one after the other.
Both servers get the same file, threads, context and messages.
llama.cpp's has one slot an agent, to which the agent's requests are pinned.
It has flash attention or none, whichever was faster for two requests of the first agent.
The length of answers is forced: both ignore the end of a turn, and sample from the same choice of tokens.
The messages of the next request are fixed too, so that both read the same.
So neither can use again what it generated itself.

The server is built once, from the source that the Python package llama-cpp-python carries, in llama.cpp below alara's cache folder.
That takes cmake, ninja or make, and clang (gcc 12 miscompiles its AMX code).
--build builds it and measures nothing.
"""
import argparse
import json
import os
import random
import statistics
import sys
import time

import llama_servers as servers
from llama_servers import free_port, note, post

AGENTS = {"builder": "ab", "reviewer": "ac", "releaser": "abd"}
WORDS = "house the of kitchen reading because about in water and tree is with number to old".split()


def main(arguments):
    parser = argparse.ArgumentParser(
        prog="compare-llama prefix", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="GGUF file")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=20, help="requests of each agent")
    parser.add_argument("--generate", type=int, default=24, help="tokens of each answer")
    parser.add_argument("--skill-words", type=int, default=400, help="words of a skill")
    parser.add_argument("--message-words", type=int, default=40, help="words of an agent's message in a turn")
    parser.add_argument("-r", "--repetitions", type=int, default=1, help="alternating pairs of runs, each with servers that are new")
    parser.add_argument("--flash-attention", choices=["on", "off"], help="in llama.cpp [default: whichever is faster]")
    parser.add_argument("--chat-template", help="a Jinja file for both, instead of the model file's")
    parser.add_argument("--alara", default=str(servers.ROOT / "target/release/alara"), help="alara's binary")
    parser.add_argument("--llama-server", help="a server that is built already")
    parser.add_argument("--cc", help="the C compiler [default: clang, or the newest clang-N]")
    parser.add_argument("--build", action="store_true", help="build llama.cpp's server and stop")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(arguments)
    for name in ["threads", "turns", "generate", "repetitions"]:
        if getattr(args, name) < 1:
            parser.error(f"--{name}: at least 1")
    server = args.llama_server or servers.build(args.cc)
    if args.build:
        print(server)
        return
    if not args.model or not os.path.exists(args.model):
        sys.exit(f"{args.model or 'a model'} is missing: name a GGUF file")
    if not os.path.exists(args.alara):
        sys.exit(f"{args.alara} is missing: build it with `cargo build --release`")
    trace = requests(args)
    # What the longest request takes, by a generous count of tokens a word.
    longest = max(sum(len(m["content"].split()) for m in messages) for _, messages in trace)
    context = (2 * longest + 8 * args.turns + args.generate + 511) // 256 * 256
    if not args.flash_attention:
        note("llama.cpp with flash attention and without")
        short = [request for request in trace if request[0] == trace[0][0]][:2]
        seconds = {}
        for args.flash_attention in ["on", "off"]:
            seconds[args.flash_attention] = measure("llama.cpp", llama_command(server, args, context), short, args)["seconds"]
        args.flash_attention = min(seconds, key=seconds.get)
        note(f"{seconds['on']:.1f} s with it, {seconds['off']:.1f} s without")
    runs = {"alara": [], "llama.cpp": []}
    for number in range(args.repetitions):
        for name in runs:
            note(f"{name}, run {number + 1} of {args.repetitions}")
            command = alara_command(args, context) if name == "alara" else llama_command(server, args, context)
            runs[name].append(measure(name, command, trace, args))
    report(args, runs)


def requests(args):
    """The agents in turn: [(agent, messages)]."""
    def words(seed, count):
        return " ".join(random.Random(seed).choices(WORDS, k=count))

    skills = {name: f"# {name}\n\n{words(name, args.skill_words)}" for name in "abcd"}
    talks = {
        agent: [{"role": "system", "content": "\n\n".join(
            [words("context", args.skill_words // 2)] + [skills[name] for name in own] + [f"You are the {agent}."])}]
        for agent, own in AGENTS.items()
    }
    trace = []
    for turn in range(args.turns):
        for agent, talk in talks.items():
            talk.append({"role": "user", "content": words(f"{agent} {turn}", args.message_words)})
            trace.append((agent, list(talk)))
            talk.append({"role": "assistant", "content": words(f"{turn} {agent}", max(1, args.generate // 2))})
    return trace


def alara_command(args, context):
    port = free_port()
    return port, [args.alara, "serve", "-m", args.model, "--port", str(port), "--threads", str(args.threads), "--ctx", str(context),
                  "--parallel", str(len(AGENTS)), "--cache", "off",
                  *(["--chat-template", args.chat_template] if args.chat_template else [])]


def llama_command(server, args, context):
    port = free_port()
    return port, [server, "-m", args.model, "--port", str(port), "-t", str(args.threads), "-c", str(context * len(AGENTS)),
                  "-np", str(len(AGENTS)), "--jinja", "--no-webui", "-fa", args.flash_attention,
                  *(["--chat-template-file", args.chat_template] if args.chat_template else [])]


def measure(name, server, trace, args):
    port, command = server
    with servers.running(name, port, command):
        slots = {agent: slot for slot, agent in enumerate(AGENTS)}
        total, prompt, cached, firsts = 0.0, 0, 0, []
        for at, (agent, messages) in enumerate(trace):
            # The same draws on both sides: these are llama.cpp's defaults.
            body = {"messages": messages, "max_tokens": args.generate, "ignore_eos": True, "seed": 1,
                    "temperature": 1, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
            if name == "alara":
                body["model"] = servers.model(port)
            else:
                body |= {"id_slot": slots[agent], "cache_prompt": True}
            begun = time.monotonic()
            answer = post(port, body)
            spent = time.monotonic() - begun
            usage = answer["usage"]
            if usage["completion_tokens"] != args.generate:
                sys.exit(f"{name} wrote {usage['completion_tokens']} tokens instead of {args.generate}")
            total += spent
            prompt += usage["prompt_tokens"]
            cached += (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            firsts.append(spent)
            if sys.stderr.isatty():
                print(f"\r{at + 1}/{len(trace)} {total:.1f} s ", end="", file=sys.stderr)
        if sys.stderr.isatty():
            print(file=sys.stderr)
        return {"seconds": total, "prompt_tokens": prompt, "cached_tokens": cached, "first_requests": firsts[:len(AGENTS)],
                "median_request": statistics.median(firsts)}


def report(args, runs):
    medians = {name: statistics.median(run["seconds"] for run in all) for name, all in runs.items()}
    ratio = statistics.median(b["seconds"] / a["seconds"] for a, b in zip(runs["alara"], runs["llama.cpp"]))
    if args.json:
        print(json.dumps({"model": args.model, "turns": args.turns, "generate": args.generate, "skill_words": args.skill_words,
                          "message_words": args.message_words, "flash_attention": args.flash_attention, "threads": args.threads,
                          "runs": runs, "ratio": ratio}, indent=2))
        return
    print(f"{'':<12}{'total':>10}{'prompt tokens':>15}{'cached':>9}   first request of each agent, median of all")
    for name, all in runs.items():
        run = min(all, key=lambda run: abs(run["seconds"] - medians[name]))
        firsts = ", ".join(f"{spent:.1f}" for spent in run["first_requests"])
        share = run["cached_tokens"] / run["prompt_tokens"]
        print(f"{name:<12}{medians[name]:>8.1f} s{run['prompt_tokens']:>15}{share:>9.1%}   {firsts} s; {run['median_request']:.2f} s")
    print(f"alara takes 1/{ratio:.2f} of the time ({len(AGENTS) * args.turns} requests, {args.generate} tokens each, {args.threads} threads, "
          f"flash attention {args.flash_attention} in llama.cpp)")

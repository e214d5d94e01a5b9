#!/usr/bin/env python3
"""The 60-line loop: a baseline for `alara bench tasks`, with the same tasks, model and checks. Takes PyYAML.

    scripts/baseline_loop.py -m qwen3.5-4b --every 3           a third of the suite that ships
    scripts/baseline_loop.py -m MODEL SUITE -c git data --out runs/loop.jsonl
    scripts/baseline_loop.py --gold                            plays the tasks' own solutions: a test of folders and checks

A plain agent over `alara serve`: no tools, no guidance, no second look. The model answers with a block of bash,
which is run, and is told what came of it, until it writes no block any more. `solve` below is all of it.
Tasks that take members of a team or a web count as unsolved: the loop has neither.

A task's scripts and the model's commands run in namespaces of their own (`unshare`): without a network, with all but
the task's folders read-only, and none outlives its command. They can read what this user can.
--uncontained runs them without: only for a machine that one can lose.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/server"))
from served import NotServed, ask, served  # noqa: E402

SYSTEM = """You are an agent on a Linux computer. Do the user's task by running commands in bash.
Answer with one command at a time, in a block:
```bash
ls -l
```
The block is run, and you are told its output; then answer with the next one.
Only when you have seen that the task is done, answer with the word DONE and no block."""
# Small models leave the language out.
BLOCK, SHELL = re.compile(r"^```(\w*)[ \t]*\n(.*?)^```", re.DOTALL | re.MULTILINE), {"bash", "sh", "shell", ""}
COMMAND, SETUP, VERIFY = 60, 60, 30
SHOWN = 4000
# What `alara bench tasks` gives a task.
GIT_CONFIG = "[user]\n\tname = alara\n\temail = alara@example.invalid\n[init]\n\tdefaultBranch = main\n[core]\n\tfsync = none\n"
# The task's folder is all that there is of /tmp, and all that can be written.
CONTAINED = """mount --bind "$0" /tmp || exit 125
findmnt -rno TARGET | while read -r at; do [ "$at" = /tmp ] || mount -o remount,bind,ro "$at"; done 2> /dev/null
[ ! -w / ] && cd /tmp/work || exit 125
export HOME=/tmp/home TMPDIR=/tmp
ulimit -v 4194304 -f 1048576
bash -c "$1"
exit $?"""
NAMESPACES = ["unshare", "--map-root-user", "--mount", "--net", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]


def solve(task, folder, server, args):
    """The loop: how many turns and commands it took, why it ended, and what was said after the instruction."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task["instruction"]}]
    deadline, commands = time.monotonic() + args.timeout, 0
    for turn in range(1, args.turns + 1):
        left = deadline - time.monotonic()
        body = {"messages": messages, "temperature": 0, "max_tokens": args.max_tokens}
        try:
            answer = ask(server, "POST", "/v1/chat/completions", body, patience=max(left, 1))
        except TimeoutError:
            return turn, commands, "the time is up", messages[2:]
        if answer.status != 200:
            return turn, commands, f"status {answer.status}: {answer.text[:200]}", messages[2:]
        said = answer.body["choices"][0]["message"]["content"] or ""
        messages.append({"role": "assistant", "content": said})
        block = next((code for language, code in BLOCK.findall(said) if language in SHELL), None)
        if block is None:
            return turn, commands, "DONE" if "DONE" in said else "no block", messages[2:]
        commands += 1
        code, output = run(block, folder, min(COMMAND, deadline - time.monotonic()), args)
        code = f"exit code {code}" if code is not None else "killed: the time is up"
        cut = f"\n… ({len(output) - SHOWN} characters more)" if len(output) > SHOWN else ""
        messages.append({"role": "user", "content": f"{code}\n{output[:SHOWN]}{cut}"})
        if time.monotonic() > deadline:
            return turn, commands, "the time is up", messages[2:]
    return args.turns, commands, "the turns are up", messages[2:]


def run(code, folder, seconds, args):
    """Runs bash in a task's folder: its exit code, `None` if it was killed, and what it printed."""
    command = ["bash", "-c", code] if args.uncontained else [*NAMESPACES, "bash", "-c", CONTAINED, folder, code]
    environment = {"PATH": os.environ["PATH"], "LANG": os.environ.get("LANG", "C.UTF-8"), "HOME": folder / "home"}
    # A file: whoever prints without end must not fill the memory here.
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, cwd=folder / "work", env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=output, start_new_session=True)
        try:
            code = process.wait(max(seconds, 1))
        except subprocess.TimeoutExpired:
            code = None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        output.seek(0)
        return code, output.read(1 << 20).decode(errors="replace").strip()


def attempt(task, server, args):
    """One task, from its setup to its check."""
    record = {"task": task["id"], "category": task["category"], "solved": False, "turns": 0, "commands": 0, "seconds": 0.0}
    if task.get("jinxes") or task.get("delegates"):
        return record | {"ended": "takes tools that the loop lacks"}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = pathlib.Path(name)
        (folder / "work").mkdir()
        (folder / "home").mkdir()
        (folder / "home/.gitconfig").write_text(GIT_CONFIG)
        code, output = run(task.get("setup") or "", folder, SETUP, args)
        if code != 0:
            return record | {"error": f"the setup failed: {output}"}
        began = time.monotonic()
        try:
            if not args.gold:
                record["turns"], record["commands"], record["ended"], record["said"] = solve(task, folder, server, args)
            elif isinstance(task["gold"], str):
                record["commands"], record["ended"] = 1, f"exit code {run(task['gold'], folder, COMMAND, args)[0]}"
            else:
                record["ended"] = "the gold solution is no bash"
        except OSError as error:
            return record | {"error": f"the server is gone: {error}"}
        record["seconds"] = round(time.monotonic() - began, 3)
        code, output = run(task["verify"], folder, VERIFY, args)
        if code is None:
            return record | {"error": f"the check did not end within {VERIFY} seconds"}
        return record | {"solved": code == 0, "reason": "" if code == 0 else output[:500]}


def suite(args):
    """The tasks that were asked for, in the suite's order."""
    tasks = [yaml.safe_load(path.read_text()) for path in sorted(args.suite.glob("*/*.yaml"))]
    unknown = set(args.task or []) - {task["id"] for task in tasks}
    if unknown:
        sys.exit(f"{args.suite} has no such task: {', '.join(sorted(unknown))}")
    tasks = [task for task in tasks if not args.category or task["category"] in args.category]
    return [task for task in tasks if not args.task or task["id"] in args.task][::args.every]


def table(records):
    """Prints what came of the tasks, by category and in all."""
    rows = collections.defaultdict(list)
    for record in records:
        rows[record["category"]].append(record)
    print(f"{'category':<12}{'tasks':>7}{'solved':>8}{'errors':>8}{'commands':>10}{'task time':>12}")
    for name, row in [*rows.items(), ("all", records)]:
        solved, errors = sum(r["solved"] for r in row), sum("error" in r for r in row)
        commands, seconds = sum(r["commands"] for r in row), sum(r["seconds"] for r in row)
        print(f"{name:<12}{len(row):>7}{solved:>8}{errors:>8}{commands:>10}{seconds:>10.1f} s")


def work(tasks, server, args):
    records = []
    for number, task in enumerate(tasks, 1):
        record = attempt(task, server, args)
        records.append(record)
        if args.out:
            with args.out.open("a") as file:
                print(json.dumps(record), file=file)
        verdict = "error" if "error" in record else "solved" if record["solved"] else "failed"
        why = record.get("error") or f"{record['ended']}; {record.get('reason', '')}".removesuffix("; ")
        print(f"{number}/{len(tasks)}  {record['task']:<16} {verdict}  turns {record['turns']}, commands {record['commands']}, "
              f"{record['seconds']:.1f} s  {(why.splitlines() or [''])[0][:160]}", file=sys.stderr, flush=True)
    table(records)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", nargs="?", type=pathlib.Path, default=ROOT / "benches/tasks",
                        help="a folder of tasks [default: the one that ships]")
    parser.add_argument("--alara", type=pathlib.Path, default=ROOT / "target/release/alara", help="the binary")
    parser.add_argument("-m", "--model", help="a file or a name, as `alara serve` takes it [default: the one that ships]")
    parser.add_argument("-c", "--category", nargs="+", help="only tasks of these categories")
    parser.add_argument("--task", nargs="+", metavar="ID", help="only these tasks")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every Nth of them, from the first on")
    parser.add_argument("--turns", type=int, default=12, help="most answers of the model a task [12]")
    parser.add_argument("--max-tokens", type=int, default=1024, help="most tokens of one answer [1024]")
    parser.add_argument("--timeout", type=float, default=360, help="seconds a task, as in `alara bench tasks` [360]")
    parser.add_argument("--out", type=pathlib.Path, help="where each task's record is put, a JSON object a line")
    parser.add_argument("--list", action="store_true", help="print the ids of these tasks, and run nothing")
    parser.add_argument("--gold", action="store_true", help="play the gold solutions that are bash instead of asking a model")
    parser.add_argument("--uncontained", action="store_true", help="run commands as this user, with all its rights")
    args = parser.parse_args()
    if args.every < 1 or args.turns < 1:
        parser.error("--every and --turns: at least 1")
    tasks = suite(args)
    if args.list:
        print(*(task["id"] for task in tasks))
        return
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text("")
    with tempfile.TemporaryDirectory() as probe:
        (pathlib.Path(probe) / "work").mkdir()
        if not args.uncontained and (not shutil.which("unshare") or run("true", pathlib.Path(probe), 20, args)[0] != 0):
            sys.exit("`unshare` can't wall commands off here; --uncontained runs them without, where nothing can be lost")
    if args.gold:
        work(tasks, None, args)
        return
    model = str(pathlib.Path(args.model).resolve()) if args.model and os.path.exists(args.model) else args.model
    try:
        with served(args.alara, "--any-model", "--parallel", "1", *(["-m", model] if model else [])) as server:
            work(tasks, server, args)
    except (NotServed, FileNotFoundError) as error:
        sys.exit(f"{args.alara}: {error}")


if __name__ == "__main__":
    # What was started ends with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()

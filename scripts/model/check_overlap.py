"""No eight consecutive words of a benchmark instruction may occur in the training text.

    python scripts/model/check_overlap.py                       checks benches/tasks against every training conversation
    python scripts/model/check_overlap.py --sample 20           checks one conversation in twenty (for a quick look)
    python scripts/model/check_overlap.py --leave-out           notes conversations with an overlap in left_out.txt

Conversations of left_out.txt ("seed index" a line) are in no training data, and not checked.

The training text is made again from the seeded generator: each conversation index that models/alara-tiny.md's training used
(RANGES below), and the static prompt files. Words are runs of letters and digits, lower case, punctuation dropped. Exits 1
on an overlap and names the words. Standard library only.
"""

import argparse
import multiprocessing
import pathlib
import re
import sys

import generate

ROOT = pathlib.Path(__file__).resolve().parents[2]
LENGTH = 8
# (seed, first index, index after the last) of the conversations that models were trained on.
RANGES = [(3, 0, 80_000)]


def words(text):
    return re.findall(r"[^\W_]+", text.lower())


def grams(text):
    run = words(text)
    return {tuple(run[i : i + LENGTH]) for i in range(len(run) - LENGTH + 1)}


def unquoted(text):
    """A YAML scalar on one line, without its quotes."""
    if text[:1] == '"':
        return text.strip('"').replace('\\"', '"').replace("\\n", "\n").replace("\\t", "\t")
    return text.strip("'").replace("''", "'")


def instruction_of(task):
    """The value of the key `instruction` at the top level of a task file: plain, quoted or a block."""
    lines, out, inside = task.split("\n"), [], False
    for line in lines:
        if inside and line and not line[0].isspace():
            break
        if inside:
            out.append(line.strip())
        elif line.startswith("instruction:"):
            inside = True
            first = line[len("instruction:") :].strip()
            out.append("" if re.fullmatch(r"[|>][+-]?\d*", first) else first)
    return unquoted("\n".join(out).strip())


def overlap(job):
    """The shared word runs of one range of conversations."""
    wanted, seed, start, stop, step = job
    found = {}
    for index in range(start, stop, step):
        tools = generate.SETS[generate.variant_of(seed, "train", index)]
        text = "".join(text for text, _ in generate.body(generate.conversation(seed, "train", index, tools)))
        # The texts inside JSON strings carry \\n for a line break; it must not glue to the word behind it.
        if (seed, index) in generate.LEFT_OUT:
            continue
        for gram in wanted & grams(text.replace("\\n", " ")):
            found.setdefault(gram, []).append((seed, index))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=ROOT / "benches/tasks", type=pathlib.Path)
    parser.add_argument("--sample", type=int, default=1, help="check one conversation in so many")
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--leave-out", action="store_true", help="write conversations with an overlap to left_out.txt")
    arguments = parser.parse_args()

    wanted, count = set(), 0
    for file in sorted(arguments.tasks.rglob("*.y*ml")):
        text = instruction_of(file.read_text())
        if not text:
            sys.exit(f"{file}: no instruction found; a suite that can't be read can't be checked")
        wanted |= grams(text)
        count += 1
    if not count:
        sys.exit(f"{arguments.tasks}: no tasks found")

    found = {}
    for file in [*ROOT.glob("teams/alara/*.npc"), *ROOT.glob("jinxes/core/*.jinx"), ROOT / "scripts/model/chat_template.jinja"]:
        for gram in wanted & grams(file.read_text()):
            found[gram] = [str(file.relative_to(ROOT))]
    chunk = 2000 * arguments.sample
    jobs = [(wanted, seed, i, min(i + chunk, stop), arguments.sample) for seed, start, stop in RANGES for i in range(start, stop, chunk)]
    with multiprocessing.Pool(arguments.workers) as pool:
        for part in pool.imap_unordered(overlap, jobs):
            for gram, places in part.items():
                found.setdefault(gram, []).extend(places)

    total = sum(len(range(start, stop, arguments.sample)) for _, start, stop in RANGES)
    print(f"{count} instructions, {len(wanted)} runs of {LENGTH} words, {total} training conversations: {len(found)} overlaps")
    for gram, place in sorted(found.items()):
        print(f"  {' '.join(gram)}   {place}")
    if arguments.leave_out:
        more = {place for places in found.values() for place in places if isinstance(place, tuple)}
        generate.LEFT_OUT_FILE.write_text("".join(f"{seed} {index}\n" for seed, index in sorted(generate.LEFT_OUT | more)))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()

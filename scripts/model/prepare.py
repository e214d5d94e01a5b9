"""Makes conversations ahead of the training, as tokens, in files of 10000.

    python scripts/model/prepare.py --out build/data --count 400000
"""

import argparse
import pathlib

import data

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--out", default="build/data")
parser.add_argument("--tokenizer", default=str(pathlib.Path(__file__).with_name("tokenizer.json")))
parser.add_argument("--seed", type=int, default=3)
parser.add_argument("--start", type=int, default=0)
parser.add_argument("--count", type=int, default=400_000)
arguments = parser.parse_args()
pathlib.Path(arguments.out).mkdir(parents=True, exist_ok=True)
for start in range(arguments.start, arguments.start + arguments.count, data.SHARD):
    data.prepare(arguments.tokenizer, arguments.out, arguments.seed, "train", start)
    print(start + data.SHARD, flush=True)

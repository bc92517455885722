#!/usr/bin/env python3
"""Two builds beside each other: python3 bench/compare_builds.py OLD/bin NEW/bin [--devices cuda:0] [--rounds 5]

Trains the same recipes by turns with both, so that a machine whose speed changes meanwhile favours neither; prints the
median step of each (of the rounds the fastest), their quotient (goal: at most 1.03), and whether the digests are equal. Exit 1 if one is not.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

RECIPES = {"cuda": [("tiny", ["--steps", "3000"]), ("tiny, one shard", ["--steps", "3000", "--set", "shards=1"]),
                    ("web-agent", ["--steps", "6000", "--set", "agent=analysis"]), ("web-agent", ["--steps", "6000", "--set", "agent=all"])],
           "cpu": [("tiny", ["--steps", "600"]), ("web-agent", ["--steps", "600", "--set", "agent=analysis"]), ("tiny-rl", ["--steps", "400"])]}


def train(program, folder, recipe, args, devices):
    command = [program / "tandem", "train", recipe.split(",")[0], "--seed", "7", "--json", "--devices", devices, *args]
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(map(str, command))} ended with {done.returncode}\n{done.stderr[-800:]}")
    output = json.loads(done.stdout)
    lines = (pathlib.Path(folder) / output["dir"] / "metrics.jsonl").read_text().splitlines()
    seconds = [json.loads(line)["seconds"] for line in lines]
    return output["digest"], 1e6 * statistics.median(seconds[len(seconds) // 5:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--devices", default="cuda:0")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    equal = True
    with tempfile.TemporaryDirectory(prefix="tandem-compare-") as folder:
        for recipe, args in RECIPES[options.devices.split(":")[0]]:
            seen, digests = {"old": [], "new": []}, set()
            for turn in range(options.rounds):
                order = ["old", "new"] if turn % 2 == 0 else ["new", "old"]
                for which in order:
                    digest, microseconds = train(getattr(options, which).resolve(), folder, recipe, args, options.devices)
                    digests.add(digest)
                    seen[which].append(microseconds)
            old, new = (min(seen[which]) for which in ("old", "new"))
            equal = equal and len(digests) == 1
            print(f"{recipe} {' '.join(args)}: old {old:.1f} us, new {new:.1f} us, {new / old:.3f} x, "
                  f"{'one digest' if len(digests) == 1 else 'DIGESTS DIFFER'}", flush=True)
    sys.exit(not equal)


if __name__ == "__main__":
    main()

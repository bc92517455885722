#!/usr/bin/env python3
"""`tandem explain` on planted slow-downs: real runs on CPU workers, each slowed in one way, and healthy ones beside them.

    bench/explain_score.py <folder with tandem and tandem-worker> [--seed 5] [--only loader,healthy] [--seconds 4.5] [--json FILE]

Seven kinds of slow-downs and health; sizes, recipes, numbers of workers and how bad it is are drawn from the seed. The
thresholds of src/explain come from reasoning (docs/explain.md); seeds that were looked at while rules were made are named
there, and others are scored. A case is right when the first cause that is named is the planted one, or none for a healthy
run. On a machine that is not quiet explain may say `crowded` first; how many are right apart from that is printed, too. Fake
machines (docs/testing.md) play the GPUs: CPU worker i stands for GPU i.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

KINDS = {"loader": 6, "imbalance": 6, "throttling": 6, "small-batch": 6, "communication": 6, "launches": 5, "idle": 5, "healthy": 8}
RUN_SECONDS = 4.5
CLOCK = 4  # how fast the fake machine's time runs
# Workers that rest half of their time keep their speed while others take turns on the cores (engine/slow_worker.h).
BASE = 0.5


class Shape:
    """A run of `tiny` whose step is arithmetic: wide layers, full rows."""

    def __init__(self, rng, workers, pieces=1, hidden=None, rows=None):
        self.workers, self.pieces = workers, pieces
        self.hidden = hidden or rng.choice([384, 448, 512, 640])
        self.rows = rows or rng.choice([64, 96, 128])  # of a shard
        self.features, self.classes = 64, 10
        self.shards = workers * pieces
        self.recipe = "tiny"

    def weights(self):
        return self.hidden * (self.features + self.hidden + self.classes)

    def piece_seconds(self, rate, speed=BASE):
        return 6 * self.rows * self.weights() / rate[min(self.workers, 2)] / speed

    def arguments(self):
        return ["--set", f"hidden={self.hidden}", "--set", f"features={self.features}", "--set", f"samples={max(4000, self.rows * self.shards * 8)}",
                "--set", f"shards={self.shards}", "--batch-size", str(self.rows * self.shards)]


class Case:
    def __init__(self, kind, text, arguments, devices, env=None, machine=None, recipe="tiny"):
        self.kind, self.text, self.arguments, self.devices = kind, text, arguments, devices
        self.env, self.machine, self.recipe = env or {}, machine, recipe


def slots(workers, speeds=None):
    return f"cpu:{workers}@{','.join(f'{s:.3g}' for s in speeds or [BASE] * workers)}"


def whole_cores(workers):
    return f"cpu:{workers}"


def gpus(count, busy, events=()):
    return {"clock": {"speed": CLOCK}, "gpus": [{"card": "3070", "load": 0.9 if i < busy else 0} for i in range(count)],
            "events": list(events)}


def plant_loader(rng, rate):
    workers, threads, share = rng.choice([1, 1, 2]), rng.choice([0, 1, 1, 2]), rng.uniform(0.35, 0.85)
    shape = Shape(rng, workers)
    used = 1.4 * shape.piece_seconds(rate)  # with the update, the meeting and the rest of a step, which loading hides behind
    ms = 1e3 * max(threads, 1) * used * (share / (1 - share) if threads == 0 else 1 / (1 - share))
    return Case("loader", f"{workers} workers, {threads} threads, {ms:.0f} ms a batch", [*shape.arguments(), "--loader-threads", str(threads)],
                slots(workers), {"TANDEM_SLOW_LOADER": f"{ms:.2f}"})


def plant_imbalance(rng, rate):
    workers = rng.choice([2, 2, 3])
    share = rng.uniform(0.33, 0.44) if workers == 2 else rng.uniform(0.35, 0.55)
    ratio = 1 - share * workers / (workers - 1)  # all but the slow one wait
    speeds = [BASE] * workers
    speeds[rng.randrange(workers)] = BASE * ratio
    if rng.random() < 0.3:
        return Case("imbalance", f"web-agent, {workers} slots, one at {ratio:.2f}", ["--set", f"shards={workers}", "--batch-size", str(64 * workers), "--set", "capacity=12000"],
                    slots(workers, speeds), recipe="web-agent")
    return Case("imbalance", f"{workers} slots, one at {ratio:.2f}", Shape(rng, workers).arguments(), slots(workers, speeds))


def plant_throttling(rng, rate):
    workers = rng.choice([1, 1, 2, 2, 3])
    who, (bits, slow) = rng.randrange(workers), rng.choice([(8, 0.5), (64, 0.5), (128, 0.5), (72, 0.5), (32, 0.85)])
    if workers > 1 and bits == 32:
        bits, slow = 64, 0.5  # one GPU of several at 85 % is 8 % of the step: not worth naming
    speeds = [BASE] * workers
    speeds[who] *= slow
    return Case("throttling", f"{workers} GPUs, GPU {who} throttled (bits {bits})", [*Shape(rng, workers).arguments(), "--guard", "watch"],
                slots(workers, speeds), machine=gpus(workers, workers, [{"at": 0, "gpu": who, "throttle": bits}]))


def plant_small_batch(rng, rate):
    workers, rows, hidden = rng.choice([1, 1, 2]), rng.choice([2, 2, 4, 8]), rng.choice([16, 32, 64, 128])
    if rng.random() < 0.25:
        return Case("small-batch", f"tiny-rl, {rows} rows for each of {workers}",
                    ["--set", f"shards={workers}", "--batch-size", str(rows * workers), "--set", f"hidden={hidden}"], whole_cores(workers), recipe="tiny-rl")
    shape = Shape(rng, workers, hidden=hidden, rows=rows)
    return Case("small-batch", f"{rows} rows for each of {workers}, hidden {hidden}", shape.arguments(), whole_cores(workers))


def plant_communication(rng, rate):
    workers, share = rng.choice([2, 2, 3]), rng.uniform(0.35, 0.8)
    shape = Shape(rng, workers)
    used = shape.piece_seconds(rate)
    megabytes = 2 * (workers - 1) / workers * 4e-6 * shape.weights()
    link = megabytes / (used * share / (1 - share))
    return Case("communication", f"{workers} workers over {link:.0f} MB/s", shape.arguments(), slots(workers), {"TANDEM_SLOW_LINK": f"{link:.3f}"})


def plant_launches(rng, rate):
    workers = rng.choice([1, 2])
    how = rng.choice(["shards", "pieces", "slow"])
    if how == "slow":
        shape = Shape(rng, workers)
        us = rng.uniform(1.5, 4) * 1e6 * shape.piece_seconds(rate, 1) / 250  # operations of a piece
        return Case("launches", f"{workers} workers, an operation costs {us:.0f} us more", shape.arguments(), whole_cores(workers),
                    {"TANDEM_SLOW_OPERATIONS": f"{us:.1f}"})
    pieces, rows, hidden = rng.choice([24, 32, 48]), rng.choice([2, 4]), rng.choice([16, 32, 64])
    shape = Shape(rng, workers, pieces, hidden, rows)
    if how == "pieces":
        return Case("launches", f"{workers} workers, {pieces} pieces of {rows} rows, hidden {hidden}",
                    ["--set", f"hidden={hidden}", "--set", "features=64", "--set", "samples=4000", "--set", f"shards={workers}", "--batch-size",
                     str(rows * pieces * workers), "--accumulation", str(pieces)], whole_cores(workers))
    return Case("launches", f"{workers} workers, {pieces} shards of {rows} rows each, hidden {hidden}", shape.arguments(), whole_cores(workers))


def plant_idle(rng, rate):
    there = rng.choice([2, 2, 3, 4])
    busy = rng.randrange(1, min(there, 3))
    return Case("idle", f"{there} GPUs, the run on {busy}", Shape(rng, busy, rng.choice([1, 2])).arguments(), slots(busy),
                machine=gpus(there, busy))


def plant_healthy(rng, rate):
    workers = rng.choice([1, 2])
    shape = Shape(rng, workers, rng.choice([1, 2, 4]))
    how = rng.choice(["plain", "cards", "loader", "slot", "link", "plain"])
    piece = shape.piece_seconds(rate)
    env, machine, speeds = {}, None, None
    if how == "cards":
        machine = gpus(workers, workers)
    if how == "loader":
        env = {"TANDEM_SLOW_LOADER": f"{400 * piece:.2f}"}  # less than half of what a piece takes
    if how == "slot" and workers == 2:
        speeds = [BASE, 0.88 * BASE]
    if how == "link" and workers == 2:
        env = {"TANDEM_SLOW_LINK": f"{4e-6 * shape.weights() / (0.06 * piece * shape.pieces):.2f}"}
    return Case("healthy", f"{how}, {workers} workers, {shape.pieces} shards each, hidden {shape.hidden}", shape.arguments(), slots(workers, speeds), env, machine)


PLANT = {"loader": plant_loader, "imbalance": plant_imbalance, "throttling": plant_throttling, "small-batch": plant_small_batch,
         "communication": plant_communication, "launches": plant_launches, "idle": plant_idle, "healthy": plant_healthy}


class Scorer:
    def __init__(self, folder, seconds=RUN_SECONDS):
        self.bin = pathlib.Path(folder).resolve()
        self.seconds = seconds
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="tandem-explain-"))

    def close(self):
        shutil.rmtree(self.dir, ignore_errors=True)

    def tandem(self, *args, env=None, codes=(0,)):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("TANDEM_", "CUDA_VISIBLE"))}
        done = subprocess.run([self.bin / "tandem", *map(str, args)], cwd=self.dir, capture_output=True, text=True,
                              env={**clean, "NO_COLOR": "1", **(env or {})}, stdin=subprocess.DEVNULL)
        if done.returncode not in codes:
            raise RuntimeError(f"{args}: code {done.returncode}\n{done.stderr}")
        return done

    def environment(self, case, name):
        env = dict(case.env)
        if case.machine:
            script = self.dir / f"{name}.json"
            script.write_text(json.dumps(case.machine))
            env.update({"TANDEM_NVML": str(self.bin.parent / "tests" / "libfake_nvml.so"), "FAKE_NVML_SCRIPT": str(script),
                        "TANDEM_STATE_DIR": str(self.dir / "state"), "TANDEM_GUARD_SPEED": str(CLOCK), "TANDEM_GUARD_CPU_SLOTS": "1"})
        return env

    def train(self, case, name, *until, code):
        return self.tandem("train", case.recipe, *case.arguments, "--devices", case.devices, *until, "--checkpoint-every", "never",
                           "--run-dir", name, "-q", "--json", env=self.environment(case, name), codes=(code,))

    def explain(self, name):
        found = self.tandem("explain", name, "--json", codes=(0, 2))
        reply = json.loads(found.stdout) if found.returncode == 0 else {"enough": False, "findings": [], "shares": {}, "steps": 0}
        shutil.rmtree(self.dir / name, ignore_errors=True)
        return reply

    def run(self, case, name):
        for seconds in (self.seconds, 3 * self.seconds):  # longer where it was too short to judge
            done = self.train(case, name, "--steps", 100000, "--max-time", f"{seconds}s", code=75)
            reply = self.explain(name)
            if reply["enough"]:
                break
        return json.loads(done.stdout), reply

    def run_steps(self, case, name, steps):
        """However long they take here."""
        self.train(case, name, "--steps", steps, code=0)
        return self.explain(name)

    def rate(self):
        """Arithmetic a second of a worker here, alone and beside others, by healthy runs at full speed."""
        rates = {}
        for workers in (1, 2):
            shape = Shape(random.Random(0), workers, hidden=512, rows=96)
            _, reply = self.run(Case("healthy", "", shape.arguments(), f"cpu:{workers}"), "rate")
            rates[workers] = 6 * shape.rows * shape.weights() / (reply["step_seconds"] * reply["shares"]["compute"])
        return rates


def named(reply, apart_from=()):
    causes = [found["cause"] for found in reply["findings"] if found["cause"] not in apart_from]
    return causes[0] if causes else "healthy" if reply["enough"] else "too few steps"


def cases(seed, rate, counts):
    out = []
    for kind, count in counts.items():
        rng = random.Random(f"{seed} {kind}")
        out += [PLANT[kind](rng, rate) for _ in range(count)]
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--only")
    parser.add_argument("--json")
    parser.add_argument("--seconds", type=float, default=RUN_SECONDS)
    options = parser.parse_args()
    scorer = Scorer(options.bin, options.seconds)
    begin = time.monotonic()
    right, apart = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0)
    rows = []
    try:
        rate = scorer.rate()
        print(f"a worker here: {rate[1] / 1e9:.0f} Gflop/s alone, {rate[2] / 1e9:.0f} beside another; seed {options.seed}")
        counts = {k: n for k, n in KINDS.items() if not options.only or k in options.only.split(",")}
        for number, case in enumerate(cases(options.seed, rate, counts)):
            _, reply = scorer.run(case, f"case-{number}")
            verdict = named(reply)
            right[case.kind] += verdict == case.kind
            apart[case.kind] += named(reply, ('crowded',)) == case.kind
            shares = " ".join(f"{k} {100 * v:.0f}" for k, v in sorted(reply["shares"].items(), key=lambda kv: -kv[1]) if v >= 0.02)
            print(f"{'ok  ' if verdict == case.kind else 'MISS'} {case.kind:<14} {verdict:<14} {case.text}  [{reply['steps']:.0f} steps: {shares}]", flush=True)
            rows.append({"planted": case.kind, "named": verdict, "case": case.text, **reply})
    finally:
        scorer.close()
    planted = sum(n for k, n in counts.items() if k != "healthy")
    score = sum(n for k, n in right.items() if k != "healthy")
    print(f"planted slow-downs named right: {score} of {planted}; healthy runs called healthy: {right['healthy']} of {counts.get('healthy', 0)}; "
          f"{time.monotonic() - begin:.0f} s")
    print(f"apart from `crowded`: {sum(n for k, n in apart.items() if k != 'healthy')} of {planted}; {apart['healthy']} of {counts.get('healthy', 0)}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1))
    return 0 if score >= planted * 0.95 and right["healthy"] == counts.get("healthy", 0) else 1


if __name__ == "__main__":
    sys.exit(main())

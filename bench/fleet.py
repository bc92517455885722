#!/usr/bin/env python3
"""How fast many workers are, and how fast they get over a fault: python3 bench/fleet.py <folder with tandem> [--quick]

Every figure is a ratio or a time taken in this run, after equal digests. Targets stand beside them.
"""
import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import tempfile
import time

# Compute-bound: 256 rows a shard; a step of one worker takes about 50 ms and 280 ms.
HEAVY = ["--set", "hidden=256", "--set", "samples=12288", "--batch-size", "6144", "--checkpoint-every", "never",
         "--loader-threads", "0"]
HEAVIER = [*HEAVY, "--set", "hidden=768"]


def run(tandem, *args, env=None):
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
        done = subprocess.run([tandem, *map(str, args), "--json"], cwd=folder, capture_output=True, text=True,
                              env={**os.environ, **(env or {})})
        assert done.returncode == 0, done.stderr
        reply = json.loads(done.stdout)
        reply["records"] = [json.loads(line) for line in (pathlib.Path(reply["dir"]) / "metrics.jsonl").read_text().splitlines()]
        reply["events"] = [json.loads(line) for line in (pathlib.Path(reply["dir"]) / "events.jsonl").read_text().splitlines()]
        return reply


def step_seconds(runs, skip=15):
    """The median step of several runs, after the first ones: neighbours on the machine come and go."""
    return statistics.median(record["seconds"] for reply in runs for record in reply["records"][skip:])


def show(name, value, target):
    print(f"{name:<66} {value:>14}   target {target}", flush=True)


def in_turn(tandem, steps, rounds, *devices, size=HEAVY, skip=15):
    """Runs on each of these devices, in turn, so that a busy moment strikes all of them."""
    runs = {device: [] for device in devices}
    for _ in range(rounds):
        for device in devices:
            runs[device].append(run(tandem, "train", "tiny", *size, "--steps", steps, "--devices", device))
    assert len({reply["digest"] for many in runs.values() for reply in many}) == 1, "equal results first"
    return {device: step_seconds(many, skip) for device, many in runs.items()}


def speedup(tandem, steps, rounds):
    counts = [count for count in (1, 2, 4) if count <= (os.cpu_count() or 1)]
    for name, size, few in (("280 ms a step", HEAVIER, 25), ("50 ms a step", HEAVY, steps)):
        seconds = in_turn(tandem, few, rounds, *(f"cpu:{count}" for count in counts), size=size)
        for count, target in ((2, ">= 1.8"), (4, "-")):
            if count in counts:
                show(f"{count} workers against one, {name}", f"{seconds['cpu:1'] / seconds[f'cpu:{count}']:.2f}x", target)


def slots(tandem, steps, rounds):
    """Long steps: a step of several workers waits for the slowest, and on short ones the machine's own jitter is all one sees."""
    seconds = in_turn(tandem, steps, rounds, "cpu:1", "cpu:1@0.5", "cpu:1@0.25", "cpu:3@1,0.5,0.25", size=HEAVIER, skip=4)
    mixed = seconds.pop("cpu:3@1,0.5,0.25")
    show("slots 1 : 0.5 : 0.25, share of the summed solo throughput",
         f"{100 / mixed / sum(1 / s for s in seconds.values()):.1f} %", ">= 92 %")


def gives_rank_1_less(event):
    shares = re.search(r"on 2 workers: (\d+) (\d+)", event["text"])
    return shares and int(shares[2]) <= 9  # a half-speed worker's part of 24 is 8


def slowdown(tandem, steps):
    reply = run(tandem, "train", "tiny", *HEAVY, "--steps", steps, "--devices", "cpu:2", env={"TANDEM_SLOW": "1:40:0.5"})
    plans = [e for e in reply["events"] if e["kind"] == "plan" and e["step"] >= 40 and gives_rank_1_less(e)]
    show("steps from a 2x slowdown to a plan that follows it", plans[0]["step"] - 40 if plans else "never", "<= 20")


def faults(tandem, times):
    named, resumed, stateful = [], [], []
    for recipe, quick, went_on in (("tiny", ["--set", "hidden=64"], resumed), ("tiny-rl", [], stateful)):
        for _ in range(times):
            with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
                run_dir = pathlib.Path(folder) / "run"
                process = subprocess.Popen([tandem, "train", recipe, *quick, "--steps", "10000000", "--devices", "cpu:3", "--run-dir", run_dir],
                                           stderr=subprocess.PIPE, text=True, stdout=subprocess.DEVNULL)
                for line in process.stderr:
                    if line.startswith("exact"):
                        break
                time.sleep(2.5)
                workers = [int(p) for p in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
                os.kill(workers[1], signal.SIGKILL)
                at, wall = time.monotonic(), time.time()
                for line in process.stderr:
                    if "rank 1 (cpu:1)" in line:
                        named.append(time.monotonic() - at)
                        break
                time.sleep(1.5)
                process.send_signal(signal.SIGINT)
                process.communicate()
                records = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
                went_on.append(next(r["t"] for r in records if r["t"] > wall + named[-1]) - wall)
    show("a kill is named after (median, worst)", f"{1e3 * statistics.median(named):.0f}, {1e3 * max(named):.0f} ms", "<= 200 ms")
    show("stateless: the next step is recorded after", f"{1e3 * statistics.median(resumed):.0f}, {1e3 * max(resumed):.0f} ms", "<= 1 s")
    show("stateful: the first new step is recorded after", f"{1e3 * statistics.median(stateful):.0f}, {1e3 * max(stateful):.0f} ms",
         "<= 1 s + 2 s of work")


def joining(tandem):
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
        run_dir = pathlib.Path(folder) / "run"
        process = subprocess.Popen([tandem, "train", "tiny", "--steps", "10000000", "--devices", "cpu:1", "--run-dir", run_dir],
                                   stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        for line in process.stderr:
            if line.startswith("exact"):
                break
        at = time.monotonic()
        subprocess.run([tandem, "join", run_dir, "--devices", "cpu:1"], check=True, capture_output=True)
        for line in process.stderr:
            if "on 2 workers" in line:
                show("a joiner computes after", f"{time.monotonic() - at:.2f} s", "<= 5 s")
                break
        process.send_signal(signal.SIGINT)
        process.communicate()


def snapshots(tandem, seconds):
    for recipe in ("tiny", "tiny-rl"):
        with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
            done = subprocess.run([tandem, "train", recipe, "--steps", "100000000", "--max-time", f"{seconds}s", "--devices", "cpu:2", "--json"],
                                  cwd=folder, capture_output=True, text=True)
            reply = json.loads(done.stdout)
            show(f"snapshots of {recipe}, share of the run time", f"{100 * reply['snapshot_share']:.3f} %", "<= 1 %")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    tandem = options.bin.resolve() / "tandem"
    steps = 60 if options.quick else 80
    rounds = 2 if options.quick else 4
    speedup(tandem, 40, rounds)
    slots(tandem, 16, rounds)
    slowdown(tandem, max(steps, 100))
    joining(tandem)
    snapshots(tandem, 5 if options.quick else 10)
    faults(tandem, 2 if options.quick else 6)


if __name__ == "__main__":
    main()

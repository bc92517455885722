#!/usr/bin/env python3
"""bench/forecast_error.py -- how far `tandem plan` is from what comes: time and memory on 1, 2, 3 and 4 slots.

    python3 bench/forecast_error.py build/bin [--recipes tiny tiny-rl web-agent] [--slots 4] [--speed 0.45] [--rounds 3] [--seconds 20]
    python3 bench/forecast_error.py build/bin --devices cuda:0 --batches 128 256 512

For each recipe: one calibration (at most 60 s, on the first slot and the first two), then on the first 1, 2, ... slots (and for
each batch) real runs of about --seconds, whole commands timed from start to end, against what the plan said before any of them. The
median of --rounds runs counts. A machine with fewer cores than slots plays them with slots slowed to --speed, each on a core by
name, so that they fit: "cpu:4@0.45/0,0.45/1,0.45/0,0.45/1". Ends with 1 if a time is off by more than 10 %, or a memory below the
truth or more than 15 % above it. Other work on the machine spoils it: the load is printed.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

SETTINGS = {"tiny": [], "tiny-rl": [], "web-agent": ["--set", "capacity=200000", "--set", "learning_starts=4000"],
            "dqn": ["--env", "gym:CartPole-v1"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--recipes", nargs="+", default=["tiny", "tiny-rl", "web-agent"])
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--speed", type=float, default=0.45)
    parser.add_argument("--devices", help="these instead of slots: cuda:0, or cuda:0,cuda:1")
    parser.add_argument("--batches", type=int, nargs="+", default=[])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    tandem = arguments.bin.resolve() / "tandem"
    work = pathlib.Path(tempfile.mkdtemp(prefix="tandem-forecast-"))
    # A cache of its own: the plan must not know the runs that it is judged by.
    environment = {**os.environ, "XDG_CACHE_HOME": str(work / "cache"), "NO_COLOR": "1"}

    def run(*words, quiet=True):
        done = subprocess.run([tandem, *map(str, words)], cwd=work, env=environment, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE if quiet else None, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            sys.exit(f"{words}: code {done.returncode}\n{done.stderr}")
        return json.loads(done.stdout)

    cores = sorted(os.sched_getaffinity(0))
    if arguments.devices:
        names = arguments.devices.split(",")
        lists = [",".join(names[:n + 1]) for n in range(len(names))]
    else:
        slots = [f"{arguments.speed:g}/{cores[i % len(cores)]}" for i in range(arguments.slots)]
        lists = [f"cpu:{n + 1}@{','.join(slots[:n + 1])}" for n in range(arguments.slots)]
    print(f"{len(cores)} cores, load {os.getloadavg()[0]:.1f} as it begins; devices {lists[-1]}", flush=True)
    lines, bad = [], 0
    try:
        for recipe in arguments.recipes:
            settings = SETTINGS.get(recipe, [])
            batch = ["--batch", ",".join(map(str, arguments.batches))] if arguments.batches else []
            begin = time.monotonic()
            first = run("plan", recipe, *settings, *batch, "--devices", lists[-1], "--json", quiet=False)
            took = time.monotonic() - begin
            # As many steps as fit into --seconds on the fastest; the plan is asked again with them, from what it measured.
            for size in arguments.batches or [first["batch_size"]]:
                for devices in lists:
                    count = len(devices.split("@")[0].split(",")) if arguments.devices else lists.index(devices) + 1
                    row = next(r for r in first["rows"] if r["devices"] == count and r["batch_size"] == size)
                    steps = max(20, int(arguments.seconds / row["step_seconds"]))
                    told = run("plan", recipe, *settings, "--steps", steps, "--batch", size, "--devices", lists[-1], "--gpus", count,
                               "--json")["rows"]
                    told = next(r for r in told if r["devices"] == count and r["batch_size"] == size)
                    times, memories = [], []
                    for _ in range(arguments.rounds):
                        folder = work / "run"
                        shutil.rmtree(folder, ignore_errors=True)
                        start = time.monotonic()
                        came = run("train", recipe, *settings, "--steps", steps, "--batch-size", size, "--devices", devices,
                                   "--run-dir", folder, "--json")
                        times.append(time.monotonic() - start)
                        memories.append(max(u.get("card_bytes", u["memory_bytes"]) for u in came["usage"]))
                    seconds, memory = statistics.median(times), max(memories)
                    off, more = told["seconds"] / seconds - 1, told["memory"]["total"] / memory - 1
                    fine = abs(off) <= 0.10 and 0 <= more <= 0.15
                    bad += not fine
                    lines.append({"recipe": recipe, "devices": devices, "batch": size, "steps": steps, "forecast_s": told["seconds"],
                                  "took_s": seconds, "times": times, "time_error": off, "forecast_bytes": told["memory"]["total"],
                                  "bytes": memory, "memory_error": more, "calibration_s": took, "load": os.getloadavg()[0]})
                    print(f"{recipe:10} {count} x batch {size:5} {steps:6} steps  forecast {told['seconds']:7.2f} s  took {seconds:7.2f} s "
                          f"({min(times):.2f} to {max(times):.2f})  {100 * off:+6.1f} %   memory {told['memory']['total'] / 1e6:7.1f} MB of "
                          f"{memory / 1e6:7.1f}  {100 * more:+5.1f} %  calibrated {took:.0f} s  load {os.getloadavg()[0]:.1f}"
                          f"{'' if fine else '   <--'}", flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(lines, indent=1))
    print(f"{len(lines) - bad} of {len(lines)} within 10 % in time, and memory 0 to 15 % above")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

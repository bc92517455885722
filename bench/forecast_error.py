#!/usr/bin/env python3
"""How far `tandem plan` is off: a calibration, its forecast, then the real thing.

    python3 bench/forecast_error.py build/bin                                      # 1, 2, 3 and 4 CPU slots, three batches
    python3 bench/forecast_error.py build/bin --devices cuda:0 --seconds 10        # a card; two recipes in under 4 minutes
    python3 bench/forecast_error.py build/bin --recipes tiny --rounds 3 --json errors.json

For each recipe: one calibration (`plan`, at most --budget seconds, on the first device and the first two), then for each batch and on
the first 1, 2, ... devices real runs of about --seconds each, whole commands timed from start to end, against what the plan said before
any of them. The median of --rounds runs counts. A machine with fewer cores than slots plays them with slots slowed to --speed, each on a
core by name, so that they fit: "cpu:4@0.45/0,0.45/1,0.45/0,0.45/1". Ends with 1 if a time is off by more than 10 %, or a memory below the
truth or more than 15 % above it. Other work on the machine spoils it: the load is printed. Needs Python alone and the built programs.
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

BATCHES = {"tiny": [192, 96, 384], "tiny-rl": [192, 96, 384], "web-agent": [256, 128, 512], "dqn": [128, 64, 256]}  # the main one first
SETTINGS = {"web-agent": ["--set", "capacity=200000", "--set", "learning_starts=4000"], "dqn": ["--env", "gym:CartPole-v1"]}
TIME, MEMORY = 0.10, 0.15


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=pathlib.Path, help="folder with tandem and tandem-worker")
    parser.add_argument("--recipes", nargs="+", default=["tiny", "web-agent"])
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--speed", type=float, default=0.45)
    parser.add_argument("--devices", help="these instead of slots: cuda:0, or cuda:0,cuda:1")
    parser.add_argument("--batches", type=int, nargs="+", help="the first is the main one [three for each recipe]")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=15, help="of each run, about")
    parser.add_argument("--budget", type=float, default=60, help="seconds of a calibration")
    parser.add_argument("--json", type=pathlib.Path, help="all figures")
    return parser.parse_args()


class Machine:
    """Runs commands with a cache of its own: the plan must not know the runs that it is judged by."""

    def __init__(self, programs):
        self.tandem = programs.resolve() / "tandem"
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="tandem-forecast-"))
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(self.work / "cache"), "XDG_CONFIG_HOME": str(self.work / "config"),
                            "NO_COLOR": "1"}

    def run(self, *words):
        done = subprocess.run([self.tandem, *map(str, words)], cwd=self.work, env=self.environment, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            sys.exit(f"tandem {' '.join(map(str, words))}: code {done.returncode}\n{done.stderr}")
        return json.loads(done.stdout)


def judge(machine, recipe, batches, lists, arguments):
    """Yields a line for each batch and number of devices."""
    settings = SETTINGS.get(recipe, [])
    begin = time.monotonic()
    first = machine.run("plan", recipe, *settings, "--batch", ",".join(map(str, batches)), "--devices", lists[-1], "--budget",
                        arguments.budget, "--json")
    calibrated = time.monotonic() - begin
    print(f"{recipe}: calibrated in {calibrated:.0f} s", flush=True)

    def forecast(answer, size, count):
        return next(row for row in answer["rows"] if row["devices"] == count and row["batch_size"] == size)

    for size in batches:
        for count, devices in enumerate(lists, 1):
            # As many steps as fit into --seconds; the plan is asked again with them, from what it measured.
            steps = max(20, int(arguments.seconds / forecast(first, size, count)["step_seconds"]))
            told = forecast(machine.run("plan", recipe, *settings, "--steps", steps, "--batch", ",".join(map(str, batches)), "--devices",
                                        lists[-1], "--json"), size, count)
            times, memories = [], []
            for _ in range(arguments.rounds):
                folder = machine.work / "run"
                shutil.rmtree(folder, ignore_errors=True)
                start = time.monotonic()
                came = machine.run("train", recipe, *settings, "--steps", steps, "--batch-size", size, "--devices", devices, "--run-dir",
                                   folder, "--json")
                times.append(time.monotonic() - start)
                memories.append(max(worker.get("card_bytes", worker["memory_bytes"]) for worker in came["usage"]))
            took, used = statistics.median(times), max(memories)
            yield {"recipe": recipe, "devices": devices, "count": count, "batch": size, "steps": steps, "forecast_s": told["seconds"],
                   "took_s": took, "times": times, "time_error": told["seconds"] / took - 1, "stated_error": told["error"],
                   "forecast_bytes": told["memory"]["total"], "bytes": used, "memory_error": told["memory"]["total"] / used - 1,
                   "calibration_s": calibrated, "load": os.getloadavg()[0]}


def main():
    arguments = parse()
    machine = Machine(arguments.bin)
    cores = sorted(os.sched_getaffinity(0))
    if arguments.devices:
        names = arguments.devices.split(",")
        lists = [",".join(names[:n + 1]) for n in range(len(names))]
    else:
        slots = [f"{arguments.speed:g}/{cores[i % len(cores)]}" for i in range(arguments.slots)]
        lists = [f"cpu:{n + 1}@{','.join(slots[:n + 1])}" for n in range(arguments.slots)]
    print(f"{len(cores)} cores, load {os.getloadavg()[0]:.1f} as it begins; devices {lists[-1]}", flush=True)
    begin, lines, bad = time.monotonic(), [], 0
    print(f"{'recipe':10} devices  batch   steps  forecast s   took s   error    stated   forecast MB    used MB   error", flush=True)
    try:
        for recipe in arguments.recipes:
            batches = arguments.batches or BATCHES.get(recipe)
            if not batches:
                sys.exit(f"which batches of {recipe}? name them with --batches")
            for line in judge(machine, recipe, batches, lists, arguments):
                fine = abs(line["time_error"]) <= TIME and 0 <= line["memory_error"] <= MEMORY
                bad += not fine
                lines.append({**line, "pass": fine})
                print(f"{recipe:10} {line['count']:7} {line['batch']:6} {line['steps']:7} {line['forecast_s']:11.2f} {line['took_s']:8.2f} "
                      f"{100 * line['time_error']:+6.1f} % {100 * line['stated_error']:7.1f} % {line['forecast_bytes'] / 1e6:13.1f} "
                      f"{line['bytes'] / 1e6:10.1f} {100 * line['memory_error']:+6.1f} %  {'pass' if fine else 'FAIL'}"
                      f"{'' if line['load'] < len(cores) + 1 else '  load %.1f' % line['load']}", flush=True)
    finally:
        shutil.rmtree(machine.work, ignore_errors=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(lines, indent=1) + "\n")
    print(f"{len(lines) - bad} of {len(lines)} within {100 * TIME:.0f} % in time and 0 to {100 * MEMORY:.0f} % above in memory, "
          f"in {time.monotonic() - begin:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

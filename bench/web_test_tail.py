#!/usr/bin/env python3
"""How near a set of unequal jobs on unequal slots comes to the ideal: python3 bench/web_test_tail.py <folder with tandem>

Six agents with unequal steps on cpu:3@1,0.5,0.5, or on slots of other speeds: `--speeds 0.2,0.1,0.1` sleep most of the
time, so a busy machine disturbs them less. Ideal: all the work there is, spread over all the speed there is. What a
step of an agent costs is taken from this very run, from the time when it had one device alone, so neighbours on the
machine slow both sides. Goal: 1.05. Starts of processes, joins and the combine of several workers are all losses.
"""
import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

STEPS = {"requirements": 1.0, "generation": 2.2, "execution": 0.6, "observation": 1.5, "analysis": 3.0, "evolution": 0.8}


def one_run(tandem, steps, speeds, more, folder):
    settings = [word for agent, n in steps.items() for word in ("--set", f"{agent}.steps={n}")]
    slots = f"cpu:{len(speeds)}@{','.join(map(str, speeds))}"
    done = subprocess.run([tandem, "train", "web-test", "--devices", slots, *settings, *more, "--json"], cwd=folder,
                          stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.returncode
    return json.loads(done.stdout)


def step_cost(told, file, speeds, number, job):
    """Seconds of a step at speed 1, while the first device had the job to itself."""
    parts = sorted((p for p in file["course"] if p["job"] == number), key=lambda p: p["begin"])
    alone = parts[0]
    second = parts[1]["begin"] if len(parts) > 1 else alone["end"]
    lines = [json.loads(line) for line in (pathlib.Path(told["dir"]) / job["run"] / "metrics.jsonl").read_text().splitlines()]
    first = lines[0]["t"] - lines[0]["seconds"]
    speed = speeds[alone["device"]]
    costs = [line["seconds"] * speed for line in lines if line["t"] - first < second - alone["begin"] - 3]
    return statistics.mean(costs) if costs else statistics.mean(line["seconds"] for line in lines) * speed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("--steps", type=int, default=4000, help="of the middle one")
    parser.add_argument("--speeds", default="1,0.5,0.5")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--keep", help="folder for the run, left as it is; else a temporary one")
    given, more = parser.parse_known_args()  # all other words are for `tandem train web-test`
    tandem = pathlib.Path(given.bin).resolve() / "tandem"
    steps = {agent: int(given.steps * share) for agent, share in STEPS.items()}
    speeds = [float(speed) for speed in given.speeds.split(",")]
    ratios = []
    for _ in range(given.rounds):
        folder = given.keep or tempfile.mkdtemp(prefix="tandem-bench-")
        told = one_run(tandem, steps, speeds, more, folder)
        file = json.loads((pathlib.Path(told["dir"]) / "agents.json").read_text())
        work = {job["name"]: job["steps"] * step_cost(told, file, speeds, n, job) for n, job in enumerate(file["jobs"])}
        ideal = sum(work.values()) / sum(speeds)
        ratios.append(told["seconds"] / ideal)
        busy = sum(p["end"] - p["begin"] for p in file["course"]) / (len(speeds) * told["seconds"])
        print(f"makespan {told['seconds']:.1f} s, ideal {ideal:.1f} s: {ratios[-1]:.3f}; forecast {told['forecast_seconds']:.1f} s; "
              f"{told['joins']} joins; slots busy {100 * busy:.1f} %", flush=True)
        for name, seconds in work.items():
            print(f"  {name:<14} {steps[name]:>6} steps  {seconds:6.1f} s of a full slot  on {' '.join(told['agents'][name]['devices'])}")
        if not given.keep:  # half a gigabyte of replay for each agent
            shutil.rmtree(folder)
    print(f"{f'six unequal jobs on slots {given.speeds}: makespan over ideal':<66} {statistics.median(ratios):>8.3f}   target 1.05")
    return 0 if statistics.median(ratios) <= 1.05 else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""How near a set of unequal jobs on unequal slots comes to the ideal: python3 bench/web_test_tail.py <folder with tandem>

Six agents with unequal steps on cpu:3@1,0.5,0.5, or on slots of other speeds: `--speeds 0.2,0.1,0.1` sleep most of the
time, so a busy machine disturbs them less. Ideal: all the work there is, spread over all the speed there is. What the
steps of an agent cost is taken from this very run, from the slot that it began on while it had it alone, so neighbours on
the machine slow both sides. Goal: 1.05. Losses are everything else: starts of processes, snapshots and the last save,
slots without work, joins, and what several workers on one job lose on agreeing.
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


def account(reply, file, speeds, number, job):
    """Of one job, in seconds of a slot of speed 1: the work of its steps, and what its slots spent on it beside.

    Work: the steps that the first device made alone, as they were; the others, which several made, as the last
    quarter of those before them, since a replay that fills up makes steps dearer."""
    parts = sorted((p for p in file["course"] if p["job"] == number), key=lambda p: p["begin"])
    begin, end, speed = parts[0]["begin"], max(p["end"] for p in parts), speeds[parts[0]["device"]]
    lines = [json.loads(line) for line in (pathlib.Path(reply["dir"]) / job["run"] / "metrics.jsonl").read_text().splitlines()]
    first = lines[0]["t"] - lines[0]["seconds"]
    start = (end - begin) - (lines[-1]["t"] - first)  # and until the runner saw the last step
    joined = parts[1]["begin"] - begin - start if len(parts) > 1 else lines[-1]["t"] - first + 1
    alone = [line for line in lines if line["t"] - first < joined] or lines
    costs = [line["seconds"] for line in alone]
    work = speed * (sum(costs) + (job["steps"] - len(costs)) * statistics.mean(costs[-max(1, len(costs) // 4):]))
    used = sum(speeds[p["device"]] * (p["end"] - p["begin"]) for p in parts)
    starts = speed * start
    between = speed * (alone[-1]["t"] - first - sum(costs))
    return {"work": work, "starts": starts, "between": between, "shared": used - work - starts - between}


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
        reply = one_run(tandem, steps, speeds, more, folder)
        file = json.loads((pathlib.Path(reply["dir"]) / "agents.json").read_text())
        jobs = {job["name"]: account(reply, file, speeds, n, job) for n, job in enumerate(file["jobs"])}
        total = {key: sum(job[key] for job in jobs.values()) for key in ("work", "starts", "between", "shared")}
        ideal = total["work"] / sum(speeds)
        ratios.append(reply["seconds"] / ideal)
        used = sum(speeds[p["device"]] * (p["end"] - p["begin"]) for p in file["course"])
        idle = sum(speeds) * reply["seconds"] - used
        print(f"makespan {reply['seconds']:.1f} s, ideal {ideal:.1f} s: {ratios[-1]:.3f}; forecast {reply['forecast_seconds']:.1f} s; {reply['joins']} joins", flush=True)
        words = {"starts": "starts", "between": "snapshots and other pauses between steps", "shared": "joins and steps that several slots shared"}
        print("  lost, in % of the work: " + "; ".join(f"{words[key]} {100 * total[key] / total['work']:.2f}" for key in words)
              + f"; slots without a job, the last save among it, {100 * idle / total['work']:.2f}")
        for name, one in jobs.items():
            print(f"  {name:<14} {steps[name]:>6} steps  {one['work']:6.1f} s of a full slot  on {' '.join(reply['agents'][name]['devices'])}")
        if not given.keep:  # half a gigabyte of replay for each agent
            shutil.rmtree(folder)
    print(f"{f'six unequal jobs on slots {given.speeds}: makespan over ideal':<66} {statistics.median(ratios):>8.3f}   target 1.05")
    return 0 if statistics.median(ratios) <= 1.05 else 1


if __name__ == "__main__":
    sys.exit(main())

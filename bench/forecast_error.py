#!/usr/bin/env python3
"""How far `tandem plan` is off: calibrations, their forecasts, then the real thing, in turns.

    python3 bench/forecast_error.py build/bin --log errors.jsonl                                       # 1 to 4 CPU workers, three batches
    python3 bench/forecast_error.py build/bin --devices cuda:0 --rounds 2 --budget 20 --log gpu.jsonl # a GPU
    python3 bench/forecast_error.py build/bin --recipes tiny --slots 2 --rounds 1 --json errors.json

A round is, for each recipe: a calibration from nothing (`plan --calibrate`, about --budget seconds), then for each batch and on the first
1, 2, ... devices one real run of about --seconds, the whole command timed from start to end. Rounds follow one another, so that a machine
that is slow for a minute meets forecast and truth alike; a row is judged by the median of its forecasts against the median of its runs.
Memory is judged run by run. Between the rows one fixed command is timed, the yardstick: how far it differs from itself is what no forecast
could do better than. It never makes a row pass: that is 10 % in time, and memory 0 to 15 % above the truth.

A machine with fewer cores than slots plays them with slots slowed to --speed, each on a core by name, so that they fit:
"cpu:4@0.45/0,0.45/1,0.45/0,0.45/1". Every figure goes to --log as it comes; started again with the same --log and arguments it goes on
where it was. Ends with 1 if a row fails. Other work on the machine spoils it: the load is printed. Needs Python alone and the built programs.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

BATCHES = {"tiny": [192, 96, 384], "tiny-rl": [192, 96, 384], "web-agent": [256, 128, 512], "dqn": [128, 64, 256]}  # the main one first
SETTINGS = {"web-agent": ["--set", "capacity=200000", "--set", "learning_starts=4000"], "dqn": ["--env", "gym:CartPole-v1"]}
TIME, MEMORY = 0.10, 0.15
EACH_YARDSTICK = 4  # rows


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=pathlib.Path, help="folder with tandem and tandem-worker")
    parser.add_argument("--recipes", nargs="+", default=["tiny", "web-agent"])
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--speed", type=float, default=0.45)
    parser.add_argument("--devices", help="these instead of slots: cuda:0, or cuda:0,cuda:1")
    parser.add_argument("--batches", type=int, nargs="+", help="the first is the main one [three for each recipe]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=9, help="of each whole run, about [9]; below 8 starts count too much")
    parser.add_argument("--budget", type=float, default=60, help="seconds of a calibration")
    parser.add_argument("--log", type=pathlib.Path, help="every figure as it comes, a JSON object a line; what is there is not done again")
    parser.add_argument("--json", type=pathlib.Path, help="the verdict: rows, yardstick, summary")
    arguments = parser.parse_args()
    for recipe in arguments.recipes:
        if not arguments.batches and recipe not in BATCHES:
            parser.error(f"which batches of {recipe}? name them with --batches")
    if arguments.rounds < 1 or arguments.slots < 1 or arguments.seconds <= 0:
        parser.error("--rounds, --slots and --seconds are above 0")
    return arguments


class Log:
    """What was measured, in the order it came; a line that was cut by a kill is forgotten."""

    def __init__(self, path, question):
        self.path, self.events = path, []
        if path and path.exists():
            for line in path.read_text().splitlines():
                try:
                    self.events.append(json.loads(line))
                except json.JSONDecodeError:
                    continue
            if self.events and self.events[0].get("question") != question:
                sys.exit(f"{path} is of another question: {self.events[0].get('question')}\n  do     name another file with --log")
            path.write_text("".join(json.dumps(event) + "\n" for event in self.events))
        if not self.events:
            self.add({"question": question})

    def add(self, event):
        self.events.append(event)
        if self.path:
            with open(self.path, "a") as file:
                file.write(json.dumps(event) + "\n")

    def find(self, **keys):
        return [event for event in self.events if all(event.get(key) == value for key, value in keys.items())]


class Machine:
    """Runs commands with a cache of its own: the plan must not know the runs that it is judged by."""

    def __init__(self, programs):
        self.tandem = programs.resolve() / "tandem"
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="tandem-forecast-"))
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(self.work / "cache"), "XDG_CONFIG_HOME": str(self.work / "config"),
                            "TMPDIR": str(self.work), "NO_COLOR": "1"}

    def run(self, *words):
        done = subprocess.run([self.tandem, *map(str, words)], cwd=self.work, env=self.environment, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            sys.exit(f"tandem {' '.join(map(str, words))}: code {done.returncode}\n{done.stderr}")
        return json.loads(done.stdout)

    def train(self, recipe, steps, size, devices):
        """Seconds of the whole command, and the most memory of a worker."""
        folder = self.work / "run"
        shutil.rmtree(folder, ignore_errors=True)
        start = time.monotonic()
        came = self.run("train", recipe, *SETTINGS.get(recipe, []), "--steps", steps, "--batch-size", size, "--devices", devices,
                        "--run-dir", folder, "--json")
        took = time.monotonic() - start
        shutil.rmtree(folder, ignore_errors=True)
        return took, max(worker.get("card_bytes", worker["memory_bytes"]) for worker in came["usage"])


def row_of(answer, size, count):
    return next(row for row in answer["rows"] if row["devices"] == count and row["batch_size"] == size)


def calibrate(machine, log, recipe, batches, lists, arguments, number):
    """One calibration, and what it says of every row. The first one decides how many steps the rows have in all rounds."""
    words = ["plan", recipe, *SETTINGS.get(recipe, []), "--batch", ",".join(map(str, batches)), "--devices", lists[-1]]
    begin = time.monotonic()
    first = machine.run(*words, "--budget", arguments.budget, "--calibrate", "--json")
    took = time.monotonic() - begin
    forecasts = []
    for size in batches:
        for count in range(1, len(lists) + 1):
            earlier = log.find(kind="forecast", recipe=recipe, batch=size, count=count)
            reply = row_of(first, size, count)
            beside = reply["time"]["start"] + reply["time"]["end"]
            steps = earlier[0]["steps"] if earlier else max(20, int((arguments.seconds - beside) / reply["step_seconds"]))
            reply = row_of(machine.run(*words, "--steps", steps, "--json"), size, count)  # from what was measured just now
            forecasts.append({"kind": "forecast", "round": number, "recipe": recipe, "batch": size, "count": count, "steps": steps,
                              "seconds": reply["seconds"], "time": reply["time"], "stated": reply["error"], "bytes": reply["memory"]["total"]})
    log.add({"kind": "calibration", "round": number, "recipe": recipe, "seconds": took, "load": os.getloadavg()[0],
             "trials": first["calibration"]["trials"]})
    for one in forecasts:
        log.add(one)


def measure(machine, log, lists, arguments):
    total = sum(len(arguments.batches or BATCHES[recipe]) for recipe in arguments.recipes) * len(lists) * arguments.rounds

    def yardstick():
        recipe, devices = arguments.recipes[0], lists[min(1, len(lists) - 1)]
        size = (arguments.batches or BATCHES[recipe])[0]
        known = log.find(kind="forecast", recipe=recipe, batch=size, count=min(2, len(lists)))
        took, _ = machine.train(recipe, known[0]["steps"], size, devices)
        log.add({"kind": "yardstick", "seconds": took, "load": os.getloadavg()[0]})
        print(f"          yardstick {took:.2f} s", flush=True)

    for number in range(1, arguments.rounds + 1):
        for recipe in arguments.recipes:
            batches = arguments.batches or BATCHES[recipe]
            rows = [(size, count) for size in batches for count in range(1, len(lists) + 1)]
            if len(log.find(kind="forecast", round=number, recipe=recipe)) < len(rows):
                log.events = [e for e in log.events if not (e.get("kind") == "forecast" and e["round"] == number and e["recipe"] == recipe)]
                calibrate(machine, log, recipe, batches, lists, arguments, number)
                print(f"round {number}   {recipe}: calibrated in {log.find(kind='calibration')[-1]['seconds']:.0f} s", flush=True)
            for place, (size, count) in enumerate(rows):
                if log.find(kind="run", round=number, recipe=recipe, batch=size, count=count):
                    continue
                if place % EACH_YARDSTICK == 0:
                    yardstick()
                reply = log.find(kind="forecast", round=number, recipe=recipe, batch=size, count=count)[-1]
                took, used = machine.train(recipe, reply["steps"], size, lists[count - 1])
                log.add({"kind": "run", "round": number, "recipe": recipe, "batch": size, "count": count, "steps": reply["steps"],
                         "seconds": took, "bytes": used, "load": os.getloadavg()[0]})
                print(f"{len(log.find(kind='run')):3} of {total}  {recipe:10} {count} devices, batch {size:4}: forecast {reply['seconds']:6.2f} s, "
                      f"took {took:6.2f} s {100 * (reply['seconds'] / took - 1):+6.1f} %, memory {100 * (reply['bytes'] / used - 1):+5.1f} %",
                      flush=True)


def verdict(events):
    """Rows, yardstick and summary, from what was logged. Pure."""
    def events_of(kind, **keys):
        return [e for e in events if e.get("kind") == kind and all(e[key] == value for key, value in keys.items())]

    sticks = [e["seconds"] for e in events_of("yardstick")]
    middle = statistics.median(sticks) if sticks else None
    spread = max(max(sticks) / middle - 1, 1 - min(sticks) / middle) if sticks else 0.0
    rows = []
    for place in dict.fromkeys((e["recipe"], e["batch"], e["count"]) for e in events_of("run")):
        keys = dict(zip(("recipe", "batch", "count"), place))
        runs = events_of("run", **keys)
        by_round = {e["round"]: e for e in events_of("forecast", **keys)}
        forecasts = [by_round[run["round"]] for run in runs]
        forecast, took = (statistics.median(e["seconds"] for e in list_) for list_ in (forecasts, runs))
        memory = [one["bytes"] / run["bytes"] - 1 for one, run in zip(forecasts, runs)]
        error = forecast / took - 1
        rows.append({**keys, "steps": runs[0]["steps"], "forecast_s": forecast, "took_s": took, "time_error": error,
                     "forecasts_s": [e["seconds"] for e in forecasts], "runs_s": [e["seconds"] for e in runs],
                     "own_spread": max(e["seconds"] for e in runs) / min(e["seconds"] for e in runs) - 1,
                     "stated_error": statistics.median(e["stated"] for e in forecasts), "memory_errors": memory,
                     "time_ok": abs(error) <= TIME, "within_yardstick": abs(error) <= max(TIME, spread),
                     "memory_ok": sum(0 <= e <= MEMORY for e in memory)})
    runs = len(events_of("run"))
    summary = {"rows": len(rows), "runs": runs, "time_ok": sum(r["time_ok"] for r in rows),
               "within_yardstick": sum(r["within_yardstick"] for r in rows), "memory_ok": sum(r["memory_ok"] for r in rows),
               "mean_time_error": statistics.fmean(r["time_error"] for r in rows) if rows else None,
               "pass": bool(rows) and all(r["time_ok"] for r in rows) and sum(r["memory_ok"] for r in rows) == runs}
    return {"rows": rows, "yardstick": {"seconds": sticks, "median": middle, "spread": spread}, "summary": summary}


def show(result):
    print(f"\n{'recipe':10} devices  batch   steps  forecast s   took s    error  (runs differ)   stated   memory, run by run")
    for row in result["rows"]:
        fine = row["time_ok"] and row["memory_ok"] == len(row["memory_errors"])
        print(f"{row['recipe']:10} {row['count']:7} {row['batch']:6} {row['steps']:7} {row['forecast_s']:11.2f} {row['took_s']:8.2f} "
              f"{100 * row['time_error']:+7.1f} % {100 * row['own_spread']:11.1f} % {100 * row['stated_error']:8.1f} %   "
              f"{' '.join(f'{100 * e:+.1f}' for e in row['memory_errors'])} %  {'pass' if fine else 'FAIL'}")
    stick, s = result["yardstick"], result["summary"]
    if stick["seconds"]:
        print(f"yardstick: one command {len(stick['seconds'])} times, {min(stick['seconds']):.2f} / {stick['median']:.2f} / "
              f"{max(stick['seconds']):.2f} s (least, median, most): {100 * stick['spread']:.0f} % from its own median")
    if s["rows"]:
        print(f"time: {s['time_ok']} of {s['rows']} rows within {100 * TIME:.0f} %, {s['within_yardstick']} within that or the yardstick's own "
              f"spread; on average {100 * s['mean_time_error']:+.1f} %")
        print(f"memory: {s['memory_ok']} of {s['runs']} runs 0 to {100 * MEMORY:.0f} % above the truth")


def main():
    arguments = parse()
    cores = sorted(os.sched_getaffinity(0))
    if arguments.devices:
        names = arguments.devices.split(",")
        lists = [",".join(names[:n + 1]) for n in range(len(names))]
    else:
        slots = [f"{arguments.speed:g}/{cores[i % len(cores)]}" for i in range(arguments.slots)]
        lists = [f"cpu:{n + 1}@{','.join(slots[:n + 1])}" for n in range(arguments.slots)]
    question = {"recipes": arguments.recipes, "devices": lists, "batches": arguments.batches, "rounds": arguments.rounds,
                "seconds": arguments.seconds, "budget": arguments.budget}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C: what was measured is printed, folders are removed
    log = Log(arguments.log, question)
    machine = Machine(arguments.bin)
    print(f"{len(cores)} cores, load {os.getloadavg()[0]:.1f} as it begins; devices {lists[-1]}", flush=True)
    begin = time.monotonic()
    try:
        measure(machine, log, lists, arguments)
    finally:
        shutil.rmtree(machine.work, ignore_errors=True)
        result = verdict(log.events)
        show(result)
        if arguments.json:
            arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    print(f"in {time.monotonic() - begin:.0f} s")
    return 0 if result["summary"]["pass"] else 1


if __name__ == "__main__":
    sys.exit(main())

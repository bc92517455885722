#!/usr/bin/env python3
"""`tandem train video` beside PyTorch, in one run: python3 bench/video_baseline.py build/bin [options]

  --device cpu|cuda:0     cpu unless given             --batch 32,64,128,256,512,1024    clips of an update [128]
  --updates N             updates that a repeat times  --rounds N          repeats, of which the median counts
  --modes LIST            of torch.compile [cuda: default,reduce-overhead,max-autotune; cpu: default]
  --set KEY=VALUE         for tandem (size=64, net.kind=light); size, clip.frames and net are PyTorch's too
  --only LIST             of speed, memory, inference, learning [the first three]
  --learning              learning too: 200 updates of 64 clips from some seeds each
  --seeds N               so many, 3 to 6 [3]
  --quick                 tiny frames, a tiny net, a few updates: does all of it run?
  --mode-seconds N        for a mode of torch.compile, with its updates: it is left out beyond [300]
  --json                  an object on stdout, the lines on stderr; printed anew after each part, the last one is whole

Needs a Python with torch and safetensors. Both sides have the same clips: those that train in the generated set of a
run. First the two must be the same function: what `tandem export` writes is loaded into PyTorch's module by name, one
to one, and both must give the same probabilities. Then they are timed. Both cut clips out of uint8 frames on the
device, augment them, clip the gradient and update by Adam. PyTorch runs in eager mode and compiled, in each mode of
torch.compile, channels last, cudnn.benchmark on; on a GPU in bf16 autocast. tandem runs as users run it, so its update
includes the engine and the log; the first updates, in which graphs are captured and compared with plain runs, are left
out. `cache`: the same with frames from the mapped cache, through the loader.

Floors, on a GPU, each with its line: 1.3 times the fastest compiled baseline at batch 128; memory per clip at most 0.6
of PyTorch's in eager mode with autocast (both by the difference of two batches); the loader's wait below 2 % of a step;
inference at stride 1 of 3,000 frames/s; a loss no higher than PyTorch's after 200 updates, within the seeds' noise.
Noise of more than a tenth of a guess's loss could hide anything: then the last one counts as not measured (--seeds).
Exit 1 where one is missed or could not be measured, 2 where the two are not the same function.
"""
import argparse
import contextlib
import csv
import json
import math
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file

from video_torch import Baseline, Clips, net_like, put_away

LEFT_OUT, JUDGED_BATCH = 40, 128
SPEED_FLOOR, MEMORY_FLOOR, WAIT_FLOOR, INFERENCE_FLOOR = 1.3, 0.6, 0.02, 3000
SPEED_AIM, INFERENCE_AIM = 1300, 5000
MOST_NOISE = 0.1   # of the loss of a guess among the classes: beyond it seeds can't tell two programs apart
STUDENT = {3: 2.776, 4: 2.447, 5: 2.306, 6: 2.228}  # 95 %, by seeds: with two degrees of freedom less than both have
PARTS = ("speed", "memory", "inference", "learning")
QUICK = ["size=32", "clip.frames=9", "net.kind=light", "net.width=4", "augment.shift=2", "generated.videos=4",
         "generated.trials=2", "generated.frames=60"]
LONG_VIDEOS = ["generated.videos=5", "generated.trials=10"]  # 1,200 frames each: inference has something to do


def say(text):
    print(text, file=sys.stderr, flush=True)


class OutOfTime(BaseException):
    """No Exception: torch.compile catches those of its own and goes on."""


@contextlib.contextmanager
def at_most(seconds):
    """Raises OutOfTime in what runs longer; again each second, where a library swallowed it."""
    def ring(*_):
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def baseline_seconds(given, batch, mode, clips, weights):
    """The median second of an update, or why there is none."""
    try:
        with at_most(given.mode_seconds):
            baseline = Baseline(given.device, batch, mode, clips, given.shift, weights)
            for _ in range(5):
                baseline.step()
            return statistics.median(baseline.seconds(given.updates) for _ in range(given.rounds)), None
    except OutOfTime:
        return None, f"not done after {given.mode_seconds} s"
    except torch.OutOfMemoryError:
        return None, "out of memory"
    except Exception as error:  # a mode that this torch can't compile in: the others count
        return None, f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
    finally:
        baseline = None
        put_away()


def baseline_bytes(given, batch, clips, weights):
    """The most that is allocated during updates in eager mode; None: they do not fit."""
    try:
        baseline = Baseline(given.device, batch, "eager", clips, given.shift, weights)
        for _ in range(3):
            baseline.step()
        baseline.wait()
        torch.cuda.reset_peak_memory_stats()
        for _ in range(3):
            baseline.step()
        baseline.wait()
        return torch.cuda.max_memory_allocated()
    except torch.OutOfMemoryError:
        return None
    finally:
        baseline = None
        put_away()


class Tandem:
    def __init__(self, given, root):
        self.program, self.device, self.settings = given.programs.resolve() / "tandem", given.device, given.set
        self.root, self.out_of_memory = root, 4

    def folder(self):
        return pathlib.Path(tempfile.mkdtemp(dir=self.root))

    def call(self, *words):
        command = [str(word) for word in (self.program, *words)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == self.out_of_memory:
            return None
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}\n{done.stderr[-2000:]}")
        return done.stdout

    def train(self, batch, steps, *more):
        """(what it prints, its folder); None where it does not fit into memory."""
        devices, folder = "cpu:1" if self.device == "cpu" else self.device, self.folder() / "run"
        fixed = ["validation.every=never", "validation.patience=0", "checkpoint.every=never", "schedule.kind=constant"]
        settings = [word for pair in (*fixed, *self.settings) for word in ("--set", pair)]
        said = self.call("train", "video", "--json", "--quiet", "--devices", devices, "--batch-size", batch, "--steps",
                         steps, "--run-dir", folder, *settings, *more)
        return (json.loads(said), folder) if said else (None, folder)

    def records(self, folder):
        return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]

    def timed(self, batch, updates, left_out, *more):
        """(median seconds of an update, share of the time that waits for the loader); None: out of memory."""
        run, folder = self.train(batch, updates + left_out, *more)
        if not run:
            return None, None
        seconds = statistics.median(record["seconds"] for record in self.records(folder)[left_out:])
        return seconds, waiting_share(folder, left_out)

    def peak_bytes(self, batch, left_out):
        run, folder = self.train(batch, left_out + 5, "--set", "frames_on_device=on")
        if not run:
            return None, None
        usage = json.loads((folder / "run.json").read_text())["extra"]["usage"][0]
        return usage["card_bytes"], usage.get("shards_in_pass")

    def export(self, folder):
        file = self.folder() / "weights.safetensors"
        self.call("export", folder, "--output", file)
        return load_file(file)

    def predict(self, folder, frames):
        device = [] if self.device != "cpu" else ["--device", "cpu"]
        out = self.folder() / "out.csv"
        said = json.loads(self.call("predict", folder, frames, "--json", "--csv", out, *device))
        with open(out, newline="") as rows:
            return said, [(row["Action"], float(row["Probability"])) for row in csv.DictReader(rows)]

    def check(self, folder, size):
        return json.loads(self.call("data", "check", "video", folder, "--size", size, "--json"))


def waiting_share(folder, left_out):
    """From ranks.jsonl (src/explain/rank_times.h): the sums of steps, their seconds, work, load, ... of each worker."""
    lines = [json.loads(line) for line in (folder / "ranks.jsonl").read_text().splitlines()]
    times = [one["ranks"][0]["times"] for one in lines if one.get("ranks")]
    if not times:
        return None
    first = next((t for t in times[:-1] if t[0] >= left_out), [0] * len(times[-1]))
    step = times[-1][1] - first[1]
    return (times[-1][3] - first[3]) / step if step > 0 else None


def differences(weights, net):
    ours = {name: tuple(value.shape) for name, value in weights.items()}
    theirs = {name: tuple(value.shape) for name, value in net.state_dict().items()
              if not name.endswith("num_batches_tracked")}
    return sorted(set(ours.items()) ^ set(theirs.items()))


class Verdicts:
    """A line for each floor; on a CPU, for which there are none, what was found alone."""

    def __init__(self, cuda):
        self.cuda, self.found = cuda, []

    def add(self, what, value, holds, floor, form):
        known = value is not None
        word = "not measured" if not known else "holds" if holds else "MISSED"
        shown = form(value) if known else "-"
        self.found.append({"floor": what, "wanted": floor, "found": value, "holds": bool(known and holds)})
        say(f"{what}: {shown}, floor {floor}" + (f": {word}" if self.cuda else " (of a GPU)"))

    def failed(self):
        return self.cuda and not all(one["holds"] for one in self.found)


def measure_speed(given, tandem, clips, weights, verdicts):
    rows = []
    for batch in given.batches:
        row, notes = {"batch": batch}, {}
        ours = {"tandem": [], "tandem, cache": []}
        waits = []

        def turn():
            for name, where in (("tandem", "on"), ("tandem, cache", "off")):
                seconds, wait = tandem.timed(batch, given.updates, given.left_out, "--set", f"frames_on_device={where}")
                ours[name].append(seconds)
                if where == "off":
                    waits.append(wait)

        turn()  # before the baselines, and after them: what changes with time meets both
        for mode in ("eager", *given.modes):
            seconds, note = baseline_seconds(given, batch, mode, clips, weights)
            row[mode] = batch / seconds if seconds else None
            if note:
                notes[mode] = note
        for _ in range(given.rounds - 1):
            turn()
        for name, seconds in ours.items():
            row[name] = batch / statistics.median(seconds) if all(seconds) else None
        row["loader_wait"] = statistics.median(waits) if waits and all(w is not None for w in waits) else None
        compiled = {mode: row[mode] for mode in given.modes if row[mode]}
        best = max(compiled, key=compiled.get) if compiled else None
        row["ratio"] = row["tandem"] / compiled[best] if best and row["tandem"] else None
        row["notes"] = notes
        rows.append(row)
        figures = [f"{name} {row[name]:.1f}" if row[name] else f"{name} - ({notes.get(name, 'out of memory')})"
                   for name in (*ours, "eager", *given.modes)]
        beside = f"; {row['ratio']:.2f}x {best}" if row["ratio"] else ""
        say(f"batch {batch}, clips/s: {', '.join(figures)}{beside}")
        if batch == given.judged_batch:
            verdicts.add(f"speed beside the fastest compiled baseline, batch {batch}", row["ratio"],
                         (row["ratio"] or 0) >= SPEED_FLOOR, f">= {SPEED_FLOOR}x", lambda x: f"{x:.2f}x")
            verdicts.add("wait for the loader, frames from the cache", row["loader_wait"],
                         (row["loader_wait"] or 0) < WAIT_FLOOR, f"< {WAIT_FLOOR:.0%}", lambda x: f"{x:.2%}")
            say(f"aim: {SPEED_AIM} clips/s")
    return rows


def measure_memory(given, tandem, clips, weights, verdicts):
    if not verdicts.cuda:
        say("memory: measured on a GPU alone")
        return None
    batch, half = given.judged_batch, given.judged_batch // 2
    (ours, passes), (ours_half, passes_half) = (tandem.peak_bytes(b, given.left_out) for b in (batch, half))
    theirs, theirs_half = (baseline_bytes(given, b, clips, weights) for b in (batch, half))
    whole = None not in (ours, ours_half, theirs, theirs_half) and passes == passes_half
    found = {"batch": batch, "tandem_bytes": ours, "torch_bytes": theirs, "shards_in_pass": [passes_half, passes]}
    if whole:
        found["tandem_per_clip"], found["torch_per_clip"] = (ours - ours_half) / half, (theirs - theirs_half) / half
        say("memory per clip: tandem {:.1f} MB, PyTorch {:.1f} MB; at most {:.2f} and {:.2f} GB at batch {}".format(
            found["tandem_per_clip"] / 1e6, found["torch_per_clip"] / 1e6, ours / 1e9, theirs / 1e9, batch))
    else:
        say(f"memory: no difference of two batches to take: {found}")
    share = found["tandem_per_clip"] / found["torch_per_clip"] if whole else None
    verdicts.add("memory per clip beside PyTorch's", share, (share or 9) <= MEMORY_FLOOR, f"<= {MEMORY_FLOOR}",
                 lambda x: f"{x:.2f}")
    return {**found, "share": share}


def measure_inference(given, tandem, folder, clips, verdicts):
    rates = []
    for _ in range(given.rounds):
        said, _ = tandem.predict(folder, clips.videos[0])
        rates.append(said["frames_per_second"])
    rate = statistics.median(rates)
    verdicts.add("inference at stride 1", rate, rate >= INFERENCE_FLOOR, f">= {INFERENCE_FLOOR} frames/s",
                 lambda x: f"{x:.0f} frames/s")
    say(f"aim: {INFERENCE_AIM} frames/s")
    return {"frames": said["frames"], "frames_per_second": rates}


def measure_learning(given, tandem, clips, verdicts):
    """The mean loss of the last updates, from some seeds each, without class weights."""
    updates, last = (20, 5) if given.quick else (200, 20)
    batch = 16 if given.quick else 64
    ours, theirs = [], []
    for seed in range(1, given.seeds + 1):
        run, folder = tandem.train(batch, updates, "--seed", seed, "--set", "loss.class_weights=none")
        ours.append(statistics.mean(record["loss"] for record in tandem.records(folder)[-last:]))
        baseline = Baseline(given.device, batch, "eager", clips, given.shift, seed=seed, like=tandem.export(folder))
        losses = [float(baseline.step()) for _ in range(updates)]
        theirs.append(statistics.mean(losses[-last:]))
        put_away()
    for name, values in (("tandem", ours), ("PyTorch", theirs)):
        say(f"loss of the last {last} of {updates} updates, {name}: {', '.join(f'{x:.4f}' for x in values)}")
    return judge_learning(ours, theirs, updates, len(clips.labels.unique()), verdicts)


def judge_learning(ours, theirs, updates, classes, verdicts):
    """Is tandem's loss no higher? Not known where the seeds scatter too much to tell."""
    variance = statistics.variance(ours) + statistics.variance(theirs)
    noise = STUDENT[len(ours)] * math.sqrt(variance / len(ours))
    most = MOST_NOISE * math.log(classes)
    higher = statistics.mean(ours) - statistics.mean(theirs)
    if noise > most:
        say(f"the noise of {len(ours)} seeds is {noise:.4f}, more than {most:.4f}: it could hide anything; take more --seeds")
    verdicts.add(f"loss after {updates} updates, above PyTorch's", higher if noise <= most else None, higher <= noise,
                 f"<= {noise:.4f} (noise, at most {most:.4f})", lambda x: f"{x:+.4f}")
    return {"tandem": ours, "torch": theirs, "higher": higher, "noise": noise, "most_noise": most}


def same_function(given, tandem, folder, weights, clips):
    """What is wrong, or nothing."""
    wrong = differences(weights, net_like(weights))
    if wrong:
        return f"the parameters differ: {wrong}"
    say(f"{sum(v.numel() for v in weights.values())} numbers under the same names")
    said, ours = tandem.predict(folder, clips.videos[0])
    names, count = {one["class"] for one in said["classes"]}, 16
    baseline = Baseline(given.device, 1, "eager", clips, given.shift, weights)
    theirs = baseline.probabilities(clips.frames[:count + clips.length - 1]).max(1).values
    most = max(abs(ours[i + clips.length // 2][1] - float(theirs[i])) for i in range(count))
    allowed = 0.03 if baseline.cuda else 2e-4  # the CSV has four digits; a GPU computes in bf16
    put_away()
    say(f"probabilities of {count} clips differ by {most:.1e} at most ({len(names)} classes found)")
    return "" if most <= allowed else f"probabilities differ by {most:.3g}, more than {allowed}"


def read_arguments():
    parser = argparse.ArgumentParser(usage=__doc__.replace("%", "%%"))
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch")
    parser.add_argument("--updates", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--modes")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--only", default="speed,memory,inference")
    parser.add_argument("--learning", action="store_true")
    parser.add_argument("--seeds", type=int, choices=STUDENT, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--mode-seconds", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    cpu = given.device == "cpu"
    given.parts = [*given.only.split(","), *(["learning"] if given.learning else [])]
    if unknown := sorted(set(given.parts) - set(PARTS)):
        parser.error(f"--only {','.join(unknown)}: there are {', '.join(PARTS)}")
    given.set = [*(QUICK if given.quick else LONG_VIDEOS), *given.set]
    given.judged_batch = 16 if given.quick else JUDGED_BATCH
    given.batches = [int(b) for b in (given.batch or str(given.judged_batch)).split(",")]
    given.updates = given.updates or (3 if given.quick else 20)
    given.rounds = given.rounds or (1 if given.quick else 3)
    given.left_out = 4 if cpu else LEFT_OUT
    given.modes = (given.modes or ("default" if cpu else "default,reduce-overhead,max-autotune")).split(",")
    settings = dict(pair.split("=", 1) for pair in given.set)
    given.length, given.shift = int(settings.get("clip.frames", 17)), int(settings.get("augment.shift", 5))
    return given, cpu


def main():
    given, cpu = read_arguments()
    if cpu:
        torch.set_num_threads(1)
    torch.backends.cudnn.benchmark = True
    verdicts, found = Verdicts(not cpu), {"device": given.device, "torch": torch.__version__}
    with tempfile.TemporaryDirectory() as root:
        cache = pathlib.Path(root) / "cache"
        os.environ["XDG_CACHE_HOME"] = str(cache)  # of the generated set
        tandem = Tandem(given, root)
        run, folder = tandem.train(given.judged_batch, 1)
        if not run:
            raise RuntimeError(f"a batch of {given.judged_batch} does not fit into memory")
        weights, clips = tandem.export(folder), Clips(tandem, cache, given.length)
        say(f"{len(clips)} clips of {given.length} frames train")
        if wrong := same_function(given, tandem, folder, weights, clips):
            say(wrong)
            return 2
        measures = {"speed": ("rows", lambda: measure_speed(given, tandem, clips, weights, verdicts)),
                    "memory": ("memory", lambda: measure_memory(given, tandem, clips, weights, verdicts)),
                    "inference": ("inference", lambda: measure_inference(given, tandem, folder, clips, verdicts)),
                    "learning": ("loss", lambda: measure_learning(given, tandem, clips, verdicts))}
        for part in (part for part in PARTS if part in given.parts):
            key, measure = measures[part]
            found[key] = measure()
            if given.json:  # each time all of it: what comes later may fail
                print(json.dumps({**found, "floors": verdicts.found}), flush=True)
    return 1 if verdicts.failed() else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""A campaign of random plans and faults against the real programs: every run must end with the digest of a quiet one.

    campaign.py <folder with tandem> [--recipe tiny] [--trials 500] [--seed 1] [--jobs 2] [--minutes 5]

Each trial starts a run on random devices and does harm to it: faults planted at named points (base/fault_points.h),
signals at random moments to random workers, workers that join and leave, Ctrl-C or kill -9 of the launcher and a resume
on other devices. Afterwards: the digest, every step recorded once, nothing left running, nothing left in memory. A
trial is a function of its number: `--trial N --verbose` repeats one.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid

POINTS = ["start", "before-phase", "in-phase", "before-combine", "after-combine", "before-apply", "after-apply",
          "at-boundary", "in-snapshot", "after-snapshot", "in-hold", "before-restore", "in-restore", "after-restore",
          "before-adopt"]
LAUNCHER_POINTS = ["launcher-order", "before-rename", "after-rename"]
ACTS = ["kill"] * 6 + ["exit", "abort", "segv", "oom", "stop"]
SIZES = {"tiny": ["--set", "samples=400", "--set", "hidden=16", "--batch-size", "48"],
         "tiny-rl": ["--set", "ring=64", "--set", "hidden=8", "--batch-size", "48"]}
STEPS = 60


class Failure(Exception):
    pass


def marked(mark):
    """The processes whose environment carries the mark: a trial's own, and what they started."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            if mark.encode() in pathlib.Path(f"/proc/{entry}/environ").read_bytes():
                state = pathlib.Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()[0]
                if state != "Z":
                    found.append(int(entry))
        except OSError:
            pass
    return found


def workers_of(launcher):
    try:
        return [int(p) for p in pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()]
    except OSError:
        return []


class Trial:
    def __init__(self, options, number, want):
        self.options, self.number, self.want = options, number, want
        self.random = random.Random(f"{options.recipe} {options.seed} {number}")
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="tandem-faults-"))
        self.mark = f"TANDEM_TRIAL_MARK={uuid.uuid4()}"
        self.story = []
        self.gentle = False  # no further harm in this trial
        self.harmed = False
        self.ended = 0

    def devices(self):
        count = self.random.randint(1, 5)
        if self.random.random() < 0.5:
            return f"cpu:{count}", count
        speeds = ",".join(str(self.random.choice([1, 1, 0.7, 0.5, 0.3])) for _ in range(count))
        return f"cpu:{count}@{speeds}", count

    def planted(self, workers):
        faults = []
        for _ in range(self.random.choice([0, 1, 1, 2, 3])):
            point, act = self.random.choice(POINTS), self.random.choice(ACTS)
            step = "" if point in ("start", "before-adopt", "before-restore", "in-restore", "after-restore", "in-hold",
                                   "in-snapshot", "after-snapshot") else f" step={self.random.randrange(STEPS)}"
            if point == "at-boundary" and self.random.random() < 0.5 and workers > 2:
                # Alone in its trial: a rank that dies before its state was compared takes the evidence with it.
                self.gentle = True
                return f"at-boundary rank={self.random.randrange(workers)}{step} do=flip"
            faults.append(f"{point} rank={self.random.randrange(workers)}{step} do={act}")
        if self.random.random() < 0.1:
            faults.append(f"{self.random.choice(LAUNCHER_POINTS)} rank=-1 do=kill")
        return ";".join(faults)

    def environment(self, faults):
        name, value = self.mark.split("=")
        return {**os.environ, name: value, "NO_COLOR": "1", "TANDEM_FAULT": faults, "TANDEM_FROZEN_SECONDS": "2"}

    def tell(self, text):
        self.story.append(text)
        if self.options.verbose:
            print(f"    {text}", file=sys.stderr, flush=True)

    def harm(self, process, ended):
        """Signals and requests at random moments while the run goes on."""
        for _ in range(0 if self.gentle else self.random.choice([0, 1, 1, 2])):
            if ended.wait(self.random.uniform(0.05, 1.2)):
                return
            self.harmed = True
            what = self.random.random()
            workers = workers_of(process.pid)
            if what < 0.6 and workers:
                number = self.random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV])
                victims = self.random.sample(workers, min(len(workers), self.random.choice([1, 1, 1, 2])))
                self.tell(f"{number.name} to {victims}")
                for victim in victims:
                    try:
                        os.kill(victim, number)
                    except ProcessLookupError:
                        pass
            elif what < 0.75:
                self.ask("join", "run", "--devices", "cpu:1")
            elif what < 0.85:
                self.ask("leave", "run", "--rank", str(self.random.randrange(5)))
            elif what < 0.93:
                self.tell("SIGINT to the launcher")
                process.send_signal(signal.SIGINT)
            else:
                self.tell("SIGKILL to the launcher")
                process.kill()

    def ask(self, *words):
        done = subprocess.run([self.options.tandem, *words], cwd=self.dir, capture_output=True, text=True,
                              env=self.environment(""))
        self.tell(f"{' '.join(words)}: {done.returncode} {(done.stdout + done.stderr).splitlines()[:1]}")

    def run(self):
        faults_left = 3
        for attempt in range(12):
            devices, count = self.devices()
            faults = self.planted(count) if faults_left > 0 and attempt < 4 else ""
            faults_left -= 1
            resume = (self.dir / "run/recipe.toml").exists()
            if not resume:  # killed before there was a run
                shutil.rmtree(self.dir / "run", ignore_errors=True)
            words = (["resume", "run"] if resume else
                     ["train", self.options.recipe, *SIZES[self.options.recipe], "--seed", "7", "--run-dir", "run"])
            words += ["--steps", str(STEPS), "--devices", devices, "--json", "--checkpoint-every",
                      self.random.choice(["auto", "7 steps", "1s"])]
            self.tell(f"{' '.join(words)}   TANDEM_FAULT='{faults}'")
            process = subprocess.Popen([self.options.tandem, *words], cwd=self.dir, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True, env=self.environment(faults))
            ended = threading.Event()
            harm = threading.Thread(target=self.harm, args=(process, ended)) if attempt < 4 else None
            if harm:
                harm.start()
            try:
                out, err = process.communicate(timeout=self.options.patience)
            except subprocess.TimeoutExpired:
                for pid in marked(self.mark):
                    self.tell(f"{pid}: " + pathlib.Path(f"/proc/{pid}/wchan").read_text())
                process.kill()
                raise Failure("it hangs")
            finally:
                ended.set()
                if harm:
                    harm.join()
            self.tell(f"exit {process.returncode}: {err[-1500:]}")
            self.no_orphans()
            if process.returncode == 0:
                return self.judge(json.loads(out))
            if process.returncode not in (130, -9, 6, 1, 4):
                raise Failure(f"exit {process.returncode}")
            if process.returncode in (1, 4, 6):  # a run may end for good only where a fault strikes again and again
                self.ended += 1
                if not (faults or self.harmed):
                    raise Failure(f"exit {process.returncode} without a fault")
        raise Failure("never came to an end")

    def no_orphans(self):
        end = time.monotonic() + 5
        while left := marked(self.mark):
            if time.monotonic() > end:
                raise Failure(f"orphans: {left}")
            time.sleep(0.01)  # lint: allow(sleep) between two looks at a condition that has its own end

    def judge(self, told):
        if told["digest"] != self.want:
            raise Failure(f"digest {told['digest']} instead of {self.want}")
        steps = [json.loads(line)["step"] for line in (self.dir / "run/metrics.jsonl").read_text().splitlines()]
        if steps != list(range(1, STEPS + 1)):
            raise Failure(f"recorded steps {steps}")
        return {"ended": self.ended, **{key: told.get(key, 0) for key in ("deaths", "generations", "frozen")}}


def quiet_digest(options):
    with tempfile.TemporaryDirectory(prefix="tandem-faults-") as folder:
        done = subprocess.run([options.tandem, "train", options.recipe, *SIZES[options.recipe], "--seed", "7", "--steps",
                               str(STEPS), "--devices", "cpu:1", "--json"], cwd=folder, capture_output=True, text=True)
        return json.loads(done.stdout)["digest"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--recipe", default="tiny", choices=SIZES)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--trial", type=int, help="this one only")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--minutes", type=float, default=0, help="stop after this time")
    parser.add_argument("--patience", type=float, default=120, help="seconds after which a run is called hanging")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    options.tandem = options.bin.resolve() / "tandem"
    want = quiet_digest(options)
    numbers = [options.trial] if options.trial is not None else list(range(options.trials))
    begin, done, failed, sums = time.monotonic(), 0, 0, {"deaths": 0, "generations": 0, "frozen": 0, "ended": 0}
    over = threading.Event()

    def one(number):
        if over.is_set() or (options.minutes and time.monotonic() - begin > options.minutes * 60):
            return None
        trial = Trial(options, number, want)
        try:
            return number, trial.run(), None, trial
        except Failure as failure:
            return number, None, failure, trial
        finally:
            shutil.rmtree(trial.dir, ignore_errors=True)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for result in pool.map(one, numbers):
            if result is None:
                continue
            number, told, failure, trial = result
            done += 1
            if failure:
                failed += 1
                print(f"trial {number}: {failure}", *trial.story, sep="\n    ", flush=True)
                print(f"    again: {sys.argv[0]} {options.bin} --recipe {options.recipe} --seed {options.seed} --trial {number}")
                if failed >= 5:
                    over.set()
            else:
                for key in sums:
                    sums[key] += told[key]
            if done % 50 == 0:
                print(f"{options.recipe}: {done} trials, {failed} failed, {sums}", file=sys.stderr, flush=True)
    print(json.dumps({"recipe": options.recipe, "trials": done, "failed": failed, "seed": options.seed,
                      "seconds": round(time.monotonic() - begin, 1), **sums}))
    if done >= 20 and (sums["ended"] > done * 0.03 or sums["deaths"] < done / 4):
        print(f"{sums['ended']} runs ended for good in {done} trials, {sums['deaths']} deaths were survived: this shows no recovery")
        return 1
    return 1 if failed or done == 0 else 0


if __name__ == "__main__":
    sys.exit(main())

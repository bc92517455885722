"""What all trials share: a plan of faults, a folder, a mark in the environment, and what is demanded at the end."""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
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
GONE_SECONDS = 5  # after the end of what was started, nothing of it runs any more
OTHERS = re.compile(r"^(RANK|WORLD_SIZE|LOCAL_|MASTER_|SLURM_|OMPI_|PMI|TORCHELASTIC|TANDEM_)")  # not ours to pass on


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


def wait_until_gone(mark):
    """Seconds until no process with the mark runs."""
    begin = time.monotonic()
    while left := marked(mark):
        if time.monotonic() > begin + GONE_SECONDS:
            raise Failure(f"orphans: {left}")
        time.sleep(0.01)  # lint: allow(sleep) between two looks at a condition that has its own end
    return time.monotonic() - begin


def put_away(mark):
    for pid in marked(mark):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def workers_of(launcher):
    try:
        return [int(p) for p in pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()]
    except OSError:
        return []


def strays():
    """Files of ours outside a trial's folders. What tests make there themselves, these and others, is not meant."""
    names = re.compile(r"^(tandem|torch_|gloo)(?!-(test|run-test|bench|faults|ends|lock|seat|start)-)")
    return {str(path) for folder in ("/dev/shm", "/tmp") for path in pathlib.Path(folder).glob("*")
            if names.match(path.name) and (folder == "/dev/shm" or path.name.startswith("tandem-"))}


def strays_since(before, seconds=90):
    """Those that stay. A command of somebody else beside us (`tandem doctor`, `plan`) takes its own away when it ends."""
    left, deadline = strays() - before, time.monotonic() + seconds
    while left and time.monotonic() < deadline:
        time.sleep(0.2)  # lint: allow(sleep) between two looks at a condition that has its own end
        left &= strays()
    return left


class Place:
    """A folder, a mark in the environment and a TMPDIR of one's own: what is left behind has one author."""

    def __init__(self, prefix):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix=prefix))
        self.mark = f"TANDEM_TRIAL_MARK={uuid.uuid4()}"
        self.temporary = self.dir / "tmp"
        self.temporary.mkdir()

    def environment(self, **more):
        name, value = self.mark.split("=")
        return {**{k: v for k, v in os.environ.items() if not OTHERS.match(k)}, name: value, "NO_COLOR": "1",
                "TMPDIR": str(self.temporary), **more}

    def left_behind(self):
        return sorted(self.temporary.iterdir())


class Trial(Place):
    points = POINTS  # where a worker may be made to fail

    def __init__(self, options, number, want):
        super().__init__("tandem-faults-")
        self.options, self.number, self.want = options, number, want
        self.random = random.Random(f"{options.recipe} {options.seed} {number}")
        self.story = []
        self.gentle = False  # no further harm in this trial
        self.harmed = False
        self.sums = {"deaths": 0, "generations": 0, "frozen": 0, "ended": 0, "resumed": 0, "leftovers": 0}

    def devices(self, count):
        if self.options.device:
            return ",".join([self.options.device] * count)
        if self.random.random() < 0.5:
            return f"cpu:{count}"
        speeds = ",".join(str(self.random.choice([1, 1, 0.7, 0.5, 0.3])) for _ in range(count))
        return f"cpu:{count}@{speeds}"

    def planted(self, workers):
        faults = []
        for _ in range(self.random.choice([0, 1, 1, 2, 3])):
            point, act = self.random.choice(self.points), self.random.choice(ACTS)
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

    def words(self, resume):
        """The command that begins the run, or goes on with it."""
        if resume:
            return ["resume", "run"]
        return ["train", self.options.recipe, *SIZES[self.options.recipe], "--seed", "7", "--run-dir", "run"]

    def there_is_a_run(self):
        if (self.dir / "run/recipe.toml").exists():
            return True
        shutil.rmtree(self.dir / "run", ignore_errors=True)  # killed before there was one
        return False

    def tell(self, text):
        self.story.append(text)
        if self.options.verbose:
            print(f"    {text}", file=sys.stderr, flush=True)

    def hangs(self):
        for pid in marked(self.mark):
            try:
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                self.tell(f"{pid}: {words}: " + pathlib.Path(f"/proc/{pid}/wchan").read_text())
            except OSError:
                pass
        raise Failure("it hangs")

    def send(self, number, pids):
        self.harmed = self.harmed or bool(pids)
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def count(self, output):
        for key in ("deaths", "generations", "frozen"):
            self.sums[key] += output.get(key, 0)

    def judge(self, output):
        if output["digest"] != self.want:
            raise Failure(f"digest {output['digest']} instead of {self.want}")
        steps = [json.loads(line)["step"] for line in (self.dir / "run/metrics.jsonl").read_text().splitlines()]
        if steps != list(range(1, STEPS + 1)):
            raise Failure(f"recorded steps {steps}")
        self.count(output)
        return self.sums


def quiet_digest(options):
    place = Place("tandem-faults-")
    try:
        done = subprocess.run([options.tandem, "train", options.recipe, *SIZES[options.recipe], "--seed", "7", "--steps",
                               str(STEPS), "--devices", "cpu:1", "--json"], cwd=place.dir, capture_output=True, text=True,
                              env=place.environment())
        return json.loads(done.stdout)["digest"]
    finally:
        shutil.rmtree(place.dir, ignore_errors=True)

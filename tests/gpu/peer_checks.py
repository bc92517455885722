"""The part `peers` of test_gpu.py: sums by kernels that read the other workers' memory, in it and through pinned host memory.

Exactness runs under MPS, each worker with its share of the SMs; kills and freezes without it: there a killed client takes
the others' contexts with it. A worker is replaced three times a minute, so a run has a few kills and there are many runs,
several at once, until --kills and --freezes are reached; what earlier calls reached (--so-far FILE, their --out) counts.
All runs with faults are over once --minutes are; until the goals are reached, that is a failed check.
"""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

from gpu_runs import Runs

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from gpu_fleet import Mps, supervised  # noqa: E402

AGENT = ["--set", "capacity=100000", "--set", "environments=16"]
# name: recipe, arguments
WORKS = {"tiny": ("tiny", ["--steps", 60]), "tiny-rl": ("tiny-rl", ["--steps", 40]),
         "web-agent": ("web-agent", ["--steps", 120, "--set", "agent=analysis", *AGENT]),
         "six agents": ("web-agent", ["--steps", 60, "--set", "agent=all", *AGENT]),
         "mixed": ("mixed", ["--steps", 12]),
         **{model: ("shards", ["--set", f"model={model}", "--batch-size", batch, "--set", f"samples={6 * batch + 3}", "--steps", 6])
            for model, batch in (("gpt", 16), ("bert", 64), ("resnet", 64))}}
THOROUGHLY = ("tiny", "web-agent")
# Their weights follow from kernels of ours alone, whatever the number of SMs.
OURS = ("web-agent", "six agents")
AT_ONCE = 4  # runs
KILLS_PER_RUN = 6
LONGEST, SHORTEST = 240, 45  # seconds: what a run may take, and what must be left for one to begin
PLACES = {"peer": "GPU memory", "pinned": "pinned host memory"}


def workers_on_gpu(count):
    return ",".join(["cuda:0"] * count)


def processes():
    """Of tandem, that are alive: pid -> name."""
    found = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            name = (folder / "comm").read_text().strip()
            if name.startswith("tandem") or name in ("gpu_mixed_model", "shard_models"):
                found[int(folder.name)] = name
        except OSError:
            pass  # it has ended
    return found


def shared_files():
    return set(os.listdir("/dev/shm"))


def exactness_runs():
    """(work, name, workers' shares, plane, environment); an empty plane: one worker."""
    for work in WORKS:
        yield work, "one worker", [12], "", {}
        for workers in (2, 3, 4, 8) if work in THOROUGHLY else (2, 8):
            yield work, f"{workers} workers", [12] * workers, "peer", {}
        for workers in (2, 3, 4, 8) if work in THOROUGHLY else (3,):
            yield work, f"{workers} workers", [12] * workers, "pinned", {}
    for work in ("tiny", "web-agent", "gpt"):
        for plane in PLACES:
            yield work, "3 workers, not captured", [12] * 3, plane, {"TANDEM_GRAPHS": "off"}
    for work in OURS:
        yield work, "50, 25, 25 %", [50, 25, 25], "peer", {}
        yield work, "50, 25, 25 %", [50, 25, 25], "pinned", {}


class Room:
    """Percents of a GPU. A block of the sum fills an SM and waits there for others: all must find room at once."""

    def __init__(self):
        self.free, self.changed = 100, threading.Condition()

    @contextlib.contextmanager
    def taken(self, percent):
        with self.changed:
            self.changed.wait_for(lambda: self.free >= percent)
            self.free -= percent
        try:
            yield
        finally:
            with self.changed:
                self.free += percent
                self.changed.notify_all()


def exactness(c):
    runs, room = Runs(c), Room()
    with Mps(True) as mps:
        def watched(words, env, cwd, timeout):
            code, out, err = supervised(mps, timeout, list(map(str, words)), cwd, {**os.environ, **env})
            return subprocess.CompletedProcess(words, 124 if code is None else code, out, err)

        def one(plan):
            work, name, shares, plane, env = plan
            recipe, args = WORKS[work]
            env = {**mps.env, "TANDEM_GPU_SHARES": ",".join(map(str, shares)), **({"TANDEM_PLANE": plane} if plane else {}), **env}
            with room.taken(sum(shares)):
                return plan, runs.output(recipe, *args, "--devices", workers_on_gpu(len(shares)), env=env, timeout=LONGEST, by=watched)
        plans = [plan for plan in exactness_runs() if c.wanted(WORKS[plan[0]][0])]
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            done = list(pool.map(one, plans))
    want = {plan[0]: output.get("digest") for plan, (output, *_) in done if not plan[3]}
    for (work, name, shares, plane, env), (output, words, _, records) in done:
        if not plane:
            c.check(bool(want[work]), f"{work}: one worker", want[work] and want[work][:12] or words[-300:])
            continue
        median = sorted(r["seconds"] for r in records[5:])[len(records[5:]) // 2] if len(records) > 5 else 0
        c.check(bool(want[work]) and output.get("digest") == want[work], f"{work}: {name}, {plane}: the digest of one worker",
                f"{1e3 * median:.2f} ms a step" if output else words[-300:])
        if not output:
            continue
        ways = {(pair["through"], pair.get("why", "")) for pair in output.get("combine", [])}
        c.check({through for through, _ in ways} == {PLACES[plane]}, f"{work}: {name}, {plane}: every pair goes that way", sorted(ways))
        if WORKS[work][0] == "web-agent" and "TANDEM_GRAPHS" not in env:
            c.check(set(records[-1]["phases"]) == {"step"} and "run eagerly" not in words,
                    f"{work}: {name}, {plane}: a step is one graph on each", list(records[-1]["phases"]))


# Where a kernel stands is up to chance. Three workers take turns on the GPU, several runs do.
FAULTS = {"tiny": ("tiny", ["--steps", 240, "--checkpoint-every", "60"]),
          "web-agent": ("web-agent", ["--steps", 240, "--set", "agent=analysis", *AGENT, "--checkpoint-every", "20"])}


def disturbed(watcher, runs, work, plane, what, wanted, seed, timeout):
    """One run; the signal to a member at random moments, at most `wanted` times. What it said (None: no end), how often it was hit."""
    recipe, args = FAULTS[work]
    chance = random.Random(seed)
    env = {**os.environ, "TANDEM_PLANE": plane, **({"TANDEM_FROZEN_SECONDS": "6"} if what == signal.SIGSTOP else {})}
    process = subprocess.Popen([runs.c.bin / "tandem", "train", recipe, "--seed", "7", "--json", *map(str, args), "--devices",
                                workers_on_gpu(3), "--run-dir", f"{work}-{plane}-{seed}"],
                               cwd=runs.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True)
    watcher.tell(process.pid)
    folder, hits, begin, hit_at, told = runs.dir / f"{work}-{plane}-{seed}", {}, time.monotonic(), 0, {}
    reader = threading.Thread(target=lambda: told.update(zip(("out", "err"), process.communicate())))
    reader.start()
    while reader.is_alive():
        reader.join(chance.uniform(0.1, 0.4))
        if time.monotonic() - begin > timeout:
            os.killpg(process.pid, signal.SIGKILL)
            reader.join()
            watcher.tell(-process.pid)
            return None, sum(hits.values()), f"no end after {timeout:.0f} s"
        try:
            live = json.loads((folder / "live.json").read_text())
        except (OSError, ValueError):  # before the first one, and while it is replaced
            continue
        members = [rank for rank in live["ranks"] if rank.get("shards", 0) > 0]
        # Each hit in a generation of all three, some steps after the last one.
        if len(members) < 3 or live["step"] < hit_at or sum(hits.values()) >= wanted:
            continue
        victim = chance.choice([rank for rank in members if hits.get(rank["rank"], 0) < 3] or members)
        try:
            os.kill(victim["pid"], what)
        except ProcessLookupError:
            continue
        hits[victim["rank"]] = hits.get(victim["rank"], 0) + 1
        hit_at = live["step"] + chance.randrange(2, 12)
    watcher.tell(-process.pid)
    output = json.loads(told["out"]) if process.returncode == 0 else {}
    return output, sum(hits.values()), "" if output else f"code {process.returncode}: {told['err'][-600:]}"


def faults(c):
    end = time.monotonic() + 60 * c.options.minutes
    runs = Runs(c)
    earlier = json.loads(c.options.so_far.read_text()).get("peer_faults", {}) if c.options.so_far else {}
    counts = {"SIGKILL": 0, "SIGSTOP": 0, **earlier}
    goals = {"SIGKILL": c.options.kills, "SIGSTOP": c.options.freezes}
    works = [work for work in FAULTS if c.wanted(FAULTS[work][0])]
    want = {work: runs.digest(FAULTS[work][0], *FAULTS[work][1], "--devices", workers_on_gpu(1)) for work in works}
    lock, seeds = threading.Lock(), iter(range(sum(counts.values()), 10 ** 6))
    under_way = dict.fromkeys(counts, 0)

    def next_plan():
        with lock:
            for name, most in (("SIGSTOP", 2), ("SIGKILL", KILLS_PER_RUN)):
                if time.monotonic() + SHORTEST < end and counts[name] + under_way[name] < goals[name]:
                    under_way[name] += most
                    seed = next(seeds)
                    return name, most, seed, works[seed % len(works)], list(PLACES)[seed // len(works) % 2]
        return None

    def work_on(watcher):
        while plan := next_plan():
            name, most, seed, work, plane = plan
            timeout = min(LONGEST, end - time.monotonic())
            output, hits, trouble = disturbed(watcher, runs, work, plane, getattr(signal, name), most, seed, timeout)
            with lock:
                under_way[name] -= most
                if output is None and timeout < LONGEST:
                    print(f"     {work}, {plane}, seed {seed}: the minutes are over, it does not count", flush=True)
                    continue
                output = output or {}
                counts[name] += hits
                c.check(output.get("digest") == want[work], f"{work}, {plane}: {hits} times {name}, seed {seed}", trouble or output["digest"][:12])
                c.results["peer_faults"] = dict(counts)
                c.save()

    with Mps(False) as watched, concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for done in [pool.submit(work_on, watched.watcher) for _ in range(AT_ONCE)]:
            done.result()
    c.results["peer_faults"] = dict(counts)
    missing = {name: f"{counts[name]} of {goal}" for name, goal in goals.items() if counts[name] < goal}
    print(f"     kills {counts['SIGKILL']} of {goals['SIGKILL']}, freezes {counts['SIGSTOP']} of {goals['SIGSTOP']}"
          f"{'; go on with --so-far ' + str(c.options.out) if missing else ''}", flush=True)
    c.check(not missing, "so many kills and freezes as were asked for", missing or counts)


def peers(c):
    before, files = processes(), shared_files()
    if c.options.faults != "only":
        try:
            exactness(c)
        except SystemExit:  # its words are on stderr; faults need no MPS
            c.check(False, "MPS starts")
    if c.options.faults != "none":
        faults(c)
    left = {pid: name for pid, name in processes().items() if pid not in before}
    c.check(not left, "no process is left", left)
    c.check(shared_files() <= files, "nothing is left in /dev/shm", shared_files() - files)

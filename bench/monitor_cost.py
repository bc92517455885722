"""What `tandem monitor` costs on eight fake GPUs beside a run: its share of a core, its memory, and what training loses by it.

    python3 bench/monitor_cost.py build/bin [--minutes 6]     everything below, one after the other, in about this time
    python3 bench/monitor_cost.py build/bin --only windows    or one of: cost, windows, fast, plant (several with commas)
    --fast is --only fast; --plant 0.03 is --only plant with that share; --json prints the result as one object at the end

All of it happens beside one long training, whose own step times are the clock. Comparing whole runs cannot see half a percent: they differ by more.

    cost      the monitor's CPU time (from the kernel, in nanoseconds) and memory at 1 Hz: page with a reader, terminal, CSV
    windows   the page's server at 1 Hz is stopped and goes on in turn (SIGSTOP, SIGCONT), a window four looks long, in the order on off off on, so that
              a drift of the machine meets both. A block of four windows gives one difference of step rates (as the logarithm of their ratio, which noise does
              not bend to one side); the result is their mean with its 95 % interval, and that of the middle four fifths
    fast      the same at 20 Hz: twenty times the effect in the same noise. What 1 Hz costs is this by the ratio of the monitor's CPU times at 1 Hz and at
              20 Hz (part of its work does not depend on the looks, so this is more than a twentieth; the twentieth is printed too). The same in parts: its share
              of the training's cores, and what a step's own CPU time grows by (caches, switches; workers wait busily, so other work on the machine shows there)
    plant     instead of a monitor, a spinner on each core that takes a known share of it: shows that such windows see what is there

Needs libfake_nvml.so (`scripts/build.sh fake_nvml`). Ctrl-C ends it with what it has. Other work on the machine widens the intervals, and is printed as its load.
"""
import argparse
import bisect
import contextlib
import json
import math
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse

EIGHT = {"preset": "8xh100", "every": {"load": 0.8, "used_gb": 52, "pcie_rx_mb": 900, "pcie_tx_mb": 300,
                                       "processes": [{"pid": 4711, "memory_mb": 51000, "name": "/opt/tandem/tandem-worker"}]}}
FAST_HZ = 20
SHORT = .5   # seconds of a window where the effect is large
PARTS = {"cost": .25, "windows": .25, "fast": .35, "plant": .15}   # of the time
SPIN = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
share, period = float(sys.argv[2]), 0.05
while True:
    begin, end = time.monotonic(), time.thread_time() + share * period
    while time.thread_time() < end:
        pass
    time.sleep(max(0, begin + period - time.monotonic()))
"""


def cpu_seconds(pid):
    """That all threads of a process have had a core, by the scheduler's own clock."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            total += int((task / "schedstat").read_text().split()[0])
    return total * 1e-9


def switches(pid):
    """How often a process was made to give up its core."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return int(re.search(r"^nonvoluntary_ctxt_switches:\s*(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M).group(1))
    return 0


def peak_mb(pid):
    return int(re.search(r"VmHWM:\s*(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1)) / 1024


def student(freedom):
    """The 97.5th percentile of Student's t."""
    table = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09, 2.09]
    return table[freedom - 1] if freedom <= len(table) else 1.96 + 2.5 / freedom


def mean_interval(values):
    """(mean, half of its 95 % interval)"""
    if len(values) < 2:
        return (values[0] if values else math.nan), math.nan
    return statistics.fmean(values), student(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def middle(values):
    """The same of the middle four fifths (Tukey and McLaughlin): what else the machine does makes a few blocks wild, both ways."""
    cut = len(values) // 10
    if not cut:
        return mean_interval(values)
    ordered = sorted(values)
    kept = ordered[cut:-cut]
    bent = [kept[0]] * cut + kept + [kept[-1]] * cut
    return statistics.fmean(kept), student(len(kept) - 1) * statistics.stdev(bent) / (len(kept) / len(values)) / math.sqrt(len(values))


class Training:
    """A run that goes on until the end, and when it made its steps."""

    def __init__(self, bench):
        self.process = subprocess.Popen([bench.bin / "tandem", "train", "tiny", "--steps", "1000000000", "--seed", "7", "--devices", bench.options.devices, "--quiet"],
                                        cwd=bench.dir, env=bench.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.times, self.steps, self.file = [], [], None
        deadline = time.monotonic() + 120
        while len(self.times) < 200:   # the first steps are slower
            if self.process.poll() is not None:
                raise SystemExit("error: the training ended\n" + self.process.stderr.read())
            if time.monotonic() > deadline:
                raise SystemExit("error: the training makes no steps\n  why    200 of them were awaited for two minutes\n  do     look at `tandem train tiny --devices " + bench.options.devices + "`")
            time.sleep(.2)
            if self.file is None:
                self.file = next((path.open() for path in (bench.dir / "runs").glob("tiny-*/metrics.jsonl")), None)
            else:
                self.read()
        self.run = pathlib.Path(self.file.name).parent
        self.workers = [rank["pid"] for rank in json.loads((self.run / "live.json").read_text())["ranks"]]

    def read(self):
        while (line := self.file.readline()).endswith("\n"):
            record = json.loads(line)
            self.times.append(record["t"])
            self.steps.append(record["step"])
        if line:   # half of one
            self.file.seek(self.file.tell() - len(line))

    def read_past(self, moment):
        deadline = time.monotonic() + 60
        self.read()
        while self.times[-1] < moment:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("error: the training makes no more steps")
            time.sleep(.1)
            self.read()

    def rate(self, begin, end):
        """Steps a second between two moments, parts of steps counted."""
        def steps(moment):
            i = min(max(bisect.bisect_left(self.times, moment), 1), len(self.times) - 1)
            t0, t1 = self.times[i - 1], self.times[i]
            return self.steps[i - 1] + (self.steps[i] - self.steps[i - 1]) * ((moment - t0) / (t1 - t0) if t1 > t0 else 1)
        return (steps(end) - steps(begin)) / (end - begin)

    def forget(self):
        del self.times[:-10], self.steps[:-10]

    def cpu(self):
        return sum(map(cpu_seconds, self.workers))

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()


class Bench:
    def __init__(self, options):
        self.options, self.bin = options, pathlib.Path(options.bin).resolve()
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="tandem-monitor-cost-"))
        (self.dir / "machine.json").write_text(json.dumps(EIGHT))
        fake = self.bin.parent / "tests" / "libfake_nvml.so"
        if not fake.exists():
            raise SystemExit(f"error: {fake} is missing\n  why    the eight GPUs are played by it\n  do     scripts/build.sh fake_nvml")
        self.env = {**os.environ, "NO_COLOR": "1", "TERM": "xterm-256color", "TANDEM_NVML": str(fake), "FAKE_NVML_SCRIPT": str(self.dir / "machine.json")}
        self.training = None

    def say(self, text):
        print(text, file=sys.stderr if self.options.json else sys.stdout, flush=True)

    def monitor(self, *args, **more):
        return subprocess.Popen([self.bin / "tandem", "monitor", "--runs-root", self.dir / "runs", *args], cwd=self.dir, env=self.env, **more)

    @contextlib.contextmanager
    def page(self, hz=1):
        """The page's server, with one reader, as a browser would be."""
        process = self.monitor("--web", "--interval", str(1 / hz), "--history", self.dir / "history.sqlite", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        address = urllib.parse.urlsplit(process.stdout.readline().strip())
        with socket.create_connection(("127.0.0.1", address.port)) as stream:
            token = urllib.parse.parse_qs(address.query)["token"][0]
            stream.sendall(f"GET /live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
            reader = subprocess.Popen(["cat"], stdin=stream, stdout=subprocess.DEVNULL)
            try:
                yield process, None
            finally:
                process.send_signal(signal.SIGCONT)
                for one in (process, reader):
                    one.kill()
                    one.wait()
                process.stdout.close()

    @contextlib.contextmanager
    def terminal(self):
        master, slave = pty.openpty()
        process = self.monitor("--history", self.dir / "history.sqlite", stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        try:
            yield process, master
        finally:
            process.kill()
            process.wait()
            os.close(master)

    @contextlib.contextmanager
    def table(self):
        process = self.monitor("--csv", "--interval", "1", stdout=subprocess.DEVNULL)
        try:
            yield process, None
        finally:
            process.kill()
            process.wait()

    def cost(self, view, seconds):
        """Over the seconds asked for, after two for the start."""
        with view as (process, drain):
            def wait(length):
                end = time.monotonic() + length
                while (left := end - time.monotonic()) > 0:
                    if drain is None:
                        time.sleep(left)
                    elif select.select([drain], [], [], left)[0]:
                        os.read(drain, 1 << 16)
            wait(2)
            before, theirs, begin = cpu_seconds(process.pid), self.training.cpu(), time.monotonic()
            wait(seconds)
            took, theirs, wall = cpu_seconds(process.pid) - before, self.training.cpu() - theirs, time.monotonic() - begin
            return {"percent_of_a_core": round(100 * took / wall, 3), "percent_of_the_trainings_cores": round(100 * took / theirs, 3), "memory_mb": round(peak_mb(process.pid), 1)}

    def costs(self, seconds):
        self.say(f"cost at 1 Hz, {seconds / 3:.0f} s each (goal: under 1 % of a core, 60 MB)")
        result = {}
        for name, view in (("page", self.page), ("terminal", self.terminal), ("csv", self.table)):
            result[name] = one = self.cost(view(), max(3, seconds / 3 - 2))
            self.say(f"  {name:<9} {one['percent_of_a_core']:6.3f} % of a core  {one['percent_of_the_trainings_cores']:6.3f} % of what training has  {one['memory_mb']:5.1f} MB")
        return result

    def blocks(self, pids, length, seconds):
        """One row for each block of four windows, until the time is over: what is slower while the disturbers go on, and what they take."""
        rows, waiting, end = [], [], time.monotonic() + seconds
        forced, windows = {True: 0, False: 0}, 0

        def settle():   # the run writes its steps down about once a second, so a block is judged a little later
            while waiting and waiting[0][0][-1][2] <= self.training.times[-1]:
                moments, took = waiting.pop(0)
                rate, work = {True: 0, False: 0}, {True: 0, False: 0}
                for on, begin, finish, cpu in moments:
                    steps = self.training.rate(begin, finish)
                    rate[on] += steps / 2
                    work[on] += cpu / ((finish - begin) * steps) / 2 if steps > 0 else -math.inf
                if min(*rate.values(), *work.values()) <= 0:   # no step in half a second, or a thread that ended and took its time along
                    continue
                rows.append((100 * math.log(rate[False] / rate[True]), 100 * math.log(work[True] / work[False]), 100 * took / (2 * length)))
                self.say(f"  {len(rows):3} {rate[True]:8.2f} steps/s with, {rate[False]:8.2f} without: slower by {rows[-1][0]:+6.2f} %, CPU time of a step {rows[-1][1]:+6.2f} %; "
                         f"it has {rows[-1][2]:5.2f} % of a core")

        with contextlib.suppress(KeyboardInterrupt):
            while not windows or time.monotonic() + 4 * length < end:
                moments, took = [], 0
                for on in (True, False, False, True):
                    for pid in pids:
                        os.kill(pid, signal.SIGCONT if on else signal.SIGSTOP)
                    own, pushed, work, begin = sum(map(cpu_seconds, pids)), sum(map(switches, self.training.workers)), self.training.cpu(), time.time()
                    time.sleep(length)
                    moments.append((on, begin, time.time(), self.training.cpu() - work))
                    forced[on] += sum(map(switches, self.training.workers)) - pushed
                    took += sum(map(cpu_seconds, pids)) - own if on else 0
                windows += 2
                waiting.append((moments, took))
                self.training.read()
                settle()
        self.training.read_past(waiting[-1][0][-1][2] if waiting else 0)
        settle()
        self.training.forget()
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        if not rows:
            raise SystemExit("error: no block could be judged\n  why    the training made no step in some window of each\n  do     end what else runs here, or give more --minutes")
        slower, half = mean_interval([row[0] for row in rows])
        inner, half_inner = middle([row[0] for row in rows])
        dearer, half_dearer = mean_interval([row[1] for row in rows])
        return {"slow_down_percent": slower, "half_interval_95": half, "middle_percent": inner, "middle_half_interval_95": half_inner,
                "cpu_of_a_step_percent": dearer, "cpu_of_a_step_half_interval_95": half_dearer,
                "blocks": len(rows), "window_s": length, "percent_of_a_core": statistics.fmean(row[2] for row in rows),
                "forced_switches_per_s": {"with": forced[True] / (length * windows), "without": forced[False] / (length * windows)}}

    def text_of(self, result):
        f = result["forced_switches_per_s"]
        return (f"{result['slow_down_percent']:+.3f} % ± {result['half_interval_95']:.3f} (mean of {result['blocks']} blocks; of the middle four fifths {result['middle_percent']:+.3f} ± {result['middle_half_interval_95']:.3f})\n"
                f"  a step's CPU time {result['cpu_of_a_step_percent']:+.3f} % ± {result['cpu_of_a_step_half_interval_95']:.3f}; the disturber had {result['percent_of_a_core']:.2f} % of a core; "
                f"workers were pushed off a core {f['with']:.1f} times a second with it, {f['without']:.1f} without")

    def windows(self, seconds):
        self.say("slow-down of training by the page's server at 1 Hz, windows of 4 s (goal: under 0.5 %)")
        with self.page() as (process, _):
            time.sleep(2)
            result = self.blocks([process.pid], 4, seconds - 2)
        self.say("  slower by " + self.text_of(result))
        return result

    def fast(self, seconds):
        self.say(f"the same at {FAST_HZ} Hz, windows of {SHORT} s")
        one = self.cost(self.page(), seconds * .2)
        with self.page(FAST_HZ) as (process, _):
            time.sleep(2)
            result = self.blocks([process.pid], SHORT, seconds * .8 - 4)
        ratio = one["percent_of_a_core"] / result["percent_of_a_core"]
        result["at_1_hz"] = {"own_percent_of_a_core": one["percent_of_a_core"], "own_percent_of_the_trainings_cores": one["percent_of_the_trainings_cores"], "ratio_of_cpu": ratio,
                             "slow_down_percent": result["slow_down_percent"] * ratio, "half_interval_95": result["half_interval_95"] * ratio,
                             "middle_percent": result["middle_percent"] * ratio, "middle_half_interval_95": result["middle_half_interval_95"] * ratio,
                             "cpu_of_a_step_percent": result["cpu_of_a_step_percent"] * ratio, "cpu_of_a_step_half_interval_95": result["cpu_of_a_step_half_interval_95"] * ratio,
                             "twentieth_percent": result["slow_down_percent"] / FAST_HZ, "twentieth_half_interval_95": result["half_interval_95"] / FAST_HZ}
        at = result["at_1_hz"]
        self.say("  slower by " + self.text_of(result))
        self.say(f"  at 1 Hz, by CPU time ({one['percent_of_a_core']:.3f} % of a core there: 1/{1 / ratio:.1f}): slower by {at['slow_down_percent']:+.3f} % ± {at['half_interval_95']:.3f}, by the middle {at['middle_percent']:+.3f} ± {at['middle_half_interval_95']:.3f}"
                 f" (a twentieth: {at['twentieth_percent']:+.3f} % ± {at['twentieth_half_interval_95']:.3f}; goal: under 0.5 %)")
        self.say(f"  in parts, where the cores are full: {at['own_percent_of_the_trainings_cores']:.3f} % that it takes of training's cores, and a step's own CPU time "
                 f"{at['cpu_of_a_step_percent']:+.3f} % ± {at['cpu_of_a_step_half_interval_95']:.3f} (caches, switches)")
        return result

    def plant(self, seconds):
        share, cores = self.options.plant or .03, sorted(os.sched_getaffinity(0))
        self.say(f"what the windows see of a spinner that takes {100 * share:.1f} % of each of {len(cores)} cores, windows of {SHORT} s")
        spinners = [subprocess.Popen([sys.executable, "-c", SPIN, str(core), str(share)]) for core in cores]
        try:
            time.sleep(1)
            result = self.blocks([one.pid for one in spinners], SHORT, seconds - 1)
        finally:
            for one in spinners:
                one.send_signal(signal.SIGCONT)
                one.kill()
                one.wait()
        result["planted_percent"] = 100 * share
        self.say("  slower by " + self.text_of(result))
        return result

    def all(self):
        wanted = [part for part in PARTS if part in self.options.only]
        whole, begin = sum(PARTS[part] for part in wanted), time.monotonic()
        result = {"cores": len(os.sched_getaffinity(0)), "devices": self.options.devices, "load_before": round(os.getloadavg()[0], 2)}
        self.say(f"load {result['load_before']} on {result['cores']} cores before; training tiny on {self.options.devices}")
        self.training = Training(self)
        seconds = 60 * self.options.minutes - (time.monotonic() - begin)
        try:
            for part in wanted:
                act = {"cost": self.costs, "windows": self.windows, "fast": self.fast, "plant": self.plant}[part]
                result[part] = act(seconds * PARTS[part] / whole)
        finally:
            self.training.close()
        return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", help="folder with tandem and tandem-worker")
    parser.add_argument("--minutes", type=float, default=6)
    parser.add_argument("--only", default="", help="cost, windows, fast, plant")
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--plant", type=float, metavar="SHARE")
    parser.add_argument("--devices", default=f"cpu:{min(2, len(os.sched_getaffinity(0)))}")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.only = [part for part in options.only.split(",") if part] + ["fast"] * options.fast + ["plant"] * (options.plant is not None) or list(PARTS)
    if unknown := set(options.only) - set(PARTS):
        parser.error(f"--only knows {', '.join(PARTS)}, not {', '.join(sorted(unknown))}")
    if not 0.2 <= options.minutes <= 600 or not 0 < (options.plant or .03) < .5:
        parser.error("--minutes is 0.2 to 600, --plant more than 0 and less than 0.5")
    bench = Bench(options)
    try:
        result = bench.all()
    finally:
        shutil.rmtree(bench.dir, ignore_errors=True)
    def plain(value):
        if isinstance(value, dict):
            return {key: plain(one) for key, one in value.items()}
        return (round(value, 4) if math.isfinite(value) else None) if isinstance(value, float) else value
    if options.json:
        print(json.dumps(plain(result)))


if __name__ == "__main__":
    main()

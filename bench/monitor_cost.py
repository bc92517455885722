"""What `tandem monitor` costs: its share of a core and its memory at 1 Hz on eight fake GPUs beside a run, and what it takes from training.

    python3 bench/monitor_cost.py build/bin [--seconds 30] [--pairs 8] [--steps 4000] [--devices cpu:1] [--json]

Training is measured in pairs, with and without a monitor (its page open), in turns, each beginning every second pair: what else happens on the machine
meets both. The slow-down is the median of the pairs' ratios, with the interval that holds it in 95 % of 10,000 resamplings. Needs libfake_nvml.so
(`scripts/build.sh fake_nvml`). Figures are worth something on a quiet machine only.
"""
import argparse
import contextlib
import json
import os
import pathlib
import pty
import random
import re
import select
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.parse

EIGHT = {"preset": "8xh100", "every": {"load": 0.8, "used_gb": 52, "pcie_rx_mb": 900, "pcie_tx_mb": 300,
                                       "processes": [{"pid": 4711, "memory_mb": 51000, "name": "/opt/tandem/tandem-worker"}]}}


class Bench:
    def __init__(self, options):
        self.options, self.bin = options, pathlib.Path(options.bin).resolve()
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="tandem-monitor-cost-"))
        (self.dir / "machine.json").write_text(json.dumps(EIGHT))
        fake = self.bin.parent / "tests" / "libfake_nvml.so"
        if not fake.exists():
            raise SystemExit(f"error: {fake} is missing\n  why    the eight GPUs are played by it\n  do     scripts/build.sh fake_nvml")
        self.env = {**os.environ, "NO_COLOR": "1", "TERM": "xterm-256color", "TANDEM_NVML": str(fake), "FAKE_NVML_SCRIPT": str(self.dir / "machine.json")}

    def monitor(self, *args, **more):
        return subprocess.Popen([self.bin / "tandem", "monitor", "--runs-root", self.dir / "runs", *args], cwd=self.dir, env=self.env, **more)

    @contextlib.contextmanager
    def page(self):
        """The page's server, with one reader, as a browser would be."""
        process = self.monitor("--web", "--history", self.dir / "history.sqlite", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        address = urllib.parse.urlsplit(process.stdout.readline().strip())
        with socket.create_connection(("127.0.0.1", address.port)) as stream:
            token = urllib.parse.parse_qs(address.query)["token"][0]
            stream.sendall(f"GET /live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
            reader = subprocess.Popen(["cat"], stdin=stream, stdout=subprocess.DEVNULL)
            try:
                yield process
            finally:
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
            yield process
        finally:
            process.kill()
            process.wait()

    def cost(self, pid, drain=None):
        """(share of a core, most memory in MB) over the seconds asked for, after two for the start."""
        def spent():
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        def wait(seconds):
            end = time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0:
                if drain is None:
                    time.sleep(left)
                elif select.select([drain], [], [], left)[0]:
                    os.read(drain, 1 << 16)
        wait(2)
        before, begin = spent(), time.monotonic()
        wait(self.options.seconds)
        share = (spent() - before) / (time.monotonic() - begin)
        memory = int(re.search(r"VmHWM:\s*(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1)) / 1024
        return {"percent_of_a_core": round(100 * share, 3), "memory_mb": round(memory, 1)}

    def costs(self):
        training = subprocess.Popen([self.bin / "tandem", "train", "tiny", "--steps", "100000000", "--devices", self.options.devices], cwd=self.dir, env=self.env,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            with self.page() as process:
                page = self.cost(process.pid)
            with self.terminal() as (process, master):
                terminal = self.cost(process.pid, master)
            with self.table() as process:
                table = self.cost(process.pid)
        finally:
            training.kill()
            training.wait()
        return {"page": page, "terminal": terminal, "csv": table}

    def train(self):
        """Seconds of the steps alone, by the run's own record."""
        subprocess.run([self.bin / "tandem", "train", "tiny", "--steps", str(self.options.steps), "--seed", "7", "--devices", self.options.devices, "--quiet"], cwd=self.dir, env=self.env, check=True, stdout=subprocess.DEVNULL)
        run = max((self.dir / "runs").glob("tiny-*"), key=lambda path: path.stat().st_mtime)
        times = [json.loads(line)["t"] for line in (run / "metrics.jsonl").read_text().splitlines()]
        shutil.rmtree(run)
        return times[-1] - times[len(times) // 20]   # without the first twentieth

    def pairs(self):
        ratios, seconds = [], {"with": [], "without": []}
        for pair in range(self.options.pairs):
            took = {}
            for which in ("with", "without") if pair % 2 else ("without", "with"):
                with self.page() if which == "with" else contextlib.nullcontext():
                    took[which] = self.train()
                seconds[which].append(took[which])
            ratios.append(took["with"] / took["without"])
        rng = random.Random(1)
        resampled = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(10000))
        return {"slow_down_percent": round(100 * (statistics.median(ratios) - 1), 2),
                "interval_95": [round(100 * (resampled[i] - 1), 2) for i in (250, 9749)],
                "pairs": len(ratios), "steps": self.options.steps, "devices": self.options.devices,
                "median_seconds": {which: round(statistics.median(all), 3) for which, all in seconds.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", help="folder with tandem and tandem-worker")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--devices", default="cpu:1")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    bench = Bench(options)
    try:
        result = {"cost": bench.costs(), "training": bench.pairs()}
    finally:
        shutil.rmtree(bench.dir, ignore_errors=True)
    if options.json:
        print(json.dumps(result))
        return
    print(f"monitor at 1 Hz on 8 fake GPUs beside a run, {options.seconds:.0f} s each (goal: under 1 % of a core, 60 MB)")
    for name, cost in result["cost"].items():
        print(f"  {name:<9} {cost['percent_of_a_core']:6.2f} % of a core  {cost['memory_mb']:6.1f} MB")
    t = result["training"]
    print(f"training of tiny, {t['steps']} steps on {t['devices']}, {t['pairs']} pairs in turns (goal: under 0.5 %)\n"
          f"  slower by {t['slow_down_percent']:.2f} % ({t['interval_95'][0]:.2f} to {t['interval_95'][1]:.2f}); "
          f"{t['median_seconds']['with']:.2f} s with, {t['median_seconds']['without']:.2f} s without")


if __name__ == "__main__":
    main()

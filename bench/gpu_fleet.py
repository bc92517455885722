#!/usr/bin/env python3
"""Several workers on one GPU as if they were several GPUs: NVIDIA's MPS gives each its share of the SMs.

    python3 bench/gpu_fleet.py build/bin --work dqn tiny --workers 1 2 3 4 8 --share 12 --plane peer --json fleet.json
    python3 bench/gpu_fleet.py build/bin --work tiny --shares 50,25,25 --plane peer     # unequal GPUs
    python3 bench/gpu_fleet.py build/bin --cpu --quick                                  # without a GPU: does it work?

MPS is started here and ended whatever happens, by a watcher where this program is killed with -9, as is the run that
goes on then; without MPS several processes take turns on a GPU and every figure is wrong. Each worker has at most its share of the SMs; memory bandwidth, L2 and faults
are shared, and nothing here shows a real link between GPUs. One line for each number of workers: the median step, how
many times as fast as one worker, the efficiency, the share of communication (`tandem explain`), the digest, and what
the guides claim, and below it how the GPUs combined. All runs of a work must have one digest; where kinds are mixed
(unequal shares, for a model with library kernels), digests are shown and not compared. --json is written after each run.

  dqn     web-agent, batch 256, 256 environments            dqn-wide   the same with 8,192 environments
  tiny    hidden 4,096, batch 1,536, 8 shards: 69 MB of gradient
  tiny-4  the same with batch 6,144: four times the computing for a byte of gradient

Exit 1 if digests differ or a run fails, 2 if MPS does not start.
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
import threading

GUIDES = {2: 1.8, 3: 2.6, 4: 3.6, 8: 6.8}  # times as fast as one GPU, as the guides say it
TINY = ["tiny", "--set", "hidden=4096", "--set", "shards=8", "--set", "samples=24576"]
WORKS = {"dqn": (["web-agent", "--set", "agent=analysis"], 3000),
         "dqn-wide": (["web-agent", "--set", "agent=analysis", "--set", "environments=8192"], 2000),
         "tiny": ([*TINY, "--batch-size", "1536"], 120),
         "tiny-4": ([*TINY, "--batch-size", "6144"], 60)}
QUICK = {"dqn": (["tiny-rl", "--set", "ring=64", "--set", "hidden=8", "--batch-size", "48"], 60),
         "tiny": (["tiny", "--set", "samples=400", "--set", "hidden=64", "--batch-size", "48"], 60)}


# Ends what this program started when its end of the pipe is gone: the process groups of its runs, then MPS. It is told
# a run's number when that begins, and less than zero when it has ended.
WATCHER = """
import os, signal, subprocess, sys
runs = set()
for line in sys.stdin:
    if line.strip() == "done":
        sys.exit()
    run = int(line)
    runs.add(run) if run > 0 else runs.discard(-run)
for run in runs:
    try:
        os.killpg(run, signal.SIGKILL)
    except ProcessLookupError:
        pass
if sys.argv[1] == "mps":
    subprocess.run(["nvidia-cuda-mps-control"], input="quit\\n", text=True, stdout=subprocess.DEVNULL, timeout=60)
"""


class Watcher:
    def __init__(self, mps, env):
        self.lock = threading.Lock()
        self.process = subprocess.Popen([sys.executable, "-c", WATCHER, "mps" if mps else "none"], env=env,
                                        stdin=subprocess.PIPE, text=True, start_new_session=True)

    def tell(self, words):
        try:
            with self.lock:
                print(words, file=self.process.stdin, flush=True)
        except OSError:
            pass  # it is gone: this program goes on without it

    def end(self):
        self.tell("done")
        self.process.wait()


class Mps:
    """NVIDIA's MPS daemon of our own, in folders of its own, and the watcher over what is started."""

    def __init__(self, wanted):
        self.wanted, self.env = wanted, dict(os.environ)

    def __enter__(self):
        if not self.wanted:
            self.watcher = Watcher(False, self.env)
            return self
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tandem-mps-"))
        pipe, log = self.folder / "pipe", self.folder / "log"
        pipe.mkdir(), log.mkdir()
        self.env |= {"CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_MPS_LOG_DIRECTORY": str(log)}
        try:
            subprocess.run(["nvidia-cuda-mps-control", "-d"], env=self.env, check=True, stdout=subprocess.DEVNULL, timeout=60)
        except (OSError, subprocess.SubprocessError) as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            print(f"error: MPS does not start: {error}\n  why    several workers of one GPU would take turns\n"
                  "  do     run this where nvidia-cuda-mps-control is, or with --cpu", file=sys.stderr)
            sys.exit(2)
        self.watcher = Watcher(True, self.env)
        return self

    def __exit__(self, *_):
        if self.wanted:
            try:
                subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, env=self.env,
                               stdout=subprocess.DEVNULL, timeout=60)
            except (OSError, subprocess.SubprocessError) as error:
                print(f"warning: MPS did not end by itself: {error}", file=sys.stderr)
            shutil.rmtree(self.folder, ignore_errors=True)
        self.watcher.end()


def supervised(mps, timeout, words, folder, env):
    """Code (None: no end in time) and what the program said; a group of its own, which ends with it, and with this one."""
    try:
        process = subprocess.Popen(words, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   start_new_session=True)
    except OSError as error:
        return 127, "", f"{words[0]}: {error.strerror}\n"
    mps.watcher.tell(process.pid)
    try:
        out, err = process.communicate(timeout=timeout)
        return process.returncode, out, err
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        return None, out, f"{err}no end after {timeout:.0f} s\n"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        mps.watcher.tell(-process.pid)


def train(mps, options, work, workers, shares):
    words, steps = (QUICK if options.quick else WORKS)[work]
    devices = f"cpu:{workers}" if options.cpu else ",".join(["cuda:0"] * workers)
    env = {**mps.env, "TANDEM_PLANE": options.plane}
    if shares:
        env["TANDEM_GPU_SHARES"] = ",".join(map(str, shares))
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
        code, out, err = supervised(mps, options.timeout, [options.tandem, "train", *words, "--seed", "7", "--steps", str(options.steps or steps),
                                            "--checkpoint-every", "never", "--json", "--devices", devices, *options.more], folder, env)
        if code != 0:
            return {"work": work, "workers": workers, "trouble": f"code {code}: {err[-600:]}"}
        reply = json.loads(out)
        run = pathlib.Path(folder) / reply["dir"]
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        events = [json.loads(line).get("text", "") for line in (run / "events.jsonl").read_text().splitlines()]
        code, out, _ = supervised(mps, options.timeout, [options.tandem, "explain", reply["dir"], "--json"], folder, env)
        told = json.loads(out) if code == 0 else {}
        settled = records[len(records) // 5:]
        phases = {}
        for record in settled:
            for name, seconds in record.get("phases", {}).items():
                phases.setdefault(name, []).append(seconds)
        return {"work": work, "workers": workers, "shares": shares, "plane": options.plane, "digest": reply["digest"], "kind": reply["kind"], "pairs": reply.get("combine"),
                "step_seconds": statistics.median(r["seconds"] for r in settled),
                "samples_per_s": settled[-1].get("samples", 0) / statistics.median(r["seconds"] for r in settled),
                "phases": {name: statistics.median(seconds) for name, seconds in phases.items()},
                "communication": told.get("shares", {}).get("communication"), "shares_of_step": told.get("shares"),
                "notes": sorted({text for text in events if any(word in text for word in ("eager", "host memory", "kernels", "kind"))})}


def line_of(row, one):
    if "trouble" in row:
        return f"{row['work']:<9} {row['workers']} workers: {row['trouble']}"
    speedup = one / row["step_seconds"] if one else 1
    claim = GUIDES.get(row["workers"])
    communication = "" if row["communication"] is None else f"{100 * row['communication']:3.0f} % communication"
    return (f"{row['work']:<9} {row['workers']} worker{'s' if row['workers'] > 1 else ' '} {row['step_seconds'] * 1e6:10.0f} us"
            f" {speedup:6.2f}x  efficiency {speedup / row['workers']:4.2f}  {communication:<19}"
            f" {'guides ' + str(claim) + 'x' if claim else '':<12} {row['digest'][:12]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=pathlib.Path, help="folder with tandem, such as build/bin")
    parser.add_argument("--work", nargs="*", choices=WORKS, default=["dqn", "tiny"], help="none of them: --work without a word")
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2, 3, 4, 8])
    parser.add_argument("--share", type=int, default=12, help="percent of the SMs that each worker may use; 100: all")
    parser.add_argument("--shares", help="unequal ones, as 50,25,25: these workers together, and each alone")
    parser.add_argument("--plane", default="auto", help="TANDEM_PLANE of the runs")
    parser.add_argument("--steps", type=int, help="of each run")
    parser.add_argument("--sums", action="store_true", help="first the sum alone, 1.5 MB and 69 MB (bench/peer_sum)")
    parser.add_argument("--timeout", type=float, default=300, help="seconds that a run may take")
    parser.add_argument("--cpu", action="store_true", help="CPU workers, no MPS")
    parser.add_argument("--quick", action="store_true", help="small runs")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("more", nargs="*", help="more words for `tandem train`, after --")
    options = parser.parse_args()
    options.tandem = (options.bin / "tandem").resolve()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # MPS is ended on the way
    rows, sums, good = [], [], True

    def keep():
        if options.json:
            options.json.write_text(json.dumps({"sums": sums, "rows": rows}, indent=1) + "\n")

    with Mps(not options.cpu) as mps:
        if options.sums:
            ranks = [str(n) for n in options.workers if n > 1]
            words = [options.bin.resolve().parent / "bench" / "peer_sum", *(["--cpu", "--rounds", "4"] if options.cpu else ["--share", str(options.share)]), *ranks]
            code, out, err = supervised(mps, options.timeout, words, None, mps.env)
            print(out + (err if code != 0 else ""), end="", flush=True)
            sums = [json.loads(line) for line in out.splitlines() if line.startswith("{") and line.endswith("}")]
            good = code == 0 and bool(sums)
            keep()
        for work in options.work:
            digests, mixed, one = set(), False, None
            if options.shares:
                shares = [int(word) for word in options.shares.split(",")]
                plans = [(1, [share]) for share in dict.fromkeys(shares)] + [(len(shares), shares)]
            else:
                plans = [(workers, [options.share] if options.share < 100 else []) for workers in options.workers]
            alone = {}
            for workers, shares in plans:
                row = train(mps, options, work, workers, shares)
                rows.append(row)
                if "trouble" not in row:
                    digests.add(row["digest"])
                    mixed = mixed or row["kind"] == "mixed"
                    one = one or (row["step_seconds"] if workers == 1 else None)
                    if workers == 1 and shares:
                        alone[shares[0]] = 1 / row["step_seconds"]
                print(line_of(row, one), flush=True)
                for note in row.get("notes", []):
                    print(f"          {note}")
                if options.shares and workers > 1 and "trouble" not in row:
                    if all(share in alone for share in shares):
                        row["of_summed"] = 1 / row["step_seconds"] / sum(alone[share] for share in shares)
                        print(f"          {100 * row['of_summed']:.0f} % of the summed speed of these workers alone")
                good = good and "trouble" not in row
                keep()
            good = good and (len(digests) == 1 or (mixed and digests))
            print(f"{work}: {'one digest' if len(digests) == 1 else 'several digests, and kinds are mixed' if mixed and digests else 'DIGESTS DIFFER'}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""A step of the DQN on 1, 2 and 4 workers of one GPU under NVIDIA's MPS: python3 bench/gpu_dqn_workers.py <folder with tandem>

MPS is started and ended here; without it several processes take turns on a GPU and every figure is wrong. With
--share 12 each worker gets at most 12 % of the SMs: small GPUs in one. All runs must have one digest. One line for
each number of workers: the median step in microseconds, its phases, the digest. Exit 1 if digests differ, 2 without MPS.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile


class Mps:
    """NVIDIA's MPS daemon of our own, in folders of its own."""

    def __init__(self, share):
        self.folder = tempfile.TemporaryDirectory(prefix="tandem-mps-")
        pipe, log = (pathlib.Path(self.folder.name) / name for name in ("pipe", "log"))
        pipe.mkdir(), log.mkdir()
        self.env = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_MPS_LOG_DIRECTORY": str(log)}
        if share:
            self.env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(share)

    def __enter__(self):
        try:
            subprocess.run(["nvidia-cuda-mps-control", "-d"], env=self.env, check=True, stdout=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"MPS does not start: {error}", file=sys.stderr)
            sys.exit(2)
        return self

    def __exit__(self, *_):
        subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, env=self.env, stdout=subprocess.DEVNULL)
        self.folder.cleanup()


def train(tandem, workers, options, env):
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
        done = subprocess.run([tandem, "train", "web-agent", "--set", f"agent={options.agent}", "--seed", "7", "--steps", str(options.steps),
                               "--precision", options.precision, "--checkpoint-every", "never", "--json",
                               "--devices", ",".join(["cuda:0"] * workers)], cwd=folder, capture_output=True, text=True, env=env)
        if done.returncode != 0:
            sys.exit(f"{workers} workers: code {done.returncode}\n{done.stderr[-2000:]}")
        reply = json.loads(done.stdout)
        run = pathlib.Path(folder) / reply["dir"]
        reply["records"] = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        reply["events"] = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
        return reply


def median_us(values):
    return 1e6 * statistics.median(values)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=pathlib.Path, help="folder with tandem, such as build/bin")
    parser.add_argument("--agent", default="analysis", help="one, several with commas, or all")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--share", type=int, default=0, help="percent of the SMs that each worker may use; 0: all")
    options = parser.parse_args()
    digests = set()
    with Mps(options.share) as mps:
        for workers in map(int, options.workers.split(",")):
            reply = train((options.bin / "tandem").resolve(), workers, options, mps.env)
            settled = reply["records"][len(reply["records"]) // 10:]
            phases = {}
            for record in settled:
                for name, seconds in record.get("phases", {}).items():
                    phases.setdefault(name, []).append(seconds)
            parts = "  ".join(f"{name} {median_us(seconds):.0f}" for name, seconds in phases.items())
            print(f"{workers} worker{'s' if workers > 1 else ' '}  {median_us([r['seconds'] for r in settled]):7.0f} us a step   {parts or '-':<40} {reply['digest'][:16]}",
                  flush=True)
            for text in {event["text"] for event in reply["events"] if "eager" in event.get("text", "")}:
                print(f"  {text}")
            digests.add(reply["digest"])
    print("one digest" if len(digests) == 1 else "DIGESTS DIFFER")
    return len(digests) != 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""`tiny` on a GPU beside PyTorch, in one run: python3 bench/gpu_baseline.py <folder with tandem> [--json FILE]

PyTorch trains the same model (32-64-64-10, batch norm, dropout 0.1, fused Adam, 192 rows a step) in three ways: call by
call, captured in a CUDA graph with the same 24 micro-batches, and captured with all 192 rows as one batch, which is
less work and another model: its batch statistics are those of 192 rows, not of 8.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch
import torch.nn.functional as F

ROWS, FEATURES, HIDDEN, CLASSES = 192, 32, 64, 10


def net():
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, HIDDEN), torch.nn.BatchNorm1d(HIDDEN), torch.nn.ReLU(), torch.nn.Dropout(0.1),
                               torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.BatchNorm1d(HIDDEN), torch.nn.ReLU(), torch.nn.Dropout(0.1),
                               torch.nn.Linear(HIDDEN, CLASSES)).cuda()


class Baseline:
    def __init__(self, pieces):
        torch.manual_seed(1)
        self.net, self.pieces = net(), pieces
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=3e-3, fused=True, capturable=True)
        self.x = torch.randn(ROWS, FEATURES, device="cuda")
        self.y = torch.randint(0, CLASSES, (ROWS,), device="cuda")
        self.host_x, self.host_y = torch.randn(ROWS, FEATURES).pin_memory(), torch.randint(0, CLASSES, (ROWS,)).pin_memory()
        self.loss = torch.zeros((), device="cuda")

    def work(self):
        self.optimizer.zero_grad(set_to_none=False)
        self.loss.zero_()
        for x, y in zip(self.x.chunk(self.pieces), self.y.chunk(self.pieces)):
            loss = F.cross_entropy(self.net(x), y, reduction="sum") / ROWS
            loss.backward()
            self.loss += loss.detach()
        self.optimizer.step()

    def step(self):
        self.x.copy_(self.host_x, non_blocking=True)
        self.y.copy_(self.host_y, non_blocking=True)
        if self.graph:
            self.graph.replay()
        else:
            self.work()
        return self.loss.item()

    def measure(self, captured, steps):
        self.graph = None
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(4):
                self.work()
            torch.cuda.synchronize()
            if captured:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    self.work()
                self.graph = graph
        torch.cuda.synchronize()
        times = []
        for _ in range(steps):
            begin = time.perf_counter()
            self.step()
            times.append(time.perf_counter() - begin)
        return 1e6 * statistics.median(times[steps // 5:])


def tandem_us(tandem, steps, *more):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([tandem, "train", "tiny", "--devices", "cuda:0", "--steps", str(steps), "--checkpoint-every", "never", "--json", *more],
                              cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        reply = json.loads(done.stdout)
        records = [json.loads(line) for line in (pathlib.Path(folder) / reply["dir"] / "metrics.jsonl").read_text().splitlines()]
        records = records[steps // 5:]
        return 1e6 * statistics.median(b["t"] - a["t"] for a, b in zip(records, records[1:]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    tandem = options.bin.resolve() / "tandem"
    figures = {"tandem, 24 shards": [], "tandem, 1 shard": [], "pytorch eager, 24 micro-batches": [], "pytorch captured, 24 micro-batches": [],
               "pytorch captured, one batch": []}
    for _ in range(3):
        figures["tandem, 24 shards"].append(tandem_us(tandem, 400))
        figures["tandem, 1 shard"].append(tandem_us(tandem, 400, "--set", "shards=1"))
        figures["pytorch eager, 24 micro-batches"].append(Baseline(24).measure(False, 15))
        figures["pytorch captured, 24 micro-batches"].append(Baseline(24).measure(True, 300))
        figures["pytorch captured, one batch"].append(Baseline(1).measure(True, 300))
    medians = {name: statistics.median(us) for name, us in figures.items()}
    ours = medians["tandem, 24 shards"]
    for name, us in medians.items():
        print(f"{name:<40} {us:9.0f} us a step   {us / ours:6.2f} x tandem's", flush=True)
    if options.json:
        options.json.write_text(json.dumps(medians, indent=1))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""`tandem train video` beside PyTorch, in one run: python3 bench/video_baseline.py build/bin [options]

  --device cpu|cuda:0     cpu unless given             --batch 32,64,128,256,512,1024    clips of an update
  --updates N             updates that a turn times    --rounds N          turns of each side
  --set KEY=VALUE         for tandem (size=64, net.kind=light); size, clip.frames and net are PyTorch's too
  --learning              also 200 updates of 64 clips from three seeds each, on the generated set: do both learn alike?
  --json                  one object on stdout, the table on stderr

Needs a Python with torch and safetensors. First the two must have the same parameters: what `tandem export` writes is
loaded into PyTorch's module by name, one to one. Then they take turns. Both cut clips out of uint8 frames on the device,
augment them, clip the gradient and update by Adam. PyTorch's are eager and by torch.compile, channels last; on a GPU in
bf16 autocast, and the time is wall time. tandem runs as users run it, so its update includes the engine and the log; the
first updates, in which graphs are captured and compared with eager runs, are left out. `cache`: the same with frames
from the mapped cache, through the loader.

Floor: on a GPU 1.3 times the better compiled baseline at batch 128. Exit 1 where it is missed, 2 where the parameters
differ.
"""
import argparse
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

SHARDS, LEFT_OUT, FLOOR = 8, 40, 1.3


class Net(torch.nn.Module):
    def __init__(self, kind, width, classes):
        super().__init__()
        self.blocks = 3 if kind == "light" else 4
        into, out = 1, width // 2 if kind == "light" else width
        for i in range(1, self.blocks + 1):
            self.add_module(f"conv{i}", torch.nn.Conv3d(into, out, 3, padding=1, bias=False))
            self.add_module(f"bn{i}", torch.nn.BatchNorm3d(out))
            into, out = out, 2 * out
        wide = 256 if kind == "light" else 512
        self.fc1, self.fc2, self.fc3 = torch.nn.Linear(into, wide), torch.nn.Linear(wide, wide // 2), torch.nn.Linear(wide // 2, classes)

    def forward(self, x):
        for i in range(1, self.blocks + 1):
            x = F.relu(getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(x)))
            x = F.max_pool3d(x, (1, 2, 2) if i == 1 else 2)
        x = x.mean((2, 3, 4))
        for layer in (self.fc1, self.fc2):
            x = F.dropout(F.relu(layer(x)), 0.5, self.training)
        return self.fc3(x)


def augmented(clips):
    """uint8 [rows, T, H, W] -> float [rows, 1, T, H, W], as nn/clips.h does, with torch's own numbers."""
    rows, length, height, width = clips.shape
    here = clips.device
    drop = torch.rand(rows, length, device=here) < 0.1
    drop[:, 0] = False
    last = torch.where(drop, 0, torch.arange(length, device=here)).cummax(1).values
    x = clips.gather(1, last[:, :, None, None].expand_as(clips)).float() / 255
    dy, dx = torch.randint(-5, 6, (2, rows, 1), device=here)
    at_y = (torch.arange(height, device=here) + dy).clamp(0, height - 1)
    at_x = (torch.arange(width, device=here) + dx).clamp(0, width - 1)
    x = x.gather(2, at_y[:, None, :, None].expand_as(x)).gather(3, at_x[:, None, None, :].expand_as(x))
    contrast, brightness = 1 + 0.4 * (torch.rand(2, rows, 1, 1, 1, device=here) - 0.5)
    x = ((x - 0.5) * contrast + 0.5) * brightness
    return (x + 0.02 * torch.randn_like(x)).clamp(0, 1).unsqueeze(1)


def net_like(weights):
    kind = "full" if "conv4.weight" in weights else "light"
    out = weights["conv1.weight"].shape[0]
    return Net(kind, 2 * out if kind == "light" else out, weights["fc3.weight"].shape[0])


class Baseline:
    """PyTorch's update. `like`: only the sizes of its weights are taken."""

    def __init__(self, device, batch, way, weights, frames, labels, seed=1, like=None):
        torch.manual_seed(seed)
        self.device = torch.device(device)
        self.net = net_like(weights or like)
        if weights:
            self.net.load_state_dict(weights, strict=False)
        self.net = self.net.to(self.device, memory_format=torch.channels_last_3d)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3, weight_decay=1e-5, fused=True)
        self.frames, self.labels, self.batch = frames.to(self.device), labels.to(self.device), batch
        self.starts = torch.arange(len(labels), device=self.device)
        self.loss = torch.compile(self.losses, mode="max-autotune" if way == "autotuned" else None) if way != "eager" else self.losses
        self.length = None

    def losses(self, clips, labels):
        x = augmented(clips).to(memory_format=torch.channels_last_3d)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            out = self.net(x)
        return F.cross_entropy(out.float(), labels)

    def step(self):
        rows = torch.randint(len(self.labels), (self.batch,), device=self.device)
        clips = self.frames[self.starts[rows][:, None] + torch.arange(self.length, device=self.device)]
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(clips, self.labels[rows])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0, foreach=True)
        self.optimizer.step()
        return loss.detach()

    def seconds(self, updates):
        for _ in range(3):
            self.step()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        begin = time.perf_counter()
        for _ in range(updates):
            self.step()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - begin) / updates

    def gib(self):
        return torch.cuda.max_memory_allocated() / 2**30 if self.device.type == "cuda" else None


class Tandem:
    def __init__(self, given):
        self.program, self.device, self.settings = given.programs.resolve() / "tandem", given.device, given.set

    def train(self, folder, batch, steps, *more):
        devices = "cpu:1" if self.device == "cpu" else self.device
        command = [self.program, "train", "video", "--json", "--quiet", "--devices", devices, "--batch-size", batch, "--steps", steps,
                   "--run-dir", folder, "--set", "validation.every=never", "--set", "validation.patience=0", "--set", "checkpoint.every=never",
                   "--set", "schedule.kind=constant", *[word for pair in self.settings for word in ("--set", pair)], *more]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, command))} ended with {done.returncode}\n{done.stderr[-2000:]}")
        records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        return json.loads(done.stdout), records

    def seconds(self, root, batch, updates, left_out, *more):
        folder = pathlib.Path(tempfile.mkdtemp(dir=root))
        _, records = self.train(folder / "run", batch, updates + left_out, *more)
        return statistics.median(record["seconds"] for record in records[left_out:])

    def weights(self, root):
        run, _ = self.train(pathlib.Path(tempfile.mkdtemp(dir=root)) / "run", SHARDS * 2, 1)
        return load_file(exported(self, run, root))


def generated_set(cache, length):
    """Frames of the set that tandem made there, labels of clips, and where each clip begins."""
    folder = next(path for path in (cache / "tandem").glob("videos-*") if path.is_dir())
    with open(next(folder.rglob("classes.csv")), newline="") as rows:
        names = [row["name"] for row in csv.DictReader(rows)]
    frames, labels, starts, offset = [], [], [], 0
    for file in sorted(folder.rglob("*.frames")):
        video = file.name.split(".")[0]
        head = json.loads(open(file, "rb").read(4096).split(b"\n")[0].rstrip(b"\0"))
        height, width = head["height"], head["width"]
        mapped = torch.from_file(str(file), size=4096 + head["frames"] * height * width, dtype=torch.uint8)[4096:]
        frames.append(mapped.view(-1, height, width))
        at = offset
        for csv_file in sorted(folder.rglob(f"prediction_{video}_*.csv"), key=lambda f: int(f.stem.rsplit("_", 1)[1])):
            with open(csv_file, newline="") as rows:
                actions = [row["Action"] for row in csv.DictReader(rows)]
            classes = [int(a) if a.isdigit() else names.index(a) for a in actions]
            for first in range(len(classes) - length + 1):
                starts.append(at + first)
                labels.append(classes[first + length // 2])
            at += len(classes)
        offset += head["frames"]
    return torch.cat(frames), torch.tensor(labels), torch.tensor(starts)


def compare_learning(tandem, root, device, length):
    """The mean loss of the last 20 of 200 updates, of both, from three seeds: without class weights."""
    ours, theirs = [], []
    for seed in (1, 2, 3):
        run, records = tandem.train(pathlib.Path(tempfile.mkdtemp(dir=root)) / "run", 64, 200, "--seed", seed,
                                    "--set", "loss.class_weights=none")
        ours.append(statistics.mean(record["loss"] for record in records[-20:]))
        frames, labels, starts = generated_set(pathlib.Path(os.environ["XDG_CACHE_HOME"]), length)
        first = load_file(exported(tandem, run, root))
        baseline = Baseline(device, 64, "eager", {}, frames, labels, seed, like=first)
        baseline.length, baseline.starts = length, starts.to(baseline.device)
        losses = [float(baseline.step()) for _ in range(200)]
        theirs.append(statistics.mean(losses[-20:]))
    return {"tandem": ours, "torch": theirs}


def exported(tandem, run, root):
    file = pathlib.Path(tempfile.mkdtemp(dir=root)) / "weights.safetensors"
    subprocess.run([tandem.program, "export", run["dir"], "--output", file], check=True, capture_output=True)
    return file


def differences(weights, net):
    ours = {name: tuple(value.shape) for name, value in weights.items()}
    theirs = {name: tuple(value.shape) for name, value in net.state_dict().items() if not name.endswith("num_batches_tracked")}
    return sorted(set(ours.items()) ^ set(theirs.items()))


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", default="128")
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--learning", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    settings = dict(pair.split("=", 1) for pair in given.set)
    size, length = int(settings.get("size", 256)), int(settings.get("clip.frames", 17))
    cpu = given.device == "cpu"
    if cpu:
        torch.set_num_threads(1)
    left_out = 4 if cpu else LEFT_OUT
    generator = torch.Generator().manual_seed(1)
    frames = torch.randint(0, 256, (2000, size, size), dtype=torch.uint8, generator=generator)
    tandem, rows, failed = Tandem(given), [], []
    with tempfile.TemporaryDirectory() as root:
        os.environ["XDG_CACHE_HOME"] = str(pathlib.Path(root) / "cache")  # of the generated set
        weights = tandem.weights(root)
        labels = torch.randint(0, weights["fc3.weight"].shape[0], (2000 - length,), generator=generator)
        wrong = differences(weights, net_like(weights))
        if wrong:
            print(f"the parameters differ: {wrong}", file=sys.stderr)
            return 2
        print(f"{sum(v.numel() for v in weights.values())} numbers under the same names", file=sys.stderr)
        for batch in map(int, given.batch.split(",")):
            times = {"tandem": [], "tandem, cache": [], "eager": [], "compiled": []}
            memory = {}
            for _ in range(given.rounds):
                times["tandem"].append(tandem.seconds(root, batch, given.updates, left_out, "--set", "frames_on_device=on"))
                times["tandem, cache"].append(tandem.seconds(root, batch, given.updates, left_out, "--set", "frames_on_device=off"))
                for way in ("eager", "compiled"):
                    baseline = Baseline(given.device, batch, way, weights, frames, labels)
                    baseline.length = length
                    times[way].append(baseline.seconds(given.updates))
                    memory[way] = baseline.gib()
            row = {"batch": batch, **{name: batch / statistics.median(t) for name, t in times.items()}, "gib": memory}
            rows.append(row)
            against = max(row["eager"], row["compiled"]) if cpu else row["compiled"]
            ratio = row["tandem"] / against
            print(f"batch {batch:5}  " + "   ".join(f"{name} {row[name]:8.1f} clips/s" for name in times) + f"   {ratio:.2f}x", file=sys.stderr)
            if not cpu and batch == 128 and ratio < FLOOR:
                failed.append(f"batch 128: {ratio:.2f}x, floor {FLOOR}x")
        learning = None
        if given.learning:
            learning = compare_learning(tandem, root, given.device, length)
            for name, values in learning.items():
                print(f"loss of the last 20 of 200 updates, {name}: {', '.join(f'{x:.4f}' for x in values)}", file=sys.stderr)
    if given.json:
        print(json.dumps({"device": given.device, "rows": rows, "loss": learning, "failed": failed}))
    for line in failed:
        print(line, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

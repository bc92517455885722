"""PyTorch's side of video_baseline.py: the same net, the same clips, the same augmentation, an update in eager mode or
compiled."""
import csv
import gc
import json
import sys
import time

import torch
import torch.nn.functional as F


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
        self.fc1, self.fc2 = torch.nn.Linear(into, wide), torch.nn.Linear(wide, wide // 2)
        self.fc3 = torch.nn.Linear(wide // 2, classes)

    def forward(self, x):
        for i in range(1, self.blocks + 1):
            x = F.relu(getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(x)))
            x = F.max_pool3d(x, (1, 2, 2) if i == 1 else 2)
        x = x.mean((2, 3, 4))
        for layer in (self.fc1, self.fc2):
            x = F.dropout(F.relu(layer(x)), 0.5, self.training)
        return self.fc3(x)


def augmented(clips, most_shift):
    """uint8 [rows, T, H, W] -> float [rows, 1, T, H, W], as nn/clips.h does, with torch's own numbers."""
    rows, length, height, width = clips.shape
    here = clips.device
    drop = torch.rand(rows, length, device=here) < 0.1
    drop[:, 0] = False
    last = torch.where(drop, 0, torch.arange(length, device=here)).cummax(1).values
    x = clips.gather(1, last[:, :, None, None].expand_as(clips)).float() / 255
    dy, dx = torch.randint(-most_shift, most_shift + 1, (2, rows, 1), device=here)
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


class Clips:
    """What trains in the set that tandem made: frames, and where each clip begins, with its label."""

    def __init__(self, tandem, cache, length):
        folder = next(path for path in (cache / "tandem").glob("videos-*") if path.is_dir())
        self.length, self.videos = length, sorted(folder.rglob("*.frames"))
        with open(next(folder.rglob("classes.csv")), newline="") as rows:
            names = [row["name"] for row in csv.DictReader(rows)]
        frames, labels, starts, offset = [], [], [], 0
        size = frames_head(self.videos[0])["height"]
        judged = {(one["video"], one["trial"]) for one in tandem.check(folder, size)["validation_trials"]}
        for file in self.videos:
            head, video = frames_head(file), file.name.split(".")[0]
            frames.append(frames_of(file, head))
            at = offset
            for text in sorted(folder.rglob(f"prediction_{video}_*.csv"), key=trial_of):
                with open(text, newline="") as rows:
                    actions = [row["Action"] for row in csv.DictReader(rows)]
                classes = [int(a) if a.isdigit() else names.index(a) for a in actions]
                if (video, trial_of(text)) not in judged:
                    for first in range(len(classes) - length + 1):
                        starts.append(at + first)
                        labels.append(classes[first + length // 2])
                at += len(classes)
            offset += head["frames"]
        self.frames, self.labels, self.starts = torch.cat(frames), torch.tensor(labels), torch.tensor(starts)

    def __len__(self):
        return len(self.labels)


def trial_of(file):
    return int(file.stem.rsplit("_", 1)[1])


def frames_head(file):
    """The JSON of `tandem-frames 1 <sum> {...}` (src/video/frame_file.h)."""
    with open(file, "rb") as opened:
        return json.loads(opened.read(4096).split(b"\n")[0].split(b" ", 3)[3])


def frames_of(file, head):
    size = 4096 + head["frames"] * head["height"] * head["width"]
    mapped = torch.from_file(str(file), size=size, dtype=torch.uint8)
    return mapped[4096:].view(-1, head["height"], head["width"])


class Baseline:
    """PyTorch's update, in a mode of torch.compile or in "eager" mode. `like`: only the sizes of its weights count."""

    def __init__(self, device, batch, mode, clips, shift, weights=None, seed=1, like=None):
        torch.manual_seed(seed)
        self.device, self.batch, self.length = torch.device(device), batch, clips.length
        self.cuda = self.device.type == "cuda"
        self.net = net_like(weights or like)
        if weights:
            self.net.load_state_dict(weights, strict=False)
        self.net = self.net.to(self.device, memory_format=torch.channels_last_3d)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3, weight_decay=1e-5, fused=True)
        self.frames, self.labels = clips.frames.to(self.device), clips.labels.to(self.device)
        self.starts, self.shift = clips.starts.to(self.device), shift
        self.offsets = torch.arange(self.length, device=self.device)
        self.order, self.at = None, 0
        how = {} if mode == "default" else {"mode": mode}
        self.loss = self.losses if mode == "eager" else torch.compile(self.losses, **how)

    def autocast(self):
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.cuda)

    def losses(self, clips, labels):
        x = augmented(clips, self.shift).to(memory_format=torch.channels_last_3d)
        with self.autocast():
            out = self.net(x)
        return F.cross_entropy(out.float(), labels)

    def rows(self):
        """Each clip once an epoch, in a new order, as tandem takes them."""
        if self.order is None or self.at + self.batch > len(self.order):
            self.order = torch.randperm(len(self.labels), device=self.device)
            while len(self.order) < self.batch:
                self.order = torch.cat([self.order, self.order])
            self.at = 0
        self.at += self.batch
        return self.order[self.at - self.batch:self.at]

    def step(self):
        if self.cuda and self.loss is not self.losses:
            torch.compiler.cudagraph_mark_step_begin()
        rows = self.rows()
        clips = self.frames[self.starts[rows][:, None] + self.offsets]
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(clips, self.labels[rows])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0, foreach=True)
        self.optimizer.step()
        return loss.detach()

    def wait(self):
        if self.cuda:
            torch.cuda.synchronize()

    def seconds(self, updates):
        self.wait()
        begin = time.perf_counter()
        for _ in range(updates):
            self.step()
        self.wait()
        return (time.perf_counter() - begin) / updates

    def probabilities(self, frames):
        """Of the clips from each of these frames on, without augmentation."""
        self.net.eval()
        with torch.no_grad(), self.autocast():
            x = frames.to(self.device).unfold(0, self.length, 1).permute(0, 3, 1, 2).float().unsqueeze(1) / 255
            return self.net(x).float().softmax(1).cpu()


def put_away():
    """Nothing of one baseline helps or hinders the next."""
    if dynamo := sys.modules.get("torch._dynamo"):
        dynamo.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()

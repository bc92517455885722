#!/usr/bin/env python3
"""One DQN update on the CPU beside PyTorch, in one run, on the same cores, in fp32.

    python3 bench/dqn_cpu_baseline.py <build folder> [--steps 200] [--rounds 5] [--threads 1,2] [--json FILE] [--no-compile]

Needs a Python with torch, numpy and safetensors, and `scripts/build.sh tandem tandem-worker bench/dqn_update`.

The update: 256 transitions drawn by priority from a full buffer of 1 M, dueling 128-512-256 with two heads of 128, layer
norm, dropout .2, double Q, 3-step returns, importance weights, Huber, gradient clipped to 10, Adam, soft target, new
priorities written back. First the two must agree: the same weights, batch and dropout masks give the same loss, errors
and gradients within rounding. Then they take turns.

tandem runs as users run it (`tandem train web-agent --devices cpu:n`, one environment a shard), so its time holds 8
decisions in the environment, the engine and the log of the step as well. PyTorch's holds the update alone. It is given
what makes it fast here: a sum tree in numpy walked for all draws at once, fused Adam, foreach for the rest, and, as a
second baseline, torch.compile around forward, loss and backward. Beside the median stands the time that a tenth of the
steps did not exceed: on a machine that others use too, it is what is left of the machine itself. On one core a second
table counts processor time instead, tandem's steps then in one process (`dqn_update --steps`).
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

BATCH, STATE, ACTIONS, CAPACITY, N_STEP, GAMMA, DROPOUT = 256, 128, 10, 1_000_000, 3, 0.99, 0.2
ALPHA, BETA, RATE, TARGET_RATE, CLIP = 0.6, 0.5, 3e-4, 1e-3, 10.0


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden1, self.norm1 = torch.nn.Linear(STATE, 512), torch.nn.LayerNorm(512)
        self.hidden2, self.norm2 = torch.nn.Linear(512, 256), torch.nn.LayerNorm(256)
        self.heads = torch.nn.Linear(256, 256)  # both heads in one product
        self.value, self.advantage = torch.nn.Linear(128, 1), torch.nn.Linear(128, ACTIONS)

    def forward(self, x, drop=None):
        x = F.relu(self.norm1(self.hidden1(x)))
        x = drop(x, 0) if drop else x
        x = F.relu(self.norm2(self.hidden2(x)))
        x = drop(x, 1) if drop else x
        both = F.relu(self.heads(x))
        better = self.advantage(both[:, 128:])
        return self.value(both[:, :128]) + (better - better.mean(1, keepdim=True))


def loss_of(net, target, before, after, reward, discount, action, weight, drop):
    with torch.no_grad():
        chosen = net(after).argmax(1, keepdim=True)
        goal = reward + discount * target(after).gather(1, chosen).squeeze(1)
    q = net(before, drop).gather(1, action.unsqueeze(1)).squeeze(1)
    return (F.huber_loss(q, goal, reduction="none") * weight).mean(), (q - goal).abs().detach()


class SumTree:
    """Draws descend and new priorities ascend the tree as one batch."""
    def __init__(self, leaves):
        self.levels = [np.zeros(leaves, np.float64)]
        while self.levels[-1].size > 1:
            level = self.levels[-1]
            self.levels.append(np.zeros((level.size + 1) // 2, np.float64))
        self.levels = [np.append(level, 0.0) if level.size % 2 else level for level in self.levels]

    def fill(self, value):
        self.levels[0][:CAPACITY] = value
        for below, above in zip(self.levels, self.levels[1:]):
            above[:below.size // 2] = below.reshape(-1, 2).sum(1)

    def set(self, index, value):
        self.levels[0][index] = value
        for below, above in zip(self.levels, self.levels[1:]):
            index = index >> 1
            above[index] = below[2 * index] + below[2 * index + 1]

    def find(self, place):
        index = np.zeros(place.size, np.int64)
        for level in self.levels[-2::-1]:
            index *= 2
            left = level[index]
            right = place >= left
            place = place - left * right
            index += right
        return np.minimum(index, CAPACITY - 1)


class Baseline:
    def __init__(self, compiled):
        torch.manual_seed(1)
        self.net, self.target = Net(), Net()
        self.target.load_state_dict(self.net.state_dict())
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=RATE, weight_decay=1e-5, fused=True)
        self.random = np.random.default_rng(1)
        def update(before, after, reward, discount, action, weight):
            drop = lambda x, layer: F.dropout(x, DROPOUT, True)
            loss, errors = loss_of(self.net, self.target, before, after, reward, discount, action, weight, drop)
            return loss, errors
        self.loss = torch.compile(update) if compiled else update

    def draw(self, buffer):
        tree = buffer.tree
        total = tree.levels[-1][0]
        rows = tree.find((np.arange(BATCH) + self.random.random(BATCH)) * (total / BATCH))
        priority = tree.levels[0][rows]
        weight = torch.from_numpy(((priority.min() / priority) ** BETA).astype(np.float32))
        at = torch.from_numpy(rows)
        reward = buffer.reward[at] + GAMMA * buffer.reward[(at + 1) % CAPACITY] + GAMMA**2 * buffer.reward[(at + 2) % CAPACITY]
        return rows, (buffer.seen[at], buffer.seen[(at + N_STEP) % CAPACITY], reward, buffer.discount[at], buffer.action[at], weight)

    def step(self, buffer):
        rows, batch = self.draw(buffer)
        loss, errors = self.loss(*batch)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), CLIP, foreach=True)
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self.target.parameters()), list(self.net.parameters()), TARGET_RATE)
        buffer.tree.set(rows, (errors.numpy() + 1e-3) ** ALPHA)
        return loss.item()


class Buffer:
    def __init__(self):
        generator = torch.Generator().manual_seed(1)
        self.seen = torch.randn(CAPACITY, STATE, generator=generator)
        self.reward = torch.randn(CAPACITY, generator=generator)
        self.discount = torch.full((CAPACITY,), GAMMA**N_STEP)
        self.action = torch.randint(0, ACTIONS, (CAPACITY,), generator=generator)
        self.tree = SumTree(CAPACITY)
        self.tree.fill(1.0)


def compare(build):
    """The largest difference of loss, errors and gradients, relative to the largest value of each."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "update.safetensors"
        subprocess.run([build / "bench" / "dqn_update", "--dump", path], check=True)
        dump = load_file(path)
    net, target = Net(), Net()
    net.load_state_dict({name[len("net."):]: t for name, t in dump.items() if name.startswith("net.")})
    target.load_state_dict({name[len("target."):]: t for name, t in dump.items() if name.startswith("target.")})
    loss, errors = loss_of(net, target, dump["before"], dump["after"], dump["reward"], dump["discount"], dump["action"],
                           dump["weight"], lambda x, layer: x * dump[f"mask{layer + 1}"])
    loss.backward()
    worst = {"loss": abs(loss.item() - dump["loss"].item()) / abs(loss.item()),
             "errors": ((errors - dump["errors"]).abs().max() / errors.max()).item(),
             "gradients": max(((p.grad - dump["grad." + name]).abs().max() / p.grad.abs().max()).item()
                              for name, p in net.named_parameters())}
    if max(worst.values()) > 2e-5:
        sys.exit(f"the two do not compute the same: {worst}")
    return worst


def ours(build, workers, steps):
    """Microseconds of each step, those at the start left out."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([build / "bin" / "tandem", "train", "web-agent", "--set", "agent=analysis", "--set", "net.dropout=0.2", "--set", "environments=1",
                               "--set", f"learning_starts={CAPACITY}", "--set", f"capacity={CAPACITY}", "--steps", str(steps + 50),
                               "--devices", f"cpu:{workers}", "--checkpoint-every", "never", "--run-dir", folder + "/run", "--json"],
                              capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        lines = [json.loads(line) for line in (pathlib.Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()]
    return [line["seconds"] * 1e6 for line in lines[50:]]


def ours_processor(build, steps):
    done = subprocess.run([build / "bench" / "dqn_update", "--steps", str(steps)], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def baseline(it, buffer, threads, steps, clock=time.perf_counter):
    torch.set_num_threads(threads)
    for _ in range(20):
        it.step(buffer)
    times = []
    for _ in range(steps):
        begin = clock()
        it.step(buffer)
        times.append((clock() - begin) * 1e6)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--no-compile", action="store_true")
    given = parser.parse_args()
    build = given.build.resolve()
    worst = compare(build)
    print("same weights, batch and masks: " + ", ".join(f"{name} within {value:.1e}" for name, value in worst.items()), flush=True)
    buffer, table = Buffer(), {}
    baselines = {"PyTorch eager": Baseline(False)} | ({} if given.no_compile else {"PyTorch compiled": Baseline(True)})
    figures = {name: baseline(it, buffer, 1, given.steps, time.process_time) for name, it in baselines.items()}
    table["processor"] = {name: {"median_us": statistics.median(values), "fastest_tenth_us": statistics.quantiles(values, n=10)[0]}
                          for name, values in figures.items()} | {"tandem": ours_processor(build, given.steps)}
    for name, values in table["processor"].items():
        print(f"processor time of 1 core  {name:17} {values['median_us']:8.0f} us, the fastest tenth {values['fastest_tenth_us']:8.0f} us",
              flush=True)
    for count in map(int, given.threads.split(",")) if given.rounds else ():
        figures = {name: [] for name in (*baselines, "tandem")}
        for _ in range(given.rounds):  # in turns: whatever else the machine does meets all
            for name, it in baselines.items():
                figures[name].extend(baseline(it, buffer, count, given.steps))
            figures["tandem"].extend(ours(build, count, given.steps))
        fast = {name: statistics.quantiles(values, n=10)[0] for name, values in figures.items()}
        middle = {name: statistics.median(values) for name, values in figures.items()}
        cores = f"{count} core{'s' if count > 1 else ' '}"
        for name in figures:
            print(f"{cores}  {name:17} {middle[name]:8.0f} us, the fastest tenth {fast[name]:8.0f} us", flush=True)
        ratio = {"median": min(middle[name] for name in baselines) / middle["tandem"],
                 "fastest_tenth": min(fast[name] for name in baselines) / fast["tandem"]}
        print(f"{cores}  against the faster baseline {ratio['median']:.2f}x, the fastest tenth {ratio['fastest_tenth']:.2f}x", flush=True)
        table[count] = {"median_us": middle, "fastest_tenth_us": fast, "ratio": ratio}
    if given.json:
        given.json.write_text(json.dumps({"schema": 1, "agreement": worst, "cores": table}, indent=2) + "\n")


main()

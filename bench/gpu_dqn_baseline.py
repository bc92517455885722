#!/usr/bin/env python3
"""tandem's DQN step beside PyTorch's on one GPU, in one run: python3 bench/gpu_dqn_baseline.py <build folder>/bench/gpu_dqn

The baseline is the usual Python program: dueling 128-512-256 with LayerNorm and dropout .2, double Q, batch 256 drawn by
priority from 1 M transitions on the GPU (cumsum and searchsorted), importance weights, Huber, clip 10, Adam, soft
target, priorities written back. Eager, and captured in a CUDA graph with fused Adam. tandem's step does all of that and
steps 256 environments as well. Prints a table and JSON.
"""
import json
import subprocess
import sys
import time

import torch
from torch import nn

ROWS, BATCH, STATE, ACTIONS = 1_000_000, 256, 128, 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(STATE, 512), nn.LayerNorm(512), nn.ReLU(), nn.Dropout(0.2),
                                   nn.Linear(512, 256), nn.LayerNorm(256), nn.ReLU(), nn.Dropout(0.2))
        self.value = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1))
        self.advantage = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, ACTIONS))

    def forward(self, x):
        x = self.trunk(x)
        a = self.advantage(x)
        return self.value(x) + a - a.mean(1, keepdim=True)


class Baseline:
    def __init__(self, fused, precision=None):
        torch.manual_seed(1)
        self.net, self.target = Net().cuda(), Net().cuda()
        self.target.load_state_dict(self.net.state_dict())
        self.target.eval()
        self.adam = torch.optim.Adam(self.net.parameters(), 3e-4, weight_decay=1e-5, fused=fused, capturable=fused)
        self.before, self.after = torch.randn(ROWS, STATE, device="cuda"), torch.randn(ROWS, STATE, device="cuda")
        self.action = torch.randint(ACTIONS, (ROWS,), device="cuda")
        self.reward, self.discount = torch.randn(ROWS, device="cuda"), torch.full((ROWS,), 0.97, device="cuda")
        self.priority = torch.rand(ROWS, device="cuda") + 0.01
        self.precision = precision
        self.loss = None

    def update(self):
        sums = torch.cumsum(self.priority, 0)
        places = (torch.arange(BATCH, device="cuda") + torch.rand(BATCH, device="cuda")) / BATCH * sums[-1]
        rows = torch.searchsorted(sums, places).clamp_(max=ROWS - 1)
        weight = (self.priority[rows] / sums[-1] * ROWS) ** -0.4
        weight = weight / weight.max()
        after = self.after[rows]
        with torch.autocast("cuda", dtype=self.precision or torch.float32, enabled=self.precision is not None):
            with torch.no_grad():
                best = self.net(after).argmax(1, keepdim=True)
                goal = self.reward[rows] + self.discount[rows] * self.target(after).gather(1, best).squeeze(1)
            q = self.net(self.before[rows]).gather(1, self.action[rows].unsqueeze(1)).squeeze(1)
            loss = (nn.functional.huber_loss(q.float(), goal.float(), reduction="none") * weight).mean()
        self.adam.zero_grad(set_to_none=False)
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 10)
        self.adam.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self.target.parameters()), list(self.net.parameters()), 0.001)
            self.priority[rows] = ((q - goal).abs().float() + 1e-3) ** 0.6
        self.loss = loss.detach()


def timed(step, count):
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return 1e6 * (time.perf_counter() - begin) / count


def captured(baseline):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            baseline.update()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        baseline.update()
    return graph.replay


def tandem(program, *settings):
    done = subprocess.run([program, *settings], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{program} {' '.join(settings)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def main():
    program = sys.argv[1]
    show = lambda line: print(line, flush=True)  # as soon as it is known: who stops it early has the rest
    one = tandem(program, "agent=analysis")
    show(f"tandem, one agent   {one['us_per_step']:8.1f} us a step, acting in {one['environments']} environments included")
    six = tandem(program, "agent=all")
    show(f"tandem, six agents  {six['us_per_step']:8.1f} us a step: {six['us_per_step'] / one['us_per_step']:.2f} times one")
    many = tandem(program, "agent=analysis", "environments=1024", "capacity=2000000")
    show(f"tandem, {many['environments']} environments: {many['decisions_per_s'] / 1e6:.1f} M decisions a second, learning included")
    show(f"tandem, one agent, environments at rest: {one['us_without_acting']:8.1f} us an update")
    eager = timed(Baseline(False).update, 100)
    show(f"PyTorch eager       {eager:8.1f} us: {eager / one['us_without_acting']:.1f} x")
    graph = timed(captured(Baseline(True)), 1000)
    amp = timed(captured(Baseline(True, torch.bfloat16)), 1000)
    show(f"PyTorch captured    {graph:8.1f} us: {graph / one['us_without_acting']:.1f} x (bf16 {amp:.1f} us)")
    other = {}
    for precision in ("bf16", "fp16", "tf32"):
        other[precision] = {"one": tandem(program, "agent=analysis", f"precision={precision}")["us_per_step"]}
        if precision != "fp16":  # the loss scale of one agent would be the others'
            other[precision]["six"] = tandem(program, "agent=all", f"precision={precision}")["us_per_step"]
        show(f"tandem in {precision}      " + ", ".join(f"{who} {us:8.1f} us a step" for who, us in other[precision].items()))
    print(json.dumps({"one": one, "six": six, "many": many, "eager_us": eager, "captured_us": graph, "captured_bf16_us": amp, "other_precisions_us": other}))


if __name__ == "__main__":
    main()

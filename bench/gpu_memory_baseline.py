#!/usr/bin/env python3
"""The memory of a training on a GPU beside PyTorch's: python3 bench/gpu_memory_baseline.py build/bench/gpu_memory [--json FILE]

The same models as bench/gpu_memory.cc (GPT-2 small, 8 x 1,024 tokens; ResNet-50, 64 images, channels last), AdamW, bf16
autocast, the same batch of an update. PyTorch trains them in three ways, each in a process of its own: call by call with
the whole batch, the whole step captured in a CUDA graph, and call by call in as many micro-batches as tandem has shards.
`peak` is what was reserved at most, without the CUDA context. tandem's must be at most 1.5 times that of the whole batch
call by call; the goal is 1.25.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import time

FLOOR, GOAL = 1.5, 1.25
STEPS, SHARDS = 40, 8
WAYS = ["eager", "captured", "micro-batches"]


def gpt2():
    import torch
    import torch.nn.functional as F

    width, heads, vocabulary, tokens = 768, 12, 50257, 1024

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
            self.c_attn, self.c_proj = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
            self.c_fc, self.c_out = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

        def forward(self, x):
            rows = x.shape[0]
            q, k, v = (t.view(rows, tokens, heads, width // heads).transpose(1, 2) for t in self.c_attn(self.ln_1(x)).split(width, 2))
            attention = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.c_proj(attention.transpose(1, 2).reshape(rows, tokens, width))
            return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))

    class Gpt2(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(tokens, width)
            self.h = torch.nn.ModuleList(Block() for _ in range(12))
            self.ln_f, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, vocabulary, bias=False)
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    torch.nn.init.normal_(parameter, std=0.02)
            self.head.weight = self.wte.weight

        def forward(self, text):
            x = self.wte(text) + self.wpe.weight
            for block in self.h:
                x = block(x)
            return self.head(self.ln_f(x)).flatten(0, 1)

    text = torch.arange(8 * (tokens + 1)).mul(7919).remainder(vocabulary).view(8, tokens + 1).cuda()
    return Gpt2().cuda(), text[:, :-1].contiguous(), text[:, 1:].contiguous()


def resnet50():
    import torch

    def conv(into, out, kernel, stride=1):
        return torch.nn.Conv2d(into, out, kernel, stride, kernel // 2, bias=False)

    class Bottleneck(torch.nn.Module):
        def __init__(self, into, width, stride):
            super().__init__()
            self.conv1, self.conv2, self.conv3 = conv(into, width, 1), conv(width, width, 3, stride), conv(width, 4 * width, 1)
            self.bn1, self.bn2, self.bn3 = (torch.nn.BatchNorm2d(c) for c in (width, width, 4 * width))
            self.downsample = None
            if stride > 1 or into != 4 * width:
                self.downsample = torch.nn.Sequential(conv(into, 4 * width, 1, stride), torch.nn.BatchNorm2d(4 * width))

        def forward(self, x):
            y = self.bn1(self.conv1(x)).relu_()
            y = self.bn2(self.conv2(y)).relu_()
            y = self.bn3(self.conv3(y))
            y += self.downsample(x) if self.downsample else x
            return y.relu_()

    class ResNet50(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1, self.blocks, into = conv(3, 64, 7, 2), torch.nn.BatchNorm2d(64), torch.nn.ModuleList(), 64
            for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
                for i in range(count):
                    self.blocks.append(Bottleneck(into, width, stride if i == 0 else 1))
                    into = 4 * width
            self.fc = torch.nn.Linear(2048, 1000)

        def forward(self, x):
            x = torch.nn.functional.max_pool2d(self.bn1(self.conv1(x)).relu_(), 3, 2, 1)
            for block in self.blocks:
                x = block(x)
            return self.fc(x.mean((2, 3)))

    images = torch.randn(64, 3, 224, 224, device="cuda").contiguous(memory_format=torch.channels_last)
    return ResNet50().cuda().to(memory_format=torch.channels_last), images, (torch.arange(64, device="cuda") * 37) % 1000


def measure(model, way, shards):
    """In this process: prints one JSON line."""
    import torch
    import torch.nn.functional as F

    torch.cuda.init()
    torch.empty(1, device="cuda")
    free_before = least_free = torch.cuda.mem_get_info()[0]
    net, x, y = {"gpt2": gpt2, "resnet50": resnet50}[model]()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True, capturable=way == "captured")
    pieces = shards if way == "micro-batches" else 1

    def step():
        optimizer.zero_grad(set_to_none=True)
        total = 0
        for part, labels in zip(x.chunk(pieces), y.chunk(pieces)):
            with torch.autocast("cuda", torch.bfloat16):
                loss = F.cross_entropy(net(part), labels.flatten()) / pieces
            loss.backward()
            total = total + loss.detach()
        optimizer.step()
        return total

    graph = None
    if way == "captured":  # as PyTorch's own notes on CUDA graphs have it
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            loss = step()
    times = []
    for _ in range(STEPS):
        begin = time.perf_counter()
        if graph:
            graph.replay()
        else:
            loss = step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
        least_free = min(least_free, torch.cuda.mem_get_info()[0])
    print(json.dumps({"model": model, "way": way, "peak": torch.cuda.max_memory_reserved(), "allocated": torch.cuda.max_memory_allocated(),
                      "used": free_before - least_free, "step_ms": 1e3 * sorted(times[STEPS // 2:])[STEPS // 4], "loss": float(loss)}))


def line_of(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode or not done.stdout.startswith("{"):
        sys.exit(f"{' '.join(map(str, command))} failed with code {done.returncode}: {done.stdout}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=pathlib.Path, nargs="?")
    parser.add_argument("--shards", type=int, default=SHARDS)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--measure", nargs=2, metavar=("MODEL", "WAY"), help="PyTorch alone, in this process")
    options = parser.parse_args()
    if options.measure:
        return measure(*options.measure, options.shards)
    if not options.program:
        parser.error("which program? build/bench/gpu_memory")
    held, figures = True, []
    for model in ("gpt2", "resnet50"):
        ours = line_of([options.program.resolve(), model, str(STEPS), str(options.shards)])
        theirs = {way: line_of([sys.executable, __file__, "--shards", str(options.shards), "--measure", model, way]) for way in WAYS}
        quotients = {way: ours["peak"] / theirs[way]["peak"] for way in WAYS}
        figures.append({"model": model, "tandem": ours, "pytorch": theirs, "quotients": quotients})
        quotient = quotients["eager"]
        verdict = "goal held" if quotient <= GOAL else "floor held" if quotient <= FLOOR else "NOT HELD"
        held = held and quotient <= FLOOR
        print(f"{model:<9} tandem {ours['peak'] / 1e9:6.2f} GB {ours['step_ms']:7.1f} ms", end="")
        for way in WAYS:
            print(f"   {way} {theirs[way]['peak'] / 1e9:6.2f} GB {theirs[way]['step_ms']:7.1f} ms ({quotients[way]:.2f} x)", end="")
        print(f"   used {ours['used'] / 1e9:.2f} / {theirs['eager']['used'] / 1e9:.2f} GB"
              f"   keeping {ours['keep_ms']:.1f} ms, rolled back {ours['rolled_back']}   {verdict}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Training in shards beside PyTorch, in one run: python3 bench/gpu_shards_baseline.py build/bench/gpu_shards [options]

  --model gpt2|resnet50   one of them          --quick     a minute: short blocks, PyTorch not compiled
  --compile               compiled too, with --quick       --json FILE   everything
  --results FILE          rows for docs/results/*.json     --profile     the kernels of one step, ours and PyTorch's

The models of bench/gpu_shards.cc (GPT-2 small, 32 x 1,024 tokens; ResNet-50, 256 images, channels last), AdamW, bf16
autocast, no dropout. tandem trains with one shard, with eight in one pass, with eight one by one; PyTorch with the whole
batch, eagerly and compiled, without waiting for the GPU between steps. Blocks of steps take turns; a figure is the median
of the blocks' medians. Floors: eight shards have 0.95 of the speed of one (GPT-2), 0.90 (ResNet-50); eight shards of the
transformer are 1.2 times eager PyTorch. Exit 1 where one is missed. Memory: what each takes of the GPU at most, alone;
of PyTorch torch.cuda.max_memory_allocated(), of tandem what is reserved, with the CUDA context.
"""
import argparse
import datetime
import json
import pathlib
import statistics
import subprocess
import sys
import time

SHAPES = {"gpt2": (32, "GPT-2 small, 32 x 1,024 tokens"), "resnet50": (256, "ResNet-50, 256 images")}
FLOORS = {"gpt2": {"batched / one": 0.95, "batched / eager": 1.2}, "resnet50": {"batched / one": 0.90}}
AIMS = {"gpt2": {"batched / one": 0.98, "batched / compiled": 1.0}, "resnet50": {"batched / one": 0.95, "batched / compiled": 1.0}}
OURS = ("one", "batched", "serial")
WARM_UP = 14


def gpt2(rows):
    import torch
    import torch.nn.functional as F

    width, heads, layers, vocabulary, tokens = 768, 12, 12, 50304, 1024

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
            self.h = torch.nn.ModuleList(Block() for _ in range(layers))
            self.ln_f, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, vocabulary, bias=False)
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    torch.nn.init.normal_(parameter, std=0.02)
            self.head.weight = self.wte.weight

        def forward(self, text):
            x = self.wte(text) + self.wpe(torch.arange(tokens, device=text.device))
            for block in self.h:
                x = block(x)
            return self.head(self.ln_f(x)).flatten(0, 1)

    text = torch.arange(rows * (tokens + 1)).mul(7919).remainder(50257).view(rows, tokens + 1).cuda()
    return Gpt2().cuda(), text[:, :-1].contiguous(), text[:, 1:].flatten()


def resnet50(rows):
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

        def forward(self, pictures):
            x = pictures.permute(0, 3, 1, 2).float().sub_(112).div_(64)  # bytes, channels last
            x = torch.nn.functional.max_pool2d(self.bn1(self.conv1(x)).relu_(), 3, 2, 1)
            for block in self.blocks:
                x = block(x)
            return self.fc(x.mean((2, 3)))

    pictures = torch.randint(0, 256, (rows, 224, 224, 3), dtype=torch.uint8, device="cuda")
    return ResNet50().cuda().to(memory_format=torch.channels_last), pictures, (torch.arange(rows, device="cuda") * 37) % 1000


class Baseline:
    """PyTorch's step, eager or compiled; warmed up."""

    def __init__(self, model, way):
        import torch

        torch.manual_seed(1)
        self.torch = torch
        self.net, self.x, self.y = {"gpt2": gpt2, "resnet50": resnet50}[model](SHAPES[model][0])
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-4, fused=True)
        self.forward = torch.compile(self.loss) if way == "compiled" else self.loss

    def loss(self, x, y):
        with self.torch.autocast("cuda", self.torch.bfloat16):
            return self.torch.nn.functional.cross_entropy(self.net(x), y)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.forward(self.x, self.y)
        loss.backward()
        self.optimizer.step()
        return loss

    def steps(self, count):
        """Seconds of a step, over steps that are queued one behind the other."""
        self.torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            loss = self.step()
        self.torch.cuda.synchronize()
        return {"ms": [1e3 * (time.perf_counter() - begin) / count], "loss": float(loss.detach()),
                "peak_bytes": self.torch.cuda.max_memory_allocated()}


def serve(model, way):
    """In this process: a line with a number of steps, a line of JSON."""
    baseline = Baseline(model, way)
    for line in sys.stdin:
        print(json.dumps(baseline.steps(int(line.split()[1]))), flush=True)


def profile_pytorch(model, way):
    from torch.profiler import ProfilerActivity, profile

    baseline = Baseline(model, way)
    ms = [baseline.steps(count)["ms"][0] for count in (WARM_UP, 10)][1]
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        baseline.steps(1)
    kernels = sorted(seen.key_averages(), key=lambda k: -k.self_device_time_total)
    total = sum(k.self_device_time_total for k in kernels)
    print(f"{model} PyTorch {way}: {ms:.2f} ms a step, {total:.0f} us in {sum(k.count for k in kernels)} launches")
    for k in kernels[:25]:
        us = k.self_device_time_total
        print(f"{us:9.0f} us {100 * us / total:5.1f} % {k.count:5} x {us / k.count:8.1f} us  {k.key[:160]}")


class Server:
    """A program that runs steps when it is asked to."""

    def __init__(self, *command):
        self.command = [str(word) for word in command]
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def steps(self, way, count):
        self.process.stdin.write(f"{way} {count}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line.startswith("{"):
            sys.exit(f"error: {' '.join(self.command)} said '{line.strip()}' and ended with code {self.process.wait()}")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure(model, program, ways, quick):
    """ms of each way: the median of its blocks; and its peak memory in bytes."""
    ours = Server(program, model, "--serve")
    servers = {way: ours if way in OURS else Server(sys.executable, __file__, "--serve", model, way) for way in ways}
    losses = {way: servers[way].steps(way, WARM_UP)["loss"] for way in ways}
    blocks, peaks = {way: [] for way in ways}, {}
    for _ in range(3 if quick else 7):
        for way in ways:
            servers[way].steps(way, 2)
            seen = servers[way].steps(way, 8 if quick else 20)
            blocks[way].append(statistics.median(seen["ms"]))
            losses[way] = seen["loss"]
            peaks[way] = seen.get("peak_bytes")
    for server in set(servers.values()):
        server.close()
    for way in OURS:
        done = subprocess.run([str(program), model, "--memory", way], stdout=subprocess.PIPE, text=True, check=True)
        peaks[way] = json.loads(done.stdout.splitlines()[-1])["peak_bytes"]
    return {way: statistics.median(ms) for way, ms in blocks.items()}, {way: (min(ms), max(ms)) for way, ms in blocks.items()}, losses, peaks


def verdicts(model, ms):
    """(name, ratio, floor or None, aim or None): how many times as fast the first is."""
    pairs = [("batched", "one"), ("serial", "one"), ("batched", "eager"), ("batched", "compiled"), ("one", "eager")]
    return [(name, ms[b] / ms[a], FLOORS[model].get(name), AIMS[model].get(name))
            for a, b in pairs if a in ms and b in ms for name in [f"{a} / {b}"]]


def result_row(model, ms):
    rows = SHAPES[model][0]
    unit = ("tokens/s", rows * 1024) if model == "gpt2" else ("images/s", rows)
    figure = lambda way: round(1e3 * unit[1] / ms[way])  # noqa: E731
    names = {"one": "one shard", "serial": "eight shards one by one", "eager": "PyTorch eager", "compiled": "PyTorch compiled"}
    return {"what": f"{SHAPES[model][1]}, bf16, eight shards in one pass", "figure": figure("batched"), "unit": unit[0],
            "baselines": [{"name": name, "figure": figure(way)} for way, name in names.items() if way in ms],
            "goal": ", ".join(f"{name} {floor:.2f}" for name, floor in FLOORS[model].items())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path, nargs="?")
    parser.add_argument("--model", choices=SHAPES)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--machine", default="H200", help="its name in docs/results, for --results")
    parser.add_argument("--serve", nargs=2, metavar=("MODEL", "WAY"), help="PyTorch alone, in this process")
    parser.add_argument("--profile-pytorch", nargs=2, metavar=("MODEL", "WAY"), help="the same")
    options = parser.parse_args()
    if options.serve:
        return serve(*options.serve)
    if options.profile_pytorch:
        return profile_pytorch(*options.profile_pytorch)
    if not options.program:
        parser.error("which program? build/bench/gpu_shards")
    program = options.program.resolve()
    models = [options.model] if options.model else list(SHAPES)
    compiled = ["compiled"] if options.compile or not options.quick else []
    if options.profile:
        commands = [[program, model, "--profile"] for model in models]
        commands += [[sys.executable, __file__, "--profile-pytorch", model, way] for model in models for way in ("eager", *compiled)]
        return max(subprocess.run(list(map(str, command))).returncode for command in commands)
    held, figures, rows = True, [], []
    for model in models:
        begin = time.monotonic()
        ms, spread, losses, peaks = measure(model, program, [*OURS, "eager", *compiled], options.quick)
        print(f"{SHAPES[model][1]}, bf16 ({time.monotonic() - begin:.0f} s)")
        for way, value in ms.items():
            print(f"  {('tandem ' if way in OURS else 'PyTorch ') + way:<18} {value:8.2f} ms a step   {1e3 / value:7.3f} steps/s"
                  f"   blocks {spread[way][0]:.2f} to {spread[way][1]:.2f}   loss {losses[way]:.4f}"
                  f"   {peaks[way] / 1e9:.2f} GB")
        for name, ratio, floor, aim in verdicts(model, ms):
            word = "" if floor is None and aim is None else "aim held" if aim and ratio >= aim else "floor held" if floor and ratio >= floor else \
                f"aim {aim} missed" if floor is None else f"FLOOR {floor} MISSED"
            held = held and (floor is None or ratio >= floor)
            print(f"  {name:<20} {ratio:6.3f}   {word}", flush=True)
        figures.append({"model": model, "ms": ms, "blocks": spread, "losses": losses, "peak_bytes": peaks,
                        "ratios": {name: ratio for name, ratio, _, _ in verdicts(model, ms)}})
        rows.append(result_row(model, ms))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    if options.results:
        table = {"machine": options.machine, "date": datetime.date.today().isoformat(), "command": "python3 bench/gpu_shards_baseline.py build/bench/gpu_shards",
                 "ratio": "times as fast", "columns": [["what", "what"], ["figure", "figure"], ["baseline", "baseline"],
                                                       ["times as fast", "ratio"], ["floors", "goal"]], "rows": rows}
        options.results.write_text(json.dumps({"shard_speed": table}, indent=1))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())

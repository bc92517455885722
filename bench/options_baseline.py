#!/usr/bin/env python3
"""`tandem train options` beside PyTorch, in one run: python3 bench/options_baseline.py build/bin [options]

  --device cpu|cuda:0     cpu unless given             --batch 256,1024    samples of an update
  --updates N             updates that a turn times    --rounds N          turns of each side
  --environments N        of each of the 8 shards      --quick             one short turn each
  --json                  one object on stdout, the table on stderr

Needs a Python with torch and safetensors. The net is recipe options' own: 3 x (LSTM 256, 8-head attention, LayerNorm,
dropout .1) over a window of 20 x 160 numbers, trunk 256, heads 256-128-31 and 256-128-1. First the two must have the
same parameters: what `tandem export` writes is loaded into PyTorch's module by name, one to one. Then they take turns.

tandem runs as users run it, so its update includes gathering the windows, the engine and the log. PyTorch's includes
forward, loss, backward, clipping and fused Adam, on one batch that stays where it is. On the CPU both have one thread
and fp32, and an update is measured in processor time. On a GPU it is measured in wall time, PyTorch's eagerly and as a
CUDA graph, in bf16 autocast and in fp32 with TF32 products. tandem runs in fp16 with its loss scale too, without
PyTorch's beside it. PyTorch queues its updates without waiting for the GPU;
tandem reads each update's result. The first four rollouts of a run are left out there: in them graphs are captured and
compared with eager runs. A rollout is learned from in 10 epochs. End to end is the rollout's steps over the
wall time of collecting them, of their advantages and of all their updates.

Floors: on the CPU an update is 1.5 times as fast as PyTorch's; on a GPU, in bf16, as fast as PyTorch's captured one,
and end to end 8,000 environment steps/s at batch 256 and 12,000 at 1,024. Exit 1 where a floor is missed, 2 where the
parameters differ.
"""
import argparse
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

WINDOW, WIDTH, HIDDEN, LAYERS, HEADS, ACTIONS, DROPOUT = 20, 160, 256, 3, 8, 31, 0.1
CLIP_RANGE, VALUE_WEIGHT, ENTROPY_WEIGHT, RATE, EPSILON, CLIP_NORM = 0.2, 0.5, 0.01, 3e-4, 1e-5, 0.5
SHARDS, EPOCHS = 8, 10
LEFT_OUT = 4  # of a GPU's rollouts: libraries are loaded, graphs captured and twice compared with eager runs
UPDATE_FLOORS = {"cpu": ("tandem fp32 / eager fp32", 1.5), "cuda": ("tandem bf16 / captured bf16", 1.0)}
END_TO_END_FLOORS = {256: 8_000, 1024: 12_000}  # environment steps/s, of bf16 on a GPU
TICK = 1 / os.sysconf("SC_CLK_TCK")


# ---- PyTorch ----

def head(into, *widths):
    layers = []
    for width in widths:
        layers += [torch.nn.Linear(into, width), torch.nn.ReLU()]
        into = width
    return torch.nn.Sequential(*layers[:-1])


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.input = torch.nn.Linear(WIDTH, HIDDEN)
        for i in range(LAYERS):
            self.add_module(f"lstm{i}", torch.nn.LSTM(HIDDEN, HIDDEN, batch_first=True))
            self.add_module(f"attention{i}", torch.nn.MultiheadAttention(HIDDEN, HEADS, batch_first=True))
            self.add_module(f"norm{i}", torch.nn.LayerNorm(HIDDEN))
        self.trunk = head(HIDDEN, HIDDEN, HIDDEN)
        self.policy, self.value = head(HIDDEN, 256, 128, ACTIONS), head(HIDDEN, 256, 128, 1)

    def forward(self, seen):
        x = self.input(seen)
        for i in range(LAYERS):
            carried, _ = getattr(self, f"lstm{i}")(x)
            attended, _ = getattr(self, f"attention{i}")(carried, carried, carried, need_weights=False)
            x = F.dropout(getattr(self, f"norm{i}")(carried + attended), DROPOUT, self.training)
        x = F.relu(self.trunk(x[:, -1]))
        return self.policy(x).float(), self.value(x).float().squeeze(1)


class Baseline:
    """PyTorch's update, eager or captured, warmed up."""

    def __init__(self, device, batch, way, precision, weights):
        torch.manual_seed(1)
        self.device, self.precision = torch.device(device), precision
        self.net = Net().to(self.device)
        self.net.load_state_dict(weights)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=RATE, eps=EPSILON, fused=True,
                                          capturable=way == "captured")
        self.seen = torch.randn(batch, WINDOW, WIDTH, device=self.device)
        self.action = torch.randint(0, ACTIONS, (batch, 1), device=self.device)
        self.old = torch.full((batch,), 1 / ACTIONS, device=self.device).log()
        self.advantage, self.target = torch.randn(2, batch, device=self.device)
        self.update = self.step
        if way == "captured":
            self.capture()
        self.updates(3)

    def loss(self):
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16", cache_enabled=False):
            policy, value = self.net(self.seen)
        log_p = F.log_softmax(policy, 1)
        ratio = (log_p.gather(1, self.action).squeeze(1) - self.old).exp()
        clipped = ratio.clamp(1 - CLIP_RANGE, 1 + CLIP_RANGE)
        policy_loss = -torch.min(ratio * self.advantage, clipped * self.advantage).mean()
        entropy = -(log_p.exp() * log_p).sum(1).mean()
        return policy_loss + VALUE_WEIGHT * F.mse_loss(value, self.target) - ENTROPY_WEIGHT * entropy

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.loss().backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), CLIP_NORM, foreach=True)
        self.optimizer.step()

    def capture(self):
        aside = torch.cuda.Stream(self.device)
        aside.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(aside):
            for _ in range(5):
                self.step()
        torch.cuda.current_stream(self.device).wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        self.update = graph.replay

    def updates(self, count):
        """Seconds of an update: processor time on the CPU, wall time of updates that are queued on a GPU."""
        if self.device.type == "cpu":
            times = []
            for _ in range(count):
                begin = time.process_time()
                self.update()
                times.append(time.process_time() - begin)
            return statistics.median(times)
        torch.cuda.synchronize(self.device)
        begin = time.perf_counter()
        for _ in range(count):
            self.update()
        torch.cuda.synchronize(self.device)
        return (time.perf_counter() - begin) / count


# ---- tandem ----

def processor_seconds(root):
    """Of a process and all below it that still run, to a clock tick."""
    total, todo = 0, [root]
    while todo:
        at = pathlib.Path("/proc") / str(todo.pop())
        try:
            fields = (at / "stat").read_text().rpartition(")")[2].split()
            for thread in (at / "task").iterdir():
                todo += map(int, (thread / "children").read_text().split())
        except OSError:  # it has ended
            continue
        total += int(fields[11]) + int(fields[12])
    return total * TICK


def lines_of(path):
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


class Tandem:
    def __init__(self, folder, given):
        self.program, self.device = folder.resolve() / "tandem", given.device
        self.environments, self.horizon = given.environments, 16 if given.device == "cpu" else 64
        self.rollout = SHARDS * self.environments * self.horizon

    def updates_per_rollout(self, batch):
        return EPOCHS * self.rollout // batch

    def train(self, batch, precision, steps, run):
        """The records of its steps; on the CPU with the processor time that the run had taken when each was written."""
        settings = {"shards": SHARDS, "environments": self.environments, "ppo.horizon": self.horizon,
                    "ppo.epochs": EPOCHS, "validation.every": "never", "checkpoint.every": "never", "guard.mode": "off"}
        devices = "cpu:1" if self.device == "cpu" else self.device
        command = [self.program, "train", "options", "--json", "--devices", devices, "--batch-size", batch,
                   "--precision", precision, "--steps", steps, "--run-dir", run]
        command = [str(word) for word in command] + [f"--set={key}={value}" for key, value in settings.items()]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"} if self.device == "cpu" else None
        with tempfile.TemporaryFile("w+") as words:
            process = subprocess.Popen(command, stdout=words, stderr=words, env=environment)
            log, size, taken = run / "metrics.jsonl", 0, {}
            while process.poll() is None:
                time.sleep(0.01)
                if self.device != "cpu" or not log.exists() or log.stat().st_size == size:
                    continue
                now, size = processor_seconds(process.pid), log.stat().st_size
                for record in lines_of(log):
                    taken.setdefault(record["step"], now)
            if process.returncode:
                words.seek(0)
                raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}\n{words.read()[-2000:]}")
        return [{**record, "taken": taken.get(record["step"])} for record in lines_of(log)]

    def figures(self, batch, precision, updates):
        """Seconds of an update, of collecting a rollout and of a whole one."""
        steps = 2 + updates if self.device == "cpu" else (LEFT_OUT + 4) * self.updates_per_rollout(batch)
        with tempfile.TemporaryDirectory() as folder:
            records = self.train(batch, precision, steps, pathlib.Path(folder) / "run")
        # A run's first two updates are checked for equal bits.
        records = records if self.device == "cpu" else records[LEFT_OUT * self.updates_per_rollout(batch):]
        alone = [i for i, record in enumerate(records) if record["step"] > 2 and set(record["phases"]) == {"learn"}]
        wall = [records[i]["seconds"] for i in alone]
        update = statistics.median(wall)
        if self.device == "cpu":
            pairs = [(records[i - 1]["taken"], records[i]["taken"]) for i in alone]
            update = statistics.mean(after - before for before, after in pairs if None not in (before, after))
        first = [record["phases"] for record in records if "collect" in record["phases"]]
        collect, advantages = (statistics.median(one[name] for one in first) for name in ("collect", "advantages"))
        return {"update": update, "collect": collect,
                "rollout": collect + advantages + self.updates_per_rollout(batch) * statistics.mean(wall)}

    def weights(self):
        """As `tandem export` writes them, of a run of one step."""
        with tempfile.TemporaryDirectory() as folder:
            run, file = pathlib.Path(folder) / "run", pathlib.Path(folder) / "weights.safetensors"
            self.train(min(256, self.rollout), "fp32", 1, run)
            subprocess.run([self.program, "export", run, "--output", file], check=True, capture_output=True)
            return load_file(file)


def same_parameters(weights):
    """None, or how the two nets differ."""
    theirs = {name: tuple(tensor.shape) for name, tensor in Net().state_dict().items()}
    ours = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    wrong = [name for name in sorted(theirs.keys() | ours.keys()) if theirs.get(name) != ours.get(name)]
    return "; ".join(f"{name} tandem {ours.get(name)}, PyTorch {theirs.get(name)}" for name in wrong) or None


def patiently(work):
    """Again where the program was just being built."""
    for left in (2, 1, 0):
        try:
            return work()
        except (OSError, RuntimeError, subprocess.CalledProcessError):
            if not left:
                raise
            time.sleep(20)


# ---- both ----

def measure(tandem, batch, weights, given):
    on_cpu = given.device == "cpu"
    precisions = ["fp32"] if on_cpu else ["bf16", "tf32", "fp16"]
    baselines = {f"{way} {precision}": Baseline(given.device, batch, way, precision, weights)
                 for way in ("eager", "captured")[:1 if on_cpu else 2] for precision in precisions if precision != "fp16"}
    ours, theirs = {f"tandem {precision}": [] for precision in precisions}, {name: [] for name in baselines}
    for _ in range(given.rounds):
        for precision in precisions:
            ours[f"tandem {precision}"].append(patiently(lambda: tandem.figures(batch, precision, given.updates)))
        for name, baseline in baselines.items():
            theirs[name].append(baseline.updates(given.updates))
    of_rounds = {name: [one["update"] for one in rounds] for name, rounds in ours.items()} | theirs
    update = {name: statistics.median(seconds) for name, seconds in of_rounds.items()}

    def steps_per_second(part):
        return {name: tandem.rollout / statistics.median(one[part] for one in rounds) for name, rounds in ours.items()}

    return {"batch": batch, "update_seconds": update, "update_seconds_of_rounds": of_rounds,
            "samples_per_second": {name: batch / seconds for name, seconds in update.items()},
            "collect_steps_per_second": steps_per_second("collect"),
            "end_to_end_steps_per_second": steps_per_second("rollout")}


def verdicts(figures, device):
    """(name, value, floor or None) of a batch."""
    seconds, kind, found = figures["update_seconds"], device.split(":")[0], []
    with_floor, least = UPDATE_FLOORS[kind]
    for mine in figures["collect_steps_per_second"]:
        for way in ("eager", "captured"):
            other = f"{way} {mine.split()[1]}"
            if other in seconds:
                pair = f"{mine} / {other}"
                found.append((pair, seconds[other] / seconds[mine], least if pair == with_floor else None))
    if kind == "cuda" and figures["batch"] in END_TO_END_FLOORS:
        found.append(("end to end bf16, env steps/s", figures["end_to_end_steps_per_second"]["tandem bf16"],
                      END_TO_END_FLOORS[figures["batch"]]))
    return found


def show(figures, judged, say):
    collect, end_to_end = figures["collect_steps_per_second"], figures["end_to_end_steps_per_second"]
    for name, seconds in figures["update_seconds"].items():
        rounds = figures["update_seconds_of_rounds"][name]
        title = name if name in collect else "PyTorch " + name
        environment = f"   env steps/s: collect {collect[name]:,.0f}, end to end {end_to_end[name]:,.0f}" \
            if name in collect else ""
        say(f"batch {figures['batch']:<5} {title:<22} {1e3 * seconds:9.2f} ms an update, rounds "
            f"{1e3 * min(rounds):.2f} to {1e3 * max(rounds):.2f} {figures['samples_per_second'][name]:9,.0f} samples/s"
            f"{environment}")
    for name, value, floor in judged:
        word = "" if floor is None else f"floor {floor:,} " + ("held" if value >= floor else "MISSED")
        say(f"            {name:<32} {value:10,.2f}   {word}".rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", default="256,1024")
    parser.add_argument("--updates", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--environments", type=int)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    on_cpu = given.device == "cpu"
    given.updates = given.updates or ((2 if given.quick else 5) if on_cpu else (50 if given.quick else 200))
    given.rounds = given.rounds or (1 if given.quick else 3)
    given.environments = given.environments or (16 if on_cpu else 32)
    if on_cpu:
        torch.set_num_threads(1)
    else:
        torch.cuda.set_device(given.device)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    stream = sys.stderr if given.json else sys.stdout
    say = lambda line: print(line, file=stream, flush=True)  # noqa: E731

    tandem = Tandem(given.folder, given)
    weights = patiently(tandem.weights)
    differs, count = same_parameters(weights), sum(tensor.numel() for tensor in weights.values())
    if differs:
        say(f"the two nets differ: {differs}")
        return 2
    say(f"same parameters: {len(weights)} tensors, equal in name and shape, {count:,} numbers, loaded into PyTorch")
    say(f"rollouts of {SHARDS} shards x {tandem.environments} environments x {tandem.horizon} steps = "
        f"{tandem.rollout:,}, {EPOCHS} epochs; {given.rounds} rounds; updates in "
        + ("processor time of one thread" if on_cpu else f"wall time on {torch.cuda.get_device_name()}"))
    held, results = True, []
    for batch in map(int, given.batch.split(",")):
        figures = measure(tandem, batch, weights, given)
        judged = verdicts(figures, given.device)
        show(figures, judged, say)
        held = held and all(floor is None or value >= floor for _, value, floor in judged)
        rows = [{"name": name, "value": value, "floor": floor} for name, value, floor in judged]
        results.append(figures | {"ratios": rows})
    if given.json:
        whole = {"schema": 1, "device": given.device, "parameters": count, "rollout_steps": tandem.rollout,
                 "epochs": EPOCHS, "floors_held": held, "batches": results}
        print(json.dumps(whole, indent=1))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())

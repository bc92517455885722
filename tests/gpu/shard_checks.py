"""Parts of test_gpu.py: models of layers that run several shards in one pass (shard_models.h)."""
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import tempfile

from gpu_runs import Runs, busy, lines_of

# An epoch is seven updates, the last of them padded.
MODELS = {model: ["--batch-size", batch, "--set", f"samples={6 * batch + 3}"] for model, batch in (("gpt", 16), ("bert", 64), ("resnet", 64))}
ONE, TWO, THREE = (",".join(["cuda:0"] * n) for n in (1, 2, 3))
AT_ONCE = 5  # processes on the GPU: they are each other's load


def events(runs, output):
    return [json.loads(line).get("text", "") for line in (runs.dir / output["dir"] / "events.jsonl").read_text().splitlines()] if output else []


def shard_runs():
    """(model, group, name, arguments, environment): one digest in each group of a model."""
    for model, size in MODELS.items():
        bf16, fp16 = ["--precision", "bf16", "--steps", 20], ["--precision", "fp16", "--steps", 12, "--set", "amp.growth_steps=3", "--set", "amp.initial_scale=1e9"]
        two_micro = ["--precision", "bf16", "--steps", 8, "--accumulation", 2]
        for name, args, devices, env in (
                ("one worker", [], ONE, {}), ("the same again", [], ONE, {}), ("two workers", [], TWO, {}), ("three workers", [], THREE, {}),
                ("not captured", [], ONE, {"TANDEM_GRAPHS": "off"}), ("three workers, not captured", [], THREE, {"TANDEM_GRAPHS": "off"}),
                ("one shard to a pass", ["--set", "shards_per_pass=1"], ONE, {}), ("three shards to a pass", ["--set", "shards_per_pass=3"], ONE, {}),
                ("one of two killed", [], TWO, {"TANDEM_FAULT": "in-phase rank=1 step=11 do=kill"}), ("data on the GPU", ["--set", "resident=true"], ONE, {})):
            yield model, "bf16", name, [*size, *bf16, *args, "--devices", devices], env
        for group, more in (("fp32", ["--steps", 6]), ("fp16 with loss scaling", fp16), ("accumulation of 2", two_micro)):
            for name, devices in (("one worker", ONE), ("three workers", THREE)):
                yield model, group, name, [*size, *more, "--devices", devices], {}
        if model == "resnet":
            for name, devices in (("one worker", ONE), ("two workers", TWO)):
                yield model, "sync_bn", name, [*size, "--steps", 6, "--set", "sync_bn=true", "--devices", devices], {}
        mixed = [*size, "--steps", 4, "--set", "mixes_rows=true", "--devices", ONE]
        yield model, "mixes rows", "by itself", mixed, {}
        yield model, "mixes rows", "one shard to a pass", [*mixed, "--set", "shards_per_pass=1"], {}
        for name, devices in (("one worker", ONE), ("two workers", TWO)):
            yield model, "torch's layers", name, [*size, "--steps", 6, "--set", "plain=true", "--devices", devices], {}


def check_group(c, runs, model, group, seen):
    """`seen`: name -> what the run said."""
    digests = {name: (output or {}).get("digest") for name, output in seen.items()}
    c.check(len(set(digests.values())) == 1 and None not in digests.values(), f"{model}, {group}: one digest",
            {name: (digest or "none")[:12] for name, digest in digests.items()})
    for name, output in seen.items():
        if not output:
            continue
        words = [text for text in events(runs, output) if "shard by shard" in text]
        if group == "mixes rows":
            found = len(words) == 1 and "mixes rows" in words[0] and "layer '" in words[0]
            c.check(found if name == "by itself" else not words, f"{model}, {group}, {name}: {'falls back, the layer is named' if name == 'by itself' else 'nothing to say'}", words)
        elif group not in ("torch's layers", "sync_bn"):
            c.check(not words, f"{model}, {group}, {name}: shards run in one pass", words)
        eager = [text for text in events(runs, output) if "eagerly" in text]
        if "not captured" not in name:
            c.check(not eager, f"{model}, {group}, {name}: is captured", eager)
        if "killed" in name:
            c.check(output.get("deaths", 0) >= 1, f"{model}, {group}, {name}: a worker died")
        if group == "fp16 with loss scaling":
            scales = {json.loads(line).get("scale") for line in (runs.dir / output["dir"] / "metrics.jsonl").read_text().splitlines()}
            c.check(len(scales) > 1, f"{model}, {group}, {name}: the loss scale moves", sorted(scales)[:4])


def shards(c):
    """Several shards in one pass: one digest on one, two and three workers, captured and not, for any shards to a pass."""
    runs = Runs(c)
    noise = busy(c)
    try:
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            jobs = [(model, group, name, pool.submit(runs.train, "shards", "--set", f"model={model}",
                                                     "--run-dir", f"{model}-{number}", *args, env=env))
                    for number, (model, group, name, args, env) in enumerate(shard_runs())]
    finally:
        os.killpg(noise.pid, signal.SIGKILL)
    groups = {}
    for model, group, name, job in jobs:
        groups.setdefault((model, group), {})[name] = job.result()
    for (model, group), seen in groups.items():
        check_group(c, runs, model, group, seen)


class Mps:
    """NVIDIA's multi-process service in a folder of our own; `error` says why it is not to be had."""

    def __enter__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="tandem-mps-"))
        self.env = {"CUDA_MPS_PIPE_DIRECTORY": str(self.dir / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(self.dir / "log")}
        for folder in self.env.values():
            pathlib.Path(folder).mkdir()
        self.error = self.control("-d")
        return self

    def control(self, *args, text=None):
        try:
            done = subprocess.run(["nvidia-cuda-mps-control", *args], input=text, capture_output=True, text=True, timeout=60, env={**os.environ, **self.env})
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        return "" if done.returncode == 0 else f"code {done.returncode}: {done.stdout}{done.stderr}"

    def __exit__(self, *_):
        if not self.error:
            self.control(text="quit\n")


def sms(c):
    """Every layer with the same input on all SMs and on half of them: what follows their number is listed."""
    program = c.tests / "gpu_layer_bits"
    with Mps() as mps, tempfile.TemporaryDirectory(prefix="tandem-bits-") as folder:
        if mps.error:
            print(f"-- sms: left out, MPS does not start: {mps.error}", flush=True)
            return
        for model in MODELS:
            file = pathlib.Path(folder) / model
            share = {percent: {**mps.env, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": percent} for percent in ("100", "50")}
            code, found, words = lines_of(program, model, "--write", file, env=share["100"])
            if not c.check(code == 0 and found, f"{model} on all SMs", found[-1:] or words[-300:]):
                continue
            again = lines_of(program, model, "--against", file, env=share["100"])[1]
            half = lines_of(program, model, "--against", file, env=share["50"])[1]
            for name, seen in (("a second time", again), ("on half of the SMs", half)):
                differ = [line for line in seen if line.get("differ")]
                if not c.check(bool(seen) and "sms" in seen[-1], f"{model} {name}", seen[-1:]):
                    continue
                c.check(not differ, f"{model} {name}: {len(differ)} of {len(seen) - 1} tensors differ",
                        [f"{line['layer']} {line['what']}: {line['differ']:.2g} of its numbers" for line in differ][:12])
            c.results.setdefault("sms", {})[model] = [line for line in half if line.get("differ")]

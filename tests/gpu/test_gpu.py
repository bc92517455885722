#!/usr/bin/env python3
"""What needs a GPU, in one go: python3 tests/gpu/test_gpu.py <build folder> [--only PART] [--recipes NAME ...] [--out results.json]

Parts: twins (each kernel beside its CPU twin), operators (which library operators give equal bits), digests (one digest
on one, two and three workers, in several processes, under load, after kills and a resume), repetitions (twenty in one
process), settings (the same with other precisions and accumulation), graphs (a step as one graph and launch by launch),
shards (several of a worker in one pass; models of shard_models.h), sms (which layers' bits follow the number of SMs,
under MPS), executors (phases that change state, exchange, run now and then), video, validation, dqn (web-test agents wholly on
the GPU), faults, checkpoints, times, nccl (workers on one GPU over NCCL; that takes NCCL 2.29 or later, whose
libnccl.so.2 lies in the folder TANDEM_TEST_NCCL; without it only the refusal is looked at), peers (sums by kernels,
peer_checks.py). One line per check; a JSON file with everything, written after each part; the minutes of each part. --recipes: of digests, settings and graphs only these. Exit 1 if a check failed, 2 if there is no GPU.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import traceback

from gpu_runs import Checks, Runs, busy, lines_of, said_by
from peer_checks import peers
from shard_checks import shards, sms
from video_runs import video

REFUSED_ON_PURPOSE = ("adaptive_max_pool2d", "max_pool3d", "avg_pool3d", "upsample", "attention cudnn")


def twins(c):
    code, found, words = lines_of(c.tests / "kernel_twins")
    equal = sum(line["equal"] for line in found)
    c.check(code == 0 and equal == len(found), "kernels equal their CPU twins", f"{equal} of {len(found)}")
    c.results["twins_gbps"] = {line["kernel"]: line["gbps"] for line in found if line.get("gbps")}
    done = said_by([c.tests / "twins_video"])
    compared = [line for line in done.stdout.splitlines() if line.startswith(("equal", "DIFFERS"))]
    equal = sum(line.startswith("equal") for line in compared)
    c.check(done.returncode == 0 and equal == len(compared) > 30, "clips, norm + pool and the first block equal their CPU twins", f"{equal} of {len(compared)}")
    c.results["video_kernel_times"] = [line for line in done.stdout.splitlines() if line not in compared]
    code, found, words = lines_of(c.tests / "environment_twins")
    equal = sum(line["equal"] for line in found)
    c.check(code == 0 and equal == 6, "web-test environments equal their CPU twins", f"{equal} of 6")
    c.results["world_steps_per_s"] = {line["agent"]: line["with_observation_per_s"] for line in found}
    code, found, words = lines_of(c.tests / "twins_options")
    equal = sum(line["equal"] for line in found)
    c.check(code == 0 and equal == len(found) == 4, "options environments equal their CPU twins", f"{equal} of 4")
    done = said_by([c.tests / "twins_ppo"])
    c.check(done.returncode == 0 and done.stdout.count(" ok\n") == 3, "PPO's kernels equal their CPU twins", done.stdout if done.returncode else "")
    c.results["options_steps_per_s"] = {f"{line['actions']} actions, {line['many']}": line["steps_per_s"] for line in found}
    code, found, words = lines_of(c.tests / "twins_chess")
    checked = [line for line in found if "check" in line]
    equal = sum(line["equal"] for line in checked)
    c.check(code == 0 and equal == len(checked) > 1, "chess equals its CPU twin: games, perft", f"{equal} of {len(checked)}")
    c.results["chess_boards_per_s"] = {line["boards"]: line for line in found if "speed" in line}
    c.results["chess_perft_per_s"] = {f"{line['fen']}, depth {line['depth']}": line["per_s"] for line in checked if "depth" in line}


def operators(c):
    program = c.tests / "gpu_operators"
    ways = [([], {}), (["--repeat", 6, "--reverse", "--hold-mib", 3000], {}),
            (["--repeat", 4, "--hold-mib", 511], {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})]
    runs = [{(line["op"], line["mode"]): line for line in lines_of(program, *args, env=env)[1]} for args, env in ways]
    table = []
    for op in dict.fromkeys(op for op, _ in runs[0]):
        row = {"op": op}
        for mode in ("free", "exact"):
            seen = [run.get((op, mode), {}) for run in runs]
            if any("refused" in one or "hash" not in one for one in seen):
                row[mode] = {"refused": seen[0].get("refused", "it did not come to an end")}
            else:
                row[mode] = {"equal": max(one["distinct"] for one in seen) == 1 and len({one["hash"] for one in seen}) == 1,
                             "us": seen[0]["us"]}
        table.append(row)
        exact = row["exact"]
        if "refused" in exact:
            c.check(op.startswith(REFUSED_ON_PURPOSE), f"{op} is refused behind the switchboard", exact["refused"][:80])
        elif not exact["equal"]:
            c.check(False, f"{op} gives equal bits behind the switchboard")
    c.check(len(table) > 100, "operators looked at", len(table))
    c.results["operators"] = table


# Recurrent, with attention; collects twice in 24 steps, validates twice.
OPTIONS = ["--set", "shards=6", "--set", "environments=8", "--set", "ppo.horizon=16", "--batch-size", "96", "--set", "ppo.epochs=2",
           "--set", "net.width=64", "--set", "net.heads=4", "--set", "market.days=800", "--set", "validation.every=12 steps"]


def digests(c):
    runs = Runs(c)
    steps = {"tiny": ["--steps", 100], "tiny-rl": ["--steps", 40], "mixed": ["--steps", 20], "options": ["--steps", 24, *OPTIONS],
             "video": ["--steps", 40, "--quick"]}
    for recipe, args in steps.items():
        if not c.wanted(recipe):
            continue
        begin = time.monotonic()
        first = runs.train(recipe, *args, "--devices", "cuda:0")
        if not first:
            continue
        want = first["digest"]
        c.check(first["kind"].startswith("cuda-"), f"{recipe} on a GPU", f"{want[:12]} {first['kind']}, {time.monotonic() - begin:.1f} s")
        noise = busy(c)
        try:
            again = {runs.digest(recipe, *args, "--devices", "cuda:0") for _ in range(3)}
        finally:
            os.killpg(noise.pid, signal.SIGKILL)
        c.check(again == {want}, f"{recipe}: three more processes under load", again)
        for devices in ("cuda:0,cuda:0", "cuda:0,cuda:0,cuda:0"):
            got = runs.digest(recipe, *args, "--devices", devices)
            c.check(got == want, f"{recipe}: {devices.count(',') + 1} workers on one GPU", got[:12])
        step = args[1] // 2
        got = runs.train(recipe, *args, "--devices", "cuda:0,cuda:0", env={"TANDEM_FAULT": f"in-phase rank=1 step={step} do=kill"})
        c.check(got.get("digest") == want and got.get("deaths", 1) >= 1, f"{recipe}: one of two killed in step {step}", got.get("digest", "")[:12])
        runs.train(recipe, "--steps", step, *args[2:], "--devices", "cuda:0,cuda:0", "--run-dir", f"half-{recipe}")
        done = subprocess.run([runs.program(recipe), "resume", f"half-{recipe}", "--steps", str(args[1]), "--devices", "cuda:0", "--json"],
                              cwd=runs.dir, capture_output=True, text=True)
        got = json.loads(done.stdout)["digest"] if done.returncode == 0 else done.stderr[-300:]
        c.check(got == want, f"{recipe}: stopped on two, resumed on one", got[:200])


def repetitions(c):
    """In one process, twenty times: any order of shards, memory and a second stream in motion, with and without graphs."""
    code, found, words = lines_of(c.tests / "gpu_repetitions", 20)
    for line in found:
        c.check(line["digests"] == 1, f"{line['recipe']}: {line['repetitions']} repetitions under load", f"{line['digests']} digest, {line['seconds']} s")
    c.check(code == 0 and len(found) == 3, "repetitions came to an end", words[-300:])


def settings(c):
    """One digest on one and three workers, whatever is set."""
    runs = Runs(c)
    for recipe, more in (("tiny", ["--precision", "bf16"]), ("tiny", ["--precision", "fp16"]), ("tiny", ["--precision", "tf32"]),
                         ("tiny", ["--accumulation", "2"]), ("mixed", ["--precision", "bf16"]), ("mixed", ["--precision", "fp16"]),
                         ("options", [*OPTIONS, "--precision", "bf16"]), ("options", [*OPTIONS, "--pretraining", "1"]),
                         ("video", ["--quick", "--precision", "tf32"]), ("video", ["--quick", "--set", "net.kind=full"])):
        if not c.wanted(recipe):
            continue
        args = ["--steps", 8, *more]
        seen = {runs.digest(recipe, *args, "--devices", devices) for devices in ("cuda:0", "cuda:0", "cuda:0,cuda:0,cuda:0")}
        c.check(len(seen) == 1 and "none" not in seen, f"{recipe} {' '.join(more)}: one digest on one and three workers", [s[:12] for s in seen])


def step_milliseconds(runs, output, skip=8):
    records = [json.loads(line) for line in (runs.dir / output["dir"] / "metrics.jsonl").read_text().splitlines()]
    seconds = sorted(r["seconds"] for r in records[skip:])
    return 1e3 * seconds[len(seconds) // 2]


def graphs(c):
    """A step as one CUDA graph, and launch by launch: the same bits, and how much faster."""
    runs = Runs(c)
    for recipe, more in (("tiny", ["--steps", 300]), ("tiny", ["--steps", 60, "--precision", "fp16"]), ("tiny", ["--steps", 30, "--accumulation", 2]),
                         ("tiny-rl", ["--steps", 40]), ("mixed", ["--steps", 40]), ("video", ["--steps", 40, "--quick"])):
        if not c.wanted(recipe):
            continue
        output = {}
        for way, env in (("graph", {}), ("eager", {"TANDEM_GRAPHS": "off"})):
            for workers in (1, 2):
                output[way, workers] = runs.train(recipe, *more, "--devices", ",".join(["cuda:0"] * workers), env=env)
        if not all(output.values()):
            continue
        name = f"{recipe} {' '.join(map(str, more[2:]))}".strip()
        c.check(len({t["digest"] for t in output.values()}) == 1, f"{name}: one digest with and without graphs, on one and two workers",
                {f"{way} {n}": t["digest"][:12] for (way, n), t in output.items()})
        eager = {line for t in output.values() for line in (runs.dir / t["dir"] / "events.jsonl").read_text().splitlines() if "eagerly" in line}
        c.check(not eager, f"{name}: is captured", eager or "")
        speeds = {f"{way} {n}": round(step_milliseconds(runs, t), 3) for (way, n), t in output.items()}
        c.check(True, f"{name}: ms a step", speeds)
        c.results.setdefault("step_ms", {})[name] = speeds
    if c.wanted("mixed"):
        not_captured(c, runs)
    if c.wanted("tiny"):
        ends_of_tiny(c, runs)


def not_captured(c, runs):
    """What can't be captured runs eagerly, and the reason is given."""
    output = [runs.train("mixed", "--steps", 12, "--set", "peek=true", "--devices", devices, env=env)
              for devices in ("cuda:0", "cuda:0,cuda:0") for env in ({}, {"TANDEM_GRAPHS": "off"})]
    words = [line for t in output[::2] if t for line in (runs.dir / t["dir"] / "events.jsonl").read_text().splitlines() if "eagerly" in line]
    c.check(len({t.get("digest") for t in output}) == 1 and len(words) == 2, "mixed peek: runs eagerly, the same digest", words[:1])
    done = subprocess.run([runs.program("mixed"), "train", "mixed", "--steps", "12", "--set", "ragged=true", "--devices", "cuda:0"], cwd=runs.dir, capture_output=True, text=True)
    c.check(done.returncode == 2 and "begins with sample" in done.stderr, "mixed ragged: refused by the sample's number", f"code {done.returncode}")


def ends_of_tiny(c, runs):
    for more in (["--set", "optimizer.kind=sgd", "--set", "optimizer.momentum=0.9"], ["--set", "clip_norm=0.05"], ["--set", "sync_bn=true"],
                 ["--precision", "fp16", "--set", "amp.growth_steps=5", "--set", "amp.initial_scale=1e9"],
                 ["--set", "optimizer.learning_rate=1e30", "--set", "nan.patience=2"]):
        codes, digests = set(), set()
        for devices in ("cuda:0", "cuda:0,cuda:0"):
            for env in ({}, {"TANDEM_GRAPHS": "off"}):
                done = subprocess.run([c.bin / "tandem", "train", "tiny", "--seed", "7", "--json", "--steps", "60", *more, "--devices", devices],
                                      cwd=runs.dir, capture_output=True, text=True, env={**os.environ, **env})
                codes.add(done.returncode)
                digests.add(json.loads(done.stdout).get("digest", "none") if done.stdout.strip() else "none")
        c.check(len(codes) == 1 and len(digests) == 1, f"tiny {' '.join(more[1::2])}: one end with and without graphs, on one and two workers",
                f"code {codes}, {[d[:12] for d in digests]}")
    got = runs.digest("tiny", "--steps", 20, "--devices", "cuda:0", env={"CUDA_LAUNCH_BLOCKING": "1"})
    want = runs.digest("tiny", "--steps", 20, "--devices", "cuda:0")
    c.check(got == want, "tiny with CUDA_LAUNCH_BLOCKING=1", got[:12])


def executors(c):
    """A captured phase that changes its shards' state, sends rows to all and runs at every other step; and what is refused."""
    runs = Runs(c)
    args = ["--steps", 80, "--checkpoint-every", "20"]
    ways = {}
    for name, devices, env in (("graphs, one worker", "cuda:0", {}), ("eager, one worker", "cuda:0", {"TANDEM_GRAPHS": "off"}), ("two workers", "cuda:0,cuda:0", {}),
                               ("three workers", "cuda:0,cuda:0,cuda:0", {}), ("three, one killed", "cuda:0,cuda:0,cuda:0", {"TANDEM_FAULT": "in-phase rank=1 step=51 do=kill"}),
                               ("one, killed", "cuda:0", {"TANDEM_FAULT": "in-phase rank=0 step=40 do=kill"})):
        output = runs.train("walk", *args, "--devices", devices, env=env)
        ways[name] = output.get("digest")
        if output and not env:
            words = [line for line in (runs.dir / output["dir"] / "events.jsonl").read_text().splitlines() if "eagerly" in line]
            c.check(not words, f"walk, {name}: both phases are captured", words[:1] or "")
    c.check(len(set(ways.values())) == 1 and None not in ways.values(), "walk: one digest", {k: (v or "none")[:12] for k, v in ways.items()})
    for what, why in (("host_sum", "adds up"), ("messages", "sends messages"), ("step_dependent", "other bits")):
        output = [runs.train("walk", *args, "--set", f"{what}=true", "--devices", "cuda:0", env=env) for env in ({}, {"TANDEM_GRAPHS": "off"})]
        words = [line for line in (runs.dir / output[0]["dir"] / "events.jsonl").read_text().splitlines() if "eagerly" in line] if output[0] else []
        c.check(len({t.get("digest") for t in output}) == 1 and len(words) == 1 and why in words[0], f"walk {what}: runs eagerly, the same digest", words[:1])


def validation(c):
    """One curve on one, two and three workers, through a kill in a validation; eval gives the numbers of the run."""
    runs = Runs(c)
    args = ["--steps", 120, "--set", "validation.every=1 epochs", "--set", "validation_samples=1003"]
    curves = {}
    for name, devices, env in (("one", "cuda:0", {}), ("eager", "cuda:0", {"TANDEM_GRAPHS": "off"}), ("two", "cuda:0,cuda:0", {}), ("three", "cuda:0,cuda:0,cuda:0", {}),
                               ("three, one killed", "cuda:0,cuda:0,cuda:0", {"TANDEM_FAULT": "in-validation rank=1 step=54 do=kill"})):
        output = runs.train("tiny", *args, "--devices", devices, env=env)
        if not output:
            continue
        records = [json.loads(line) for line in (runs.dir / output["dir"] / "metrics.jsonl").read_text().splitlines()]
        curve = [(r["step"], *(r.get(k) or r.get("metrics", {}).get(k) for k in ("validation/loss", "validation/accuracy"))) for r in records if "validation/loss" in json.dumps(r)]
        curves[name] = (output["digest"], tuple(curve))
        if name == "one":
            for which in ("best", "last"):
                done = subprocess.run([c.bin / "tandem", "eval", output["dir"], "--checkpoint", which, "--device", "cuda:0", "--json"], cwd=runs.dir, capture_output=True, text=True)
                said = json.loads(done.stdout) if done.returncode == 0 else {}
                want = curve[-1] if which == "last" else min(curve, key=lambda row: row[1])
                c.check(str(want[1]) in json.dumps(said), f"eval of {which}: the loss of the run", done.stderr[-300:] or json.dumps(said)[:200])
    c.check(len(curves) == 5 and len(set(curves.values())) == 1 and len(curves["one"][1]) >= 4, "tiny: one digest and one curve of validation",
            {k: f"{d[:8]} {len(v)} points" for k, (d, v) in curves.items()})


def workers_of(pid):
    return [int(p) for p in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def disturbed(runs, recipe, args, steps, gap, what, env=None, workers=3, seed=5):
    """Trains on several workers that share the GPU; at a random moment every so many steps one gets the signal."""
    process = subprocess.Popen([runs.c.bin / "tandem", "train", recipe, "--seed", "7", "--json", *map(str, args), "--devices", ",".join(["cuda:0"] * workers)],
                               cwd=runs.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
    random, hits, run_dir = __import__("random").Random(seed), 0, None
    for line in process.stderr:
        if line.startswith("run"):
            run_dir = runs.dir / line.split()[1]
        if line.startswith("exact"):
            break
    if run_dir is None:
        process.wait()
        return {}, 0
    drain = __import__("threading").Thread(target=process.stderr.read)
    drain.start()
    records = subprocess.Popen(["tail", "-n", "+1", "-F", f"--pid={process.pid}", run_dir / "metrics.jsonl"], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)
    next_hit = random.randrange(*gap)
    for line in records.stdout:  # tail itself would wait for ever: the process stays until it is asked for
        step = json.loads(line)["step"]
        if step == steps or process.poll() is not None:
            break
        alive = workers_of(process.pid)
        if step >= next_hit and len(alive) == workers:
            try:
                os.kill(random.choice(alive), what)
            except ProcessLookupError:
                continue
            hits += 1
            next_hit = step + random.randrange(*gap)
    records.kill()
    records.wait()
    drain.join()
    text = process.stdout.read()
    return (json.loads(text) if process.wait() == 0 else {}), hits


def faults(c):
    """Deaths in the middle of graphs, no memory on one rank, a GPU that stops answering: the digest of a quiet run."""
    runs = Runs(c)
    args = ["--steps", 3000, "--checkpoint-every", "1000"]
    quiet = runs.train("tiny", *args, "--devices", "cuda:0")
    want = quiet.get("digest")
    output, kills = disturbed(runs, "tiny", args, 3000, (100, 700), signal.SIGKILL)
    c.check(output.get("digest") == want and kills >= 2, f"tiny: {kills} of three workers killed at random moments", output.get("digest", "")[:12])
    if not output:
        return
    events = [json.loads(line) for line in (runs.dir / output["dir"] / "events.jsonl").read_text().splitlines()]
    records = [json.loads(line) for line in (runs.dir / output["dir"] / "metrics.jsonl").read_text().splitlines()]
    gaps = []
    for event in events:
        if event["kind"] == "fault":
            later = [r["t"] for r in records if r["t"] > event["t"]]
            gaps += [min(later) - event["t"]] if later else []
    c.check(bool(gaps) and max(gaps) <= 5, "a step is finished after each death within", f"{max(gaps, default=-1):.2f} s (goal 5 and the re-run)")
    for act, words in (("oom", "out of memory"), ("hang", "no progress for")):
        begin = time.monotonic()
        output = runs.train("tiny", "--steps", 60, "--devices", "cuda:0,cuda:0", env={"TANDEM_FAULT": f"in-phase rank=1 step=30 do={act}"})
        alone = runs.digest("tiny", "--steps", 60, "--devices", "cuda:0")
        text = (runs.dir / output["dir"] / "events.jsonl").read_text() if output else ""
        lines = [json.loads(line)["text"] for line in text.splitlines() if '"fault"' in line]
        c.check(output.get("digest") == alone and words in text, f"tiny: rank 1 of two, do={act} in step 30: {time.monotonic() - begin:.1f} s", lines[:1])


def checkpoints(c):
    """A gigabyte of state, saved while it trains."""
    runs = Runs(c)
    output = runs.train("tiny", "--set", "hidden=6400", "--set", "shards=1", "--steps", 60, "--devices", "cuda:0",
                      "--checkpoint-every", "20")
    if output:
        records = [json.loads(line) for line in (runs.dir / output["dir"] / "metrics.jsonl").read_text().splitlines()]
        gaps = [b["t"] - a["t"] - b["seconds"] for a, b in zip(records[5:], records[6:])]
        size = sum(f.stat().st_size for f in (runs.dir / output["dir"] / "checkpoints").rglob("*") if f.is_file())
        c.results["checkpoint"] = {"gaps_ms": [round(1e3 * g, 2) for g in sorted(gaps)[-6:]], "bytes": size}
        c.check(max(gaps) <= 0.05, "the longest stall of a checkpoint of 1 GB", f"{1e3 * max(gaps):.1f} ms (goal 50); {size / 1e9:.2f} GB in the folder")


def times(c):
    runs = Runs(c)
    for recipe in ("tiny", "mixed"):
        begin = time.time()
        output = runs.train(recipe, "--steps", 30, "--devices", "cuda:0")
        if output:
            records = [json.loads(line) for line in (runs.dir / output["dir"] / "metrics.jsonl").read_text().splitlines()]
            first = records[0]["t"] - begin
            median = sorted(r["seconds"] for r in records[5:])[len(records[5:]) // 2]
            c.check(first <= 10, f"{recipe}: first step after the command", f"{first:.1f} s (goal 10), then {1e3 * median:.2f} ms a step")


def median(values):
    return sorted(values)[len(values) // 2]


def nccl(c):
    runs = Runs(c)
    args = ["--steps", 60]
    alone = runs.digest("tiny", *args, "--devices", "cuda:0")
    got, words, _, host = runs.output("tiny", *args, "--devices", "cuda:0,cuda:0")
    c.check(got.get("digest") == alone and words.count("NCCL refused") == 1, "two workers on one GPU: NCCL refuses, host memory serves",
            next((line for line in words.splitlines() if "NCCL refused" in line), words[-300:]))
    folder = os.environ.get("TANDEM_TEST_NCCL")
    if not folder:
        print("-- nccl: TANDEM_TEST_NCCL is not set: nothing goes over NCCL on one GPU", flush=True)
        return
    # libtorch finds its own NCCL by an rpath, which is stronger than LD_LIBRARY_PATH.
    several = {"LD_PRELOAD": str(pathlib.Path(folder).resolve() / "libnccl.so.2"), "NCCL_MULTI_RANK_GPU_ENABLE": "1"}
    only = {**several, "TANDEM_PLANE": "nccl"}
    for recipe, steps in (("tiny", 60), ("mixed", 12)):
        args = ["--steps", steps]
        want = alone if recipe == "tiny" else runs.digest(recipe, *args, "--devices", "cuda:0")
        for workers in (2, 3):
            got, words, logs, records = runs.output(recipe, *args, "--devices", ",".join(["cuda:0"] * workers), env=only)
            agreed = next((line.split("info", 1)[1].strip() for line in logs.splitlines() if "members, agreed" in line), "")
            c.check(got.get("digest") == want and agreed != "", f"{recipe}: {workers} workers over NCCL on one GPU",
                    f"{agreed}; {1e3 * median([r['seconds'] for r in records[5:]]):.1f} ms a step" if records else words)
        for place in ("in-phase", "before-combine"):
            step = steps // 2
            for plane in (only, several) if recipe == "tiny" else (only,):
                got, words, logs, records = runs.output(recipe, *args, "--devices", "cuda:0,cuda:0,cuda:0",
                                                      env={**plane, "TANDEM_FAULT": f"{place} rank=1 step={step} do=kill"})
                name = f"{recipe}: one of three killed {place} of step {step}, {'NCCL alone' if plane is only else 'host memory meanwhile'}"
                if c.check(got.get("digest") == want and got.get("deaths", 0) >= 1, name, got.get("digest", words)[:300]):
                    after = records[step]["t"] - records[step - 1]["t"]
                    shrunk = "shrunk" if "go on without the others" in logs else "formed anew"
                    c.results.setdefault("nccl", []).append({"kill": name, "step_after_s": round(after, 3), "how": shrunk})
                    print(f"     the step of the kill took {after:.2f} s, {shrunk}", flush=True)
    if host:
        c.results["nccl_host_ms"] = round(1e3 * median([r["seconds"] for r in host[5:]]), 2)


def weights_of(run_dir):
    """Name -> bytes of the newest checkpoint's weights."""
    newest = sorted((run_dir / "checkpoints").glob("step-*"))[-1]
    data = (newest / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    head = json.loads(data[8:8 + size])
    return {name: data[8 + size + at["data_offsets"][0]:8 + size + at["data_offsets"][1]] for name, at in head.items() if name != "__metadata__"}


def hopper():
    output = subprocess.run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"], capture_output=True, text=True).stdout
    return output.strip().startswith("9.0")


def dqn(c):
    """Web-test agents: environments, replay and learning on the GPU; alone and side by side, on one, two and three workers."""
    runs = Runs(c)
    small = ["--set", "capacity=100000", "--set", "environments=16", "--steps", 300, "--checkpoint-every", "100"]
    one = runs.train("web-agent", "--set", "agent=analysis", *small, "--devices", "cuda:0")
    ways = {"graph, one worker": one.get("digest")}
    for name, devices, env in (("eager, one worker", "cuda:0", {"TANDEM_GRAPHS": "off"}), ("two workers", "cuda:0,cuda:0", {}),
                               ("three workers, one killed", "cuda:0,cuda:0,cuda:0", {"TANDEM_FAULT": "in-phase rank=1 step=150 do=kill"}),
                               ("one worker, killed", "cuda:0", {"TANDEM_FAULT": "in-phase rank=0 step=150 do=kill"})):
        ways[name] = runs.train("web-agent", "--set", "agent=analysis", *small, "--devices", devices, env=env).get("digest")
    c.check(len(set(ways.values())) == 1 and None not in ways.values(), "web-agent: one digest", {k: (v or "none")[:12] for k, v in ways.items()})
    output = (runs.dir / one["dir"] / "events.jsonl").read_text() if one else "eagerly"
    c.check("eagerly" not in output and "library kernels" not in output, "web-agent: the whole step is one graph")
    wide = [*small, "--set", "environments=32"]  # rows that blocks of four tiles take in acting too: on Hopper by wgmma
    shapes = {tiles: runs.train("web-agent", "--set", "agent=analysis", *wide, "--devices", "cuda:0", env={"TANDEM_DQN_TILES": tiles}).get("digest") for tiles in ("1", "2", "4", "16", "24", "40")}
    c.check(len(set(shapes.values())) == 1 and None not in shapes.values(), "web-agent: one digest in every block shape", {k: (v or "none")[:12] for k, v in shapes.items()})
    both = runs.train("web-agent", "--set", "agent=all", *small, "--devices", "cuda:0")
    if both and one:
        together, alone = weights_of(runs.dir / both["dir"]), weights_of(runs.dir / one["dir"])
        equal = all(together.get("analysis." + name) == bytes_ for name, bytes_ in alone.items())
        c.check(equal and len(together) == 6 * len(alone), "web-agent: analysis beside five others has the weights that it has alone", len(together))
    six = {tiles or "by itself": runs.train("web-agent", "--set", "agent=all", *wide, "--devices", "cuda:0", env={"TANDEM_DQN_TILES": tiles}).get("digest") for tiles in ("", "4")}
    c.check(len(set(six.values())) == 1 and None not in six.values(), "web-agent, all six: one digest fused and layer by layer", {k: (v or "none")[:12] for k, v in six.items()})
    for names in ("analysis,evolution,execution", "analysis,evolution,execution,generation,observation"):  # by themselves in blocks of 24 and 40 rows, where a GPU has 132 SMs
        some = {tiles or "by itself": runs.train("web-agent", "--set", f"agent={names}", *wide, "--devices", "cuda:0", env={"TANDEM_DQN_TILES": tiles}).get("digest") for tiles in ("", "4")}
        c.check(len(set(some.values())) == 1 and None not in some.values(), f"web-agent, {names.count(',') + 1} of them: one digest fused and layer by layer", {k: (v or "none")[:12] for k, v in some.items()})
    if (bench := c.tests.parent / "bench" / "gpu_dqn").exists():
        output = subprocess.run([bench, "--profile", "agent=all"], capture_output=True, text=True).stderr
        c.check("dqn forward" in output or not hopper(), "web-agent, all six: Hopper takes the fused MLP by itself")
        output = subprocess.run([bench, "--profile", "agent=analysis", "precision=bf16"], capture_output=True, text=True).stderr
        c.check((output.count("dqn forward") == 2 and "dqn backward" in output) or not hopper(), "web-agent in bf16, one: Hopper takes the fused MLP by itself, forward and backward")
    two = runs.train("web-agent", "--set", "agent=all", *small, "--devices", "cuda:0,cuda:0")
    c.check(bool(two) and two["digest"] == both["digest"], "web-agent, all six: one digest on one and two workers", two.get("digest", "none")[:12])
    for precision in ("tf32", "bf16", "fp16"):
        ways = {}
        for devices, env in (("cuda:0", {}), ("cuda:0", {"TANDEM_GRAPHS": "off"}), *(("cuda:0", {"TANDEM_DQN_TILES": shape}) for shape in ("4", "16", "24", "40")), ("cuda:0,cuda:0", {}),
                             ("cuda:0", {"TANDEM_FAULT": "in-phase rank=0 step=150 do=kill"})):
            grows = ["--set", "amp.growth_steps=5", "--set", "amp.initial_scale=1e9"] if precision == "fp16" else []
            output = runs.train("web-agent", "--set", "agent=analysis", *small, *grows, "--precision", precision, "--devices", devices, env=env)
            ways[f"{devices} {env}"] = output.get("digest")
            said = (runs.dir / output["dir"] / "events.jsonl").read_text() if output else "library kernels"
            c.check("library kernels" not in said, f"web-agent in {precision}: by kernels of ours on {devices}")
            if output and grows:
                scales = {json.loads(line).get("scale") for line in (runs.dir / output["dir"] / "metrics.jsonl").read_text().splitlines()}
                c.check(len(scales) > 1, f"web-agent in fp16 on {devices}: the loss scale moves", sorted(scales)[:4])
        c.check(len(set(ways.values())) == 1 and None not in ways.values(), f"web-agent in {precision}: one digest",
                {k: (v or "none")[:12] for k, v in ways.items()})
    lost = ["--set", "optimizer.learning_rate=1e30", "--set", "nan.patience=2", "--set", "nan.rollback_every=1000", "--set", "nan.max_rollbacks=20", "--steps", 13]
    back = {}  # good, bad, bad and rolled back, ...: with stale packed weights the next one would be bad as well
    for tiles in ("", "4"):
        output = runs.train("web-agent", "--set", "agent=analysis", *wide[:2], *wide[-2:], *lost, "--precision", "bf16", "--devices", "cuda:0", env={"TANDEM_DQN_TILES": tiles})
        skipped = [json.loads(line)["skipped"] for line in (runs.dir / output["dir"] / "metrics.jsonl").read_text().splitlines()] if output else []
        back[tiles or "by itself"] = f"{output.get('digest')} {skipped}"
        said = (runs.dir / output["dir"] / "events.jsonl").read_text() if output else ""
        c.check("rolled back" in said, "web-agent in bf16: weights that are no numbers are rolled back")
    c.check(len(set(back.values())) == 1, "web-agent in bf16: one digest after roll-backs, fused and layer by layer", {k: v[:12] for k, v in back.items()})
    in_bf16 = [runs.train("web-test", *small, "--precision", "bf16", "--devices", "cuda:0", "--together", how) for how in ("off", "auto")]
    if all(in_bf16):
        c.check(in_bf16[0]["digest"] == in_bf16[1]["digest"] and {one["run"] for one in in_bf16[1]["agents"].values()} == {"requirements+5"},
                "web-test in bf16: six in one run have the digests of six apart", in_bf16[1]["digest"][:12])
    apart = runs.train("web-test", *small, "--devices", "cuda:0", "--together", "off")
    by_itself = runs.train("web-test", *small, "--devices", "cuda:0")
    if apart and by_itself:
        c.check({one["run"] for one in by_itself["agents"].values()} == {"requirements+5"}, "web-test: one GPU trains all six in one run by itself")
        c.check(by_itself["digest"] == apart["digest"], "web-test: the digests of six together and apart", by_itself["digest"][:12])
        c.check(by_itself["agents"]["analysis"]["digest"] == one.get("digest"), "web-test: analysis has the digest of its own run")
        c.check(True, "web-test: seconds apart and together", [round(apart["seconds"], 1), round(by_itself["seconds"], 1)])
    for agents in ("analysis", "all"):
        output = runs.train("web-agent", "--set", f"agent={agents}", "--steps", 3000, "--devices", "cuda:0")
        if output:
            records = [json.loads(line) for line in (runs.dir / output["dir"] / "metrics.jsonl").read_text().splitlines()]
            c.check(True, f"web-agent {agents}, defaults, 1 M rows: us a step", round(1e6 * median([r["seconds"] for r in records[200:]])))


PARTS = {"twins": twins, "operators": operators, "digests": digests, "repetitions": repetitions, "settings": settings, "graphs": graphs, "shards": shards, "sms": sms, "executors": executors,
         "video": video, "validation": validation, "dqn": dqn, "faults": faults, "checkpoints": checkpoints, "times": times, "nccl": nccl, "peers": peers}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--recipes", nargs="+")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu-results.json"))
    parser.add_argument("--minutes", type=float, default=8, help="peers: all runs with faults are over then")
    parser.add_argument("--kills", type=int, default=12, help="peers: so many in all")
    parser.add_argument("--freezes", type=int, default=2, help="peers: so many in all")
    parser.add_argument("--faults", choices=["only", "none"], help="peers: nothing but these, or none")
    parser.add_argument("--so-far", type=pathlib.Path, help="peers: the --out of an earlier call, whose kills and freezes count")
    options = parser.parse_args()
    if not shutil.which("nvidia-smi") or subprocess.run(["nvidia-smi", "-L"], capture_output=True).returncode != 0:
        print("error: no GPU here\n  why    nvidia-smi finds none\n  do     run this on a machine with an NVIDIA GPU", file=sys.stderr)
        sys.exit(2)
    c = Checks(options.build.resolve() / "bin", options.build.resolve() / "tests", options.recipes, options)
    for name, part in PARTS.items():
        if options.only in (None, name):
            begin = time.monotonic()
            try:
                part(c)
            except (Exception, SystemExit):  # the other parts are worth their minutes
                c.check(False, f"{name} came to its end", traceback.format_exc()[-2000:])
            c.results.setdefault("minutes", {})[name] = round((time.monotonic() - begin) / 60, 2)
            print(f"-- {name}: {c.results['minutes'][name]} minutes", flush=True)
            c.save()
    print(f"{c.failed} of {len(c.results.get('checks', []))} checks failed; everything is in {options.out}")
    sys.exit(c.failed > 0)


if __name__ == "__main__":
    main()

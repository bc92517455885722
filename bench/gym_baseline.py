#!/usr/bin/env python3
"""CartPole-v1 by `tandem train dqn` beside stable-baselines3's DQN: the same number of decisions, one run, one judge.

    python3 bench/gym_baseline.py <build folder> [--env CartPole-v1] [--decisions 80000] [--seeds 1,2,3] [--json FILE]

Needs a Python with stable-baselines3, gymnasium and safetensors (pip install stable-baselines3 safetensors). Both learn on
one core with the settings that their makers give for this environment: tandem's defaults of recipe dqn, and those of
rl-baselines3-zoo. The judge plays 100 greedy episodes with seeds that neither saw; it reads tandem's weights from the
safetensors that `tandem export` writes and computes the net by itself, in numpy. Seconds are of processor time of all
processes, since others may use the machine.
"""
import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import gymnasium
import numpy as np
from safetensors.numpy import load_file

EPISODES, FIRST_SEED = 100, 1_000_000
ZOO = dict(policy="MlpPolicy", learning_rate=2.3e-3, batch_size=64, buffer_size=100_000, learning_starts=1000, gamma=0.99,
           target_update_interval=10, train_freq=256, gradient_steps=128, exploration_fraction=0.16,
           exploration_final_eps=0.04, policy_kwargs=dict(net_arch=[256, 256]))


class Weights:
    def __init__(self, path):
        self.w = load_file(path)

    def __call__(self, seen):
        w, x, layer = self.w, np.asarray(seen, np.float32).reshape(-1), 1
        while f"hidden{layer}.weight" in w:
            x = w[f"hidden{layer}.weight"] @ x + w[f"hidden{layer}.bias"]
            x = (x - x.mean()) / np.sqrt(x.var() + 1e-5) * w[f"norm{layer}.weight"] + w[f"norm{layer}.bias"]
            x, layer = np.maximum(x, 0), layer + 1
        both = np.maximum(w["heads.weight"] @ x + w["heads.bias"], 0)
        return int((w["advantage.weight"] @ both[both.size // 2:] + w["advantage.bias"]).argmax())  # the value is the same for all


def judged(environment, policy):
    game, returns = gymnasium.make(environment), []
    for episode in range(EPISODES):
        seen, _ = game.reset(seed=FIRST_SEED + episode)
        total, over = 0.0, False
        while not over:
            seen, reward, terminated, truncated, _ = game.step(policy(seen))
            total, over = total + reward, terminated or truncated
        returns.append(total)
    return statistics.mean(returns), statistics.stdev(returns) / EPISODES**0.5


def ours(build, environment, decisions, seed):
    with tempfile.TemporaryDirectory() as folder:
        begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([build / "bin" / "tandem", "train", "dqn", "--env", f"gym:{environment}", "--num-envs", "8", "--steps",
                               str(decisions // 8), "--seed", str(seed), "--devices", "cpu:1", "--set",
                               f"env.python={sys.executable}", "--run-dir", folder + "/run", "--json"], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - begin
        subprocess.run([build / "bin" / "tandem", "export", folder + "/run", "--output", folder + "/w.safetensors", "-q"], check=True,
                       stdout=subprocess.DEVNULL)
        policy = Weights(folder + "/w.safetensors")
    return policy, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, seconds


def baseline(environment, decisions, seed):
    import torch
    from stable_baselines3 import DQN
    torch.set_num_threads(1)
    begin, before = time.monotonic(), time.process_time()
    model = DQN(env=environment, seed=seed, **ZOO)
    model.learn(decisions)
    cpu, seconds = time.process_time() - before, time.monotonic() - begin
    return lambda seen: int(model.predict(seen, deterministic=True)[0]), cpu, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--decisions", type=int, default=80_000)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--json", type=pathlib.Path)
    given = parser.parse_args()
    rows = []
    for seed in map(int, given.seeds.split(",")):
        for name, train in (("tandem", lambda: ours(given.build.resolve(), given.env, given.decisions, seed)),
                            ("stable-baselines3", lambda: baseline(given.env, given.decisions, seed))):
            policy, cpu, wall = train()
            mean, error = judged(given.env, policy)
            rows.append({"who": name, "seed": seed, "mean": mean, "error": error, "cpu_seconds": cpu, "wall_seconds": wall})
            print(f"seed {seed}  {name:18} {mean:7.1f} +- {error:4.1f}   {cpu:6.1f} s of processor time, {wall:6.1f} s", flush=True)
    if given.json:
        given.json.write_text(json.dumps({"schema": 1, "environment": given.env, "decisions": given.decisions, "runs": rows}, indent=2) + "\n")


main()

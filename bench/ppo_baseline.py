#!/usr/bin/env python3
"""`tandem train ppo` beside stable-baselines3's PPO on CartPole-v1 and Pendulum-v1, with equal environment steps.

    python3 bench/ppo_baseline.py <build folder> --python PYTHON [--env Pendulum-v1] [--seeds 1,2,3] [--json FILE]

PYTHON is an interpreter that has stable-baselines3 and gymnasium; tandem's environments run in it too:

    python3 -m venv /tmp/sb3 && /tmp/sb3/bin/pip install stable-baselines3
    python3 bench/ppo_baseline.py build --python /tmp/sb3/bin/python

tandem has the defaults of recipe ppo, stable-baselines3 the settings of rl-baselines3-zoo for each environment, and as
many environment steps as tandem took. Each learns on one core and plays 100 greedy episodes: tandem in `tandem eval`,
stable-baselines3 with seeds that it has not seen. Seconds are of processor time, since others may use the machine;
tandem's hold the whole command, stable-baselines3's its learning alone. The exit code is 1 if a return of tandem's is
below its floor, 2 if something is missing.
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib

EPISODES, FIRST_SEED = 100, 1_000_000
FLOORS = {"CartPole-v1": 475, "Pendulum-v1": -200}
INSTALL = "python3 -m venv /tmp/sb3 && /tmp/sb3/bin/pip install stable-baselines3"
ONE_CORE = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def zoo(environment):
    """Environments, and the learner's settings; a falling rate is a function of what is left of the training."""
    if environment == "CartPole-v1":
        return 8, dict(n_steps=32, batch_size=256, n_epochs=20, gamma=0.98, gae_lambda=0.8, ent_coef=0.0,
                       learning_rate=lambda left: 1e-3 * left, clip_range=lambda left: 0.2 * left)
    return 4, dict(n_steps=1024, batch_size=64, n_epochs=10, gamma=0.9, gae_lambda=0.95, ent_coef=0.0,
                   learning_rate=1e-3, clip_range=0.2, use_sde=True, sde_sample_freq=4)


def learn_and_play(environment, steps, seed):
    """In PYTHON: what stable-baselines3 reaches, as one line of JSON."""
    import gymnasium
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    torch.set_num_threads(1)
    environments, settings = zoo(environment)
    begin, before = time.monotonic(), time.process_time()
    games = make_vec_env(environment, n_envs=environments, seed=seed)
    model = PPO("MlpPolicy", games, seed=seed, device="cpu", **settings)
    model.learn(steps)
    cpu, wall = time.process_time() - before, time.monotonic() - begin
    game, returns = gymnasium.make(environment), []
    for episode in range(EPISODES):
        seen, _ = game.reset(seed=FIRST_SEED + episode)
        total, over = 0.0, False
        while not over:
            seen, reward, terminated, truncated, _ = game.step(model.predict(seen, deterministic=True)[0])
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    print(json.dumps({"return": statistics.mean(returns), "error": statistics.stdev(returns) / EPISODES**0.5,
                      "env_steps": model.num_timesteps, "cpu_seconds": cpu, "wall_seconds": wall}))


def output_of(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=ONE_CORE)
    if done.returncode:
        sys.exit(f"error: {' '.join(map(str, command))} ended with {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def baseline(python, environment, steps, seed):
    return output_of([python, __file__, "--learn-and-play", environment, steps, seed])


def ours(build, python, environment, seed):
    tandem = build / "bin" / "tandem"
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        output_of([tandem, "train", "ppo", "--env", f"gym:{environment}", "--seed", seed, "--devices", "cpu:1", "--set",
                   f"env.python={python}", "--run-dir", run, "--json"])
        after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - begin
        recipe = tomllib.loads((run / "recipe.toml").read_text())
        judged = output_of([tandem, "eval", run, "--episodes", EPISODES, "--json"])["agents"][f"gym:{environment}"]
    return {"return": judged["return"], "error": judged["error"],
            "env_steps": recipe["steps"] * recipe["batch_size"] // recipe["ppo"]["epochs"],
            "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, "wall_seconds": wall}


def refused(what, why, do):
    print(f"error: {what}\n  why    {why}\n  do     {do}", file=sys.stderr)
    sys.exit(2)


def check(build, python):
    if not (build / "bin" / "tandem").exists():
        refused(f"no tandem in {build / 'bin'}", "it is the program to be measured",
                "build it: scripts/build.sh tandem tandem-worker")
    try:
        found = subprocess.run([python, "-c", "import gymnasium, stable_baselines3"], capture_output=True, text=True)
        why = found.stderr.strip().split("\n")[-1] if found.returncode else ""
    except OSError as failure:
        why = str(failure)
    if why:
        refused(f"{python} can't run the baseline", why,
                f"{INSTALL}, then --python /tmp/sb3/bin/python")


def main():
    if sys.argv[1:2] == ["--learn-and-play"]:
        return learn_and_play(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has stable-baselines3")
    parser.add_argument("--env", default=",".join(FLOORS), help="of CartPole-v1 and Pendulum-v1")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--json", type=pathlib.Path)
    given = parser.parse_args()
    for environment in given.env.split(","):
        if environment not in FLOORS:
            refused(f"no floor for {environment}", "the baseline's settings are known for two environments",
                    f"name some of {', '.join(FLOORS)}")
    build = given.build.resolve()
    check(build, given.python)
    rows = []
    print(f"{'':28}{'env steps':>10}{'tandem':>27}{'stable-baselines3':>27}")
    for environment in given.env.split(","):
        for seed in map(int, given.seeds.split(",")):
            mine = ours(build, given.python, environment, seed)
            theirs = baseline(given.python, environment, mine["env_steps"], seed)
            if theirs["env_steps"] != mine["env_steps"]:
                print(f"stable-baselines3 took {theirs['env_steps']} steps: it plays whole rollouts", file=sys.stderr)
            floor = FLOORS[environment]
            rows.append({"environment": environment, "seed": seed, "env_steps": mine["env_steps"], "floor": floor,
                         "passed": mine["return"] >= floor, "tandem": mine, "stable_baselines3": theirs})
            print(f"{environment:14} seed {seed:<8} {mine['env_steps']:>10,}" +
                  "".join(f"{r['return']:10.1f} +-{r['error']:5.1f} {r['cpu_seconds']:6.1f} s" for r in (mine, theirs)) +
                  ("" if rows[-1]["passed"] else f"   below {floor}"), flush=True)
    if given.json:
        given.json.write_text(json.dumps({"schema": 1, "episodes": EPISODES, "runs": rows}, indent=2) + "\n")
    return 0 if all(row["passed"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

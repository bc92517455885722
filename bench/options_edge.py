#!/usr/bin/env python3
"""Does `options` learn what can be learned? Three training seeds on one generated market with a known edge, beside a
simple rule that knows it, and three on a fair one: market.fair, where no strategy earns more than chance.

    python3 bench/options_edge.py <folder with tandem and tandem-worker> [--devices cpu:2] [--net clstm] [--json FILE]
    python3 bench/options_edge.py build/bin --net default --devices cuda:0 --jobs 3      # the recipe's own layers

Each run trains on one fold and is judged by `tandem eval` on its test days, which neither training nor the choice of
the best step saw. Earned is the return on the capital of all symbols together, in money; the known rule trades the same
days at the same costs, its strike chosen on the training days. Floors, in the exit code: with the edge the agent earns
half of what the rule earns, on each seed; on the fair market no Sharpe ratio is called significant; the look-ahead
detector finds nothing. The market has 40 symbols, 80 for a recurrent net: with fewer it learns its training days by
heart.

`--net default` has the recipe's layers and window, 3 x (LSTM 256 + attention) over 20 days. It is not the recipe as it
comes: dropout 0, value_weight .05, entropy_weight 3e-4, a cosine rate from 2e-4, gamma .95, 4 epochs, rollouts of 32
days by 32 environments of each shard, batches of 1,024, 120 symbols, 8,000 episodes.
"""
import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile
import time

# `default`: the layers of recipe options, 3 x (LSTM 256 + attention); the others are small enough for two cores.
COMMON = {"ppo.epochs": 4, "ppo.horizon": 32, "ppo.gamma": 0.95, "market.days": 1500}
SMALL = {**COMMON, "shards": 2, "environments": 32, "batch_size": 256, "ppo.entropy_weight": 0.001,
         "optimizer.learning_rate": 1e-3, "market.symbols": 40, "validation.every": "500 steps", "episodes": 2400}
# A policy and a value that share their layers: at a weight of .5 the value's errors drown what the policy learns.
SHARED = {"net.dropout": 0, "ppo.value_weight": 0.05, "ppo.entropy_weight": 3e-4, "schedule.kind": "cosine"}
NETS = {"mlp": {**SMALL, "net.kind": "mlp", "net.window": 1, "net.hidden": "[64,64]"},
        "clstm": {**SMALL, **SHARED, "net.width": 64, "net.layers": 1, "net.heads": 4, "net.head_hidden": "[64]",
                  "net.window": 10, "optimizer.learning_rate": 4e-4, "ppo.epochs": 3, "market.symbols": 80,
                  "episodes": 4000},
        "default": {**COMMON, **SHARED, "shards": 8, "environments": 32, "batch_size": 1024,
                    "optimizer.learning_rate": 2e-4, "market.symbols": 120, "validation.every": "1000 steps",
                    "episodes": 8000}}


def run(words, folder):
    done = subprocess.run([str(w) for w in words], cwd=folder, capture_output=True, text=True)
    if done.returncode not in (0, 3):
        sys.exit(f"{' '.join(map(str, words))}\n{done.stderr}")
    return json.loads(done.stdout)


def trained_and_judged(tandem, arguments, edge, seed, folder):
    settings = {**NETS[arguments.net], **dict(pair.split("=", 1) for pair in arguments.set), "market.edge": edge}
    if edge == 0:  # nobody earns there, whether buying or selling; one long test period: a claim needs 250 days
        settings |= {"market.fair": "true", "env.rate": 0, "folds": 1, "fold": 1}
    flags = [word for key, value in settings.items() if key != "episodes" for word in ("--set", f"{key}={value}")]
    begin = time.monotonic()
    trained = run([tandem, "train", "options", "--json", "--devices", arguments.devices, "--seed", seed, "--episodes",
                   settings["episodes"], *flags], folder)
    seconds = time.monotonic() - begin
    records = [json.loads(line) for line in (pathlib.Path(folder) / trained["dir"] / "metrics.jsonl").open()]
    judged = run([tandem, "eval", trained["dir"], "--json"], folder)
    rule = next((line["total_return"] for line in judged["baselines"] if line["name"] == "known rule"), None)
    agent = judged["agent"]
    validated = [(r["step"], r["metrics"]["validation/return"])
                 for r in records if "validation/return" in r.get("metrics", {})]
    played = [r["metrics"]["average_return"] for r in records if "average_return" in r.get("metrics", {})]
    return {"edge": edge, "seed": seed, "train_seconds": seconds, "validated": validated,
            "played": played[-1] if played else None, "digest": trained["digest"],
            "return": agent["total_return"], "rule": rule,
            "share": agent["total_return"] / rule if rule and rule > 0 else None, "sharpe": agent["sharpe"],
            "sharpe_low": agent["sharpe_low"], "sharpe_high": agent["sharpe_high"],
            "significant": judged["significant"], "days": agent["days"],
            "look_ahead": judged["look_ahead"]["verdict"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("--devices", default="cpu:2")
    parser.add_argument("--net", choices=NETS, default="mlp", help="a plain net of today's numbers, or a small recurrent one")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting that differs")
    parser.add_argument("--edges", type=float, nargs="+", default=[0.3, 0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    tandem = (arguments.programs / "tandem").resolve()
    if not tandem.exists():
        sys.exit(f"error: there is no {tandem}\n  why    it is what is measured\n  do     build it, and name its folder")
    rows = []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        todo = [(edge, seed) for edge in arguments.edges for seed in arguments.seeds]
        for row in pool.map(lambda one: trained_and_judged(tandem, arguments, *one, folder), todo):
            rows.append(row)
            edge = row["edge"]
            against = f"rule {row['rule']:+.3f}, {row['share'] or 0:.2f} of it" if edge else "a fair market"
            sharpe = "no Sharpe ratio" if row["sharpe"] is None else f"Sharpe {row['sharpe']:.2f}"
            print(f"edge {edge:<4} seed {row['seed']}: return {row['return']:+.3f}, {against}; {sharpe}, "
                  f"{'significant' if row['significant'] else 'not significant'}, {row['days']} days, look-ahead "
                  f"{row['look_ahead']}; trained {row['train_seconds']:.0f} s, played {row['played'] or 0:.1f}, validated "
                  f"{max((v for _, v in row['validated']), default=0):.1f}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    good = all(row["look_ahead"] != "found" for row in rows)
    good = good and all((row["share"] or 0) >= 0.5 for row in rows if row["edge"])
    good = good and not any(row["significant"] for row in rows if not row["edge"])
    print("floors hold" if good else "a floor does not hold")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

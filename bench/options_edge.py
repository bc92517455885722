#!/usr/bin/env python3
"""Does `options` learn what can be learned? Three seeds on a generated market with a known edge, beside a rule that
knows it, and three on one without an edge.

    python3 bench/options_edge.py <folder with tandem and tandem-worker> [--devices cpu:2] [--net clstm] [--episodes 2400] [--json FILE]

Each run trains on one fold and is judged by `tandem eval` on its test days, which neither training nor the choice of
the best step saw. Earned is the return on the capital of all symbols together, in money; the known rule trades the same
days at the same costs, its strike chosen on the training days. Floors, in the exit code: with the edge the agent earns
half of what the rule earns, on each seed; without it no Sharpe ratio is called significant; the look-ahead detector
finds nothing. The market has 40 symbols: with 8 an agent learns its training days by heart.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

SEEDS = (1, 2, 3)
NETS = {"mlp": ["net.kind=mlp", "net.window=1", "net.hidden=[64,64]"],
        "clstm": ["net.width=64", "net.layers=1", "net.heads=4", "net.head_hidden=[64]"]}
SETTINGS = ["shards=2", "environments=32", "ppo.horizon=32", "ppo.epochs=4", "ppo.gamma=0.95", "ppo.entropy_weight=0.001",
            "optimizer.learning_rate=1e-3", "batch_size=256", "market.symbols=40", "market.days=1500",
            "validation.every=500 steps"]


def run(words, folder):
    done = subprocess.run([str(w) for w in words], cwd=folder, capture_output=True, text=True)
    if done.returncode not in (0, 3):
        sys.exit(f"{' '.join(map(str, words))}\n{done.stderr}")
    return json.loads(done.stdout)


def trained_and_judged(tandem, arguments, edge, seed, folder):
    settings = [*SETTINGS, *NETS[arguments.net], f"market.edge={edge}"]
    if edge == 0:  # one long test period: a claim needs 250 days
        settings += ["folds=1", "fold=1"]
    flags = [word for setting in settings for word in ("--set", setting)]
    trained = run([tandem, "train", "options", "--json", "--devices", arguments.devices, "--seed", seed, "--episodes",
                   arguments.episodes, *flags], folder)
    judged = run([tandem, "eval", trained["dir"], "--json"], folder)
    rule = next((line["total_return"] for line in judged["baselines"] if line["name"] == "known rule"), None)
    agent = judged["agent"]
    return {"edge": edge, "seed": seed, "digest": trained["digest"], "return": agent["total_return"], "rule": rule,
            "share": agent["total_return"] / rule if rule and rule > 0 else None, "sharpe": agent["sharpe"],
            "sharpe_low": agent["sharpe_low"], "sharpe_high": agent["sharpe_high"],
            "significant": judged["significant"], "days": agent["days"],
            "look_ahead": judged["look_ahead"]["verdict"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("--devices", default="cpu:2")
    parser.add_argument("--net", choices=NETS, default="mlp", help="a plain net of today's numbers, or a small recurrent one")
    parser.add_argument("--episodes", type=int, default=2400)
    parser.add_argument("--edge", type=float, default=0.3)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    tandem = (arguments.programs / "tandem").resolve()
    if not tandem.exists():
        sys.exit(f"error: there is no {tandem}\n  why    it is what is measured\n  do     build it, and name its folder")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for edge in (arguments.edge, 0):
            for seed in SEEDS:
                row = trained_and_judged(tandem, arguments, edge, seed, folder)
                rows.append(row)
                against = f"rule {row['rule']:+.3f}, {row['share'] or 0:.2f} of it" if edge else "no edge to find"
                sharpe = "no Sharpe ratio" if row["sharpe"] is None else f"Sharpe {row['sharpe']:.2f}"
                print(f"edge {edge:<4} seed {seed}: return {row['return']:+.3f}, {against}; {sharpe}, "
                      f"{'significant' if row['significant'] else 'not significant'}, {row['days']} days, "
                      f"look-ahead {row['look_ahead']}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    good = all(row["look_ahead"] != "found" for row in rows)
    good = good and all((row["share"] or 0) >= 0.5 for row in rows if row["edge"])
    good = good and not any(row["significant"] for row in rows if not row["edge"])
    print("floors hold" if good else "a floor does not hold")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

"""The recipe options through the real programs: one digest on any workers, through kills and resumes; data that are
checked, refused and noticed when they change; evaluation with a look-ahead verdict; sets of folds and seeds; backtest.

    python3 options_test.py <folder with tandem and tandem-worker> [unittest arguments]
"""
import csv
import datetime
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import unittest

from run_test import BIN, TANDEM, Case  # noqa: E402  (takes the folder from the command line)

SMALL = ["--set", "shards=4", "--set", "environments=4", "--set", "ppo.horizon=16", "--batch-size", 64, "--set", "ppo.epochs=2",
         "--set", "net.width=16", "--set", "net.layers=2", "--set", "net.heads=2", "--set", "net.head_hidden=[16]",
         "--set", "market.symbols=3", "--set", "market.days=700", "--seed", 5]
EVERY = ["--set", "validation.every=8 steps"]


def weekdays(count, year=2021):
    day, found = datetime.date(year, 1, 4), []
    while len(found) < count:
        if day.weekday() < 5:
            found.append(day.isoformat())
        day += datetime.timedelta(days=1)
    return found


def black_scholes(call, spot, strike, years, volatility, rate=0.03):
    below = lambda x: math.erfc(-x / math.sqrt(2)) / 2  # noqa: E731
    one = (math.log(spot / strike) + (rate + volatility ** 2 / 2) * years) / (volatility * math.sqrt(years))
    two, discounted = one - volatility * math.sqrt(years), strike * math.exp(-rate * years)
    return spot * below(one) - discounted * below(two) if call else discounted * below(-two) - spot * below(-one)


def write_chain(folder, symbol, strikes=1.0, days=None):
    """SYM_options.csv for the bars of a symbol: a month to go, bid and ask 4 % apart, strikes in other units if wanted."""
    with open(folder / f"{symbol}.csv", newline="") as file:
        bars = [(row["date"], float(row["close"])) for row in csv.DictReader(file)]
    with open(folder / f"{symbol}_options.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["date", "expiry", "strike", "type", "bid", "ask", "open_interest"])
        for date, close in bars[:days]:
            expiry = datetime.date.fromisoformat(date) + datetime.timedelta(days=30)
            for step in range(-4, 5):
                strike = close * (1 + 0.02 * step)
                for kind in ("call", "put"):
                    middle = black_scholes(kind == "call", close, strike, 30 / 365, 0.3 - 0.05 * step / 4)
                    writer.writerow([date, expiry, f"{strike * strikes:.4f}", kind, f"{middle * strikes * 0.98:.6f}",
                                     f"{middle * strikes * 1.02:.6f}", 7])


class Options(Case):
    def train(self, *args, **kwargs):
        return super().train(*SMALL, *args, recipe="options", **kwargs)

    def prices(self, symbols=("AAA", "BBB"), days=620, **change):
        """A folder of daily bars that walk at random; `change` maps a symbol to what is done to its rows."""
        folder = self.dir / f"prices-{len(list(self.dir.glob('prices-*')))}"
        folder.mkdir()
        for symbol in symbols:
            luck, close, rows = random.Random(symbol), 100.0, []
            for date in weekdays(days):
                begin = close * math.exp(luck.gauss(0, 0.004))
                close = begin * math.exp(luck.gauss(0, 0.012))
                rows.append([date, round(begin, 2), round(max(begin, close) * 1.004, 2), round(min(begin, close) * 0.996, 2),
                             round(close, 2), luck.randrange(900000, 1500000)])
            if symbol in change:
                rows = change[symbol](rows)
            with open(folder / f"{symbol}.csv", "w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(["date", "open", "high", "low", "close", "volume"])
                writer.writerows(rows)
        return folder


class Digest(Options):
    def test_one_digest_and_one_validation_curve_on_any_workers_through_kills_and_a_resume(self):
        def curve(run):
            lines = (pathlib.Path(run["dir"]) / "metrics.jsonl").read_text().splitlines()
            return [(r["step"], r["metrics"]["validation/return"]) for r in map(json.loads, lines)
                    if "validation/return" in r["metrics"]]

        one = self.train(*EVERY, "--steps", 24, "--devices", "cpu:1")
        self.assertEqual([step for step, _ in curve(one)], [8, 16, 24])
        for devices in ("cpu:2", "cpu:3@1,0.5,0.5"):
            other = self.train(*EVERY, "--steps", 24, "--devices", devices)
            self.assert_bits((other["digest"], curve(other)), (one["digest"], curve(one)), devices)
        for fault in ("in-phase rank=1 step=16 do=kill", "in-phase rank=0 step=17 do=kill", "in-validation rank=1 step=16 do=kill"):
            done = self.tandem("train", "options", *SMALL, *EVERY, "--steps", 24, "--json", "--devices", "cpu:2",
                               env={"TANDEM_FAULT": fault})
            killed = json.loads(done.stdout)
            self.assert_bits((killed["digest"], curve(killed)), (one["digest"], curve(one)), done.stderr)
            self.assertEqual(killed["deaths"], 1, fault)
        part = self.train(*EVERY, "--steps", 13, "--devices", "cpu:2")  # in the middle of a rollout
        rest = json.loads(self.tandem("resume", part["run"], "--steps", 24, "--devices", "cpu:1", "--json").stdout)
        self.assert_bits(rest["digest"], one["digest"])

    def test_pre_training_has_one_digest_too_and_says_its_loss(self):
        one = self.train("--pretraining", 1, "--steps", 20, "--devices", "cpu:1")
        self.assert_bits(self.train("--pretraining", 1, "--steps", 20, "--devices", "cpu:3")["digest"], one["digest"])
        records = map(json.loads, (pathlib.Path(one["dir"]) / "metrics.jsonl").read_text().splitlines())
        self.assertEqual([r["step"] for r in records if "forecast_loss" in r["metrics"]], list(range(1, 9)))

    def test_flags_are_spelled_as_the_guide_does(self):
        for spelling in (["--num_episodes", 1234, "--batch_size=256", "--walk_forward", 4],
                         ["--num-episodes=1234", "--batch-size", 256, "--walk-forward=4"]):
            shown = json.loads(self.tandem("config", "show", "options", "--json", *spelling, "--seeds", 3).stdout)["values"]
            self.assertEqual([shown[key] for key in ("episodes", "batch_size", "walk_forward", "seeds")], [1234, 256, 4, 3])

    def test_nine_gpus_of_a_machine_with_two_are_refused_by_name(self):
        fakes, script = BIN.parent / "tests", self.dir / "machine.json"
        script.write_text(json.dumps({"preset": "6000ada+4090"}))
        two = {"TANDEM_NVML": str(fakes / "libfake_nvml.so"), "TANDEM_LIBCUDA": str(fakes / "libfake_cuda.so"),
               "FAKE_NVML_SCRIPT": str(script)}
        done = self.tandem("train", "options", *SMALL, "--num_gpus", 9, "--num_episodes", 10, env=two, code=2)
        self.assert_explains(done, "this machine shows 2 CUDA devices")
        self.assertEqual(list(self.dir.glob("runs/options-*")), [], "nothing is left behind")


class Data(Options):
    def check(self, folder, *more, code=0):
        done = self.tandem("data", "check", "options", folder, "--json", *more, code=code)
        return json.loads(done.stdout)

    def test_clean_bars_are_usable_and_every_fault_is_named_with_file_and_line(self):
        found = self.check(self.prices())
        self.assertTrue(found["usable"])
        self.assertEqual(found["errors"], 0)
        self.assertTrue(found["usual_fold_trains"] and found["walk_forward_trains"], found["folds"])

        def double(rows):
            return rows[:50] + [rows[49]] + rows[50:]

        def swapped(rows):
            return rows[:30] + [rows[31], rows[30]] + rows[32:]

        def negative(rows):
            rows[70][4] = -3
            return rows

        def no_number(rows):
            rows[80][1] = "nan"
            return rows

        def split(rows):
            return [[d, *(round(x / 4, 2) for x in prices), v] if i >= 200 else [d, *prices, v]
                    for i, (d, *prices, v) in enumerate(rows)]

        for how, line in ((double, 52), (swapped, 33), (negative, 72), (no_number, 82), (split, 202)):
            bad = self.check(self.prices(BBB=how), code=2)
            self.assertFalse(bad["usable"])
            first = next(f for f in bad["findings"] if f["level"] == "error")
            self.assertIn("BBB.csv", first["file"], how.__name__)
            self.assertLessEqual(abs(first["line"] - line), 1, (how.__name__, first))
        self.assertTrue(self.check(self.prices(BBB=split), "--accept-jumps")["usable"])
        self.assertTrue(self.check(self.prices(BBB=lambda rows: rows[:100] + rows[112:]))["warnings"] > 0, "a gap")

    def test_training_refuses_what_the_check_calls_an_error(self):
        for change, word in ((lambda rows: [r[:4] for r in rows], "BBB.csv"), (lambda rows: rows[:30], "BBB"),
                             (lambda rows: [[r[0], 0, 0, 0, 0, 1] for r in rows], "BBB.csv")):
            done = self.tandem("train", "options", *SMALL, "--data", self.prices(BBB=change), "--steps", 2, code=2)
            self.assert_explains(done, word)
        done = self.tandem("train", "options", *SMALL, "--data", self.dir / "nothing", "--steps", 2, code=2)
        self.assert_explains(done, "nothing")
        fake = self.prices()
        (fake / "CCC.parquet").write_bytes(b"this is no parquet")
        done = self.tandem("train", "options", *SMALL, "--data", fake, "--steps", 2, code=2)
        self.assert_explains(done, "CCC.parquet")

    def test_the_check_says_where_training_would_refuse_its_folds(self):
        found = self.check(self.prices(days=400))
        self.assertEqual((found["usable"], found["usual_fold_trains"], found["walk_forward_trains"]), (True, True, False))
        self.assertTrue(any("--walk-forward 4" in word and "too few days to train on" in word for word in found["folds"]))
        folder = self.prices(days=200)
        found = self.check(folder)
        self.assertEqual((found["usable"], found["usual_fold_trains"]), (True, False))
        self.assert_explains(self.tandem("train", "options", *SMALL, "--data", folder, "--steps", 2, code=2),
                             "too few days to train on")
        self.assertIn("would refuse", self.tandem("data", "check", "options", folder).stderr)

    def test_a_chain_that_is_there_is_used_or_named(self):
        folder = self.prices(symbols=("AAA",))
        write_chain(folder, "AAA", days=100)
        done = self.tandem("train", "options", *SMALL, "--data", folder, "--steps", 2)
        self.assertIn("AAA_options.csv gives the volatility of 100 of 620 days", done.stderr)
        write_chain(folder, "AAA", strikes=1.04)  # closes that dividends have lowered since
        found = self.check(folder)
        self.assertTrue(found["usable"])
        self.assertEqual([f["level"] for f in found["findings"] if f["kind"] == "strikes"], ["warning"])
        write_chain(folder, "AAA", strikes=1.2)
        self.assert_explains(self.tandem("train", "options", *SMALL, "--data", folder, "--steps", 2, code=2),
                             "AAA_options.csv", "the price is not the close of AAA.csv", "620 of 620 days more than 10 % off")
        lines = (folder / "AAA_options.csv").read_text().splitlines()
        (folder / "AAA_options.csv").write_text("\n".join(line for line in lines if ",put," not in line) + "\n")
        self.assert_explains(self.tandem("train", "options", *SMALL, "--data", folder, "--steps", 2, code=2),
                             "AAA_options.csv", "gives a volatility on any of the 620 days")

    def test_a_generated_market_says_so_loudly_and_data_that_changed_are_noticed(self):
        done = self.tandem("train", "options", *SMALL, "--steps", 2)
        self.assertIn("GENERATED", done.stderr)
        folder = self.prices(symbols=("AAA", "BBB", "CCC"))
        run = self.train("--data", folder, "--steps", 4)
        text = (folder / "AAA.csv").read_text().splitlines()
        fields = text[300].split(",")
        fields[5] = "1234567"
        text[300] = ",".join(fields)
        (folder / "AAA.csv").write_text("\n".join(text) + "\n")
        for command in (["resume", run["run"], "--steps", 6], ["eval", run["run"]]):
            self.assert_explains(self.tandem(*command, code=2), "not what the run began with")

    def test_parquet_is_the_same_data(self):
        try:
            import pyarrow
            import pyarrow.csv
            import pyarrow.parquet
        except ImportError:
            self.skipTest("PyPI's pyarrow is not installed")
        folder = self.prices()
        one = self.train("--data", folder, "--steps", 3)
        for path in list(folder.glob("*.csv")):
            table = pyarrow.csv.read_csv(path)
            pyarrow.parquet.write_table(table, path.with_suffix(".parquet"))
            path.unlink()
        other = self.train("--data", folder, "--steps", 3, "--set", f"python={sys.executable}")
        self.assert_bits(other["digest"], one["digest"])


class Eval(Options):
    def test_a_run_is_judged_on_days_that_it_never_saw_with_baselines_and_a_look_ahead_verdict(self):
        run = self.train(*EVERY, "--steps", 16)
        found = json.loads(self.tandem("eval", run["run"], "--json").stdout)
        self.assertEqual(found["look_ahead"]["verdict"], "none")
        self.assertGreater(found["look_ahead"]["days_checked"], 100)
        self.assertTrue(found["generated"])
        self.assertEqual((found["volatility"], found["same_dates_days"]), ("generated", 0))
        names = [line["name"] for line in found["baselines"]]
        for name in ("cash", "buy and hold", "covered call", "random", "rsi", "macd", "always a call"):
            self.assertIn(name, names)
        for key in ("sharpe", "sortino", "calmar", "turnover", "hit_trades", "cvar95", "drawdown"):
            self.assertIn(key, found["agent"])
        cash = found["baselines"][names.index("cash")]
        self.assertEqual(cash["total_return"], 0)
        page = (self.dir / found["file"]).read_text()
        self.assertIn("buy and hold", page)
        words = self.tandem("eval", run["run"])
        self.assertIn("look-ahead: none found", words.stdout + words.stderr)
        self.assertEqual(json.loads(self.tandem("eval", run["run"], "--json", "--checkpoint", "last").stdout)["look_ahead"]["verdict"],
                         "none")
        self.assert_explains(self.tandem("eval", run["run"], "--checkpoint", "77", code=2), "no such checkpoint")

    def test_a_backtest_lists_every_trade_and_they_add_up(self):
        run = self.train("--steps", 16)
        folder = self.prices(days=300)
        found = json.loads(self.tandem("backtest", run["run"], "--data", folder, "--trades", "trades.csv", "--json").stdout)
        self.assertEqual(found["look_ahead"]["verdict"], "none")
        self.assertFalse(found["generated"])
        self.assertEqual((found["volatility"], found["quoted_days"], found["premium"], found["skew"]), ("estimated", 0, 1.1, -0.1))
        with open(self.dir / "trades.csv", newline="") as file:
            trades = list(csv.DictReader(file))
        self.assertGreater(len(trades), 4)
        for symbol in {trade["symbol"] for trade in trades}:
            cash, held = 10000000, {}
            for trade in (t for t in trades if t["symbol"] == symbol):
                contracts, sign = int(trade["contracts"]), 1 if trade["kind"] == "open" else -1
                cash += round(float(trade["price"]) * 10000) * contracts - round(float(trade["commission"]) * 100)
                self.assertEqual(cash, round(float(trade["cash_after"]) * 100), trade)
                held[trade["position"]] = held.get(trade["position"], 0) + sign * contracts
                self.assertGreaterEqual(held[trade["position"]], 0, trade)
        self.assert_explains(self.tandem("backtest", run["run"], code=2), "--data")
        self.assert_explains(self.tandem("backtest", run["run"], "--data", self.dir / "none", code=2), "no folder")

    def test_a_backtest_on_days_that_the_run_learned_from_says_so(self):
        folder = self.prices()
        run = self.train("--data", folder, "--steps", 4)
        year = ["--to", "2021-12-31"]
        found = json.loads(self.tandem("backtest", run["run"], "--data", folder, *year, "--json").stdout)
        self.assertGreater(found["in_sample_days"], 200)
        self.assertEqual(found["same_dates_days"], 0)
        self.assertTrue(any("in sample" in doubt for doubt in found["doubts"]), found["doubts"])
        done = self.tandem("backtest", run["run"], "--data", folder, *year)
        for words in ("data    2 symbols, 1240 days, 2021-01-04 to ", "IN SAMPLE", "option prices are A MODEL'S, not quotes"):
            self.assertIn(words, done.stderr)
        # Other symbols on the same dates are no new days either.
        others = self.prices(symbols=("CCC",))
        found = json.loads(self.tandem("backtest", run["run"], "--data", others, *year, "--json").stdout)
        self.assertEqual(found["in_sample_days"], 0)
        self.assertGreater(found["same_dates_days"], 100)
        self.assertTrue(any("other symbols" in doubt for doubt in found["doubts"]), found["doubts"])
        before = self.prices(symbols=("CCC",), CCC=lambda rows: [[f"{int(row[0][:4]) - 4}{row[0][4:]}", *row[1:]] for row in rows])
        found = json.loads(self.tandem("backtest", run["run"], "--data", before, "--json").stdout)
        self.assertEqual((found["in_sample_days"], found["same_dates_days"]), (0, 0), "dates before the run's first day")

    def test_a_backtest_is_of_the_days_and_symbols_that_are_asked_for(self):
        folder, later = self.prices(), self.prices(days=640)  # the same days and twenty more
        run = self.train("--data", folder, "--steps", 4)
        for symbol in ("AAA", "BBB"):
            (folder / f"{symbol}.csv").write_bytes((later / f"{symbol}.csv").read_bytes())
        judged = json.loads(self.tandem("eval", run["run"], "--json").stdout)
        self.assertIn("have arrived since the run began", judged["description"])
        judged = judged["agent"]
        text = str(judged["first"])
        begin = f"{text[:4]}-{text[4:6]}-{text[6:]}"
        found = json.loads(self.tandem("backtest", run["run"], "--data", folder, "--from", begin, "--to", judged["last"],
                                       "--json").stdout)
        self.assertEqual((found["in_sample_days"], found["same_dates_days"]), (0, 0), "days that it never saw")
        self.assertEqual({key: found["agent"][key] for key in ("first", "last", "total_return")},
                         {key: judged[key] for key in ("first", "last", "total_return")}, "the same days, the same trades")
        self.tandem("backtest", run["run"], "--data", folder, "--from", judged["last"], "--symbols", "BBB", "--trades", "t.csv")
        with open(self.dir / "t.csv", newline="") as file:
            self.assertEqual({trade["symbol"] for trade in csv.DictReader(file)} - {"BBB"}, set())
        for wrong, word in ((["--from", "soon"], "is no date"), (["--from", begin, "--to", "2021-01-04"], "is after"),
                            (["--from", "2199-01-04"], "no symbol can be traded")):
            self.assert_explains(self.tandem("backtest", run["run"], "--data", folder, *wrong, code=2), word)

    def test_quotes_of_options_and_multi_leg_orders_go_through_training_eval_and_backtest(self):
        folder = self.prices()
        for symbol in ("AAA", "BBB"):
            write_chain(folder, symbol)
        run = self.train("--data", folder, "--enable-multi-leg", "--steps", 8)
        found = json.loads(self.tandem("eval", run["run"], "--json").stdout)
        self.assertEqual((found["volatility"], found["look_ahead"]["verdict"]), ("quoted", "none"))
        self.assertEqual(found["quoted_days"], found["priced_days"])
        self.assertGreater(found["quoted_days"], 100)
        other = self.prices()
        write_chain(other, "BBB", days=500)
        found = json.loads(self.tandem("backtest", run["run"], "--data", other, "--symbols", "BBB", "--from", "2022-01-03",
                                       "--trades", "t.csv", "--json").stdout)
        self.assertEqual((found["volatility"], found["carried_days"]), ("mixed", 5))
        with open(self.dir / "t.csv", newline="") as file:  # which orders a net of eight steps takes is nobody's promise
            self.assertEqual([row for row in csv.DictReader(file) if int(row["action"]) > 90], [])
        self.tandem("export", run["run"], "--output", "weights.safetensors")
        with open(self.dir / "weights.safetensors", "rb") as file:
            tensors = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        outputs = {tensor["shape"][0] for name, tensor in tensors.items() if name.startswith("policy.")}
        self.assertIn(91, outputs, "31 actions and 60 of several legs")

    def test_a_verdict_of_found_is_exit_code_three_and_said_first(self):
        run = self.train("--steps", 4)
        other = self.dir / "bin"
        other.mkdir()
        os.link(TANDEM, other / "tandem") if TANDEM.stat().st_dev == self.dir.stat().st_dev else \
            (other / "tandem").write_bytes(TANDEM.read_bytes())
        (other / "tandem").chmod(0o755)
        (other / "tandem-worker").write_text(  # the real one's answer, as it would be of an agent that saw the future
            f"#!{sys.executable}\nimport json, subprocess, sys\n"
            f"done = subprocess.run([{str(BIN / 'tandem-worker')!r}, *sys.argv[1:]], stdout=subprocess.PIPE, text=True)\n"
            "if sys.argv[1] != 'evaluate':\n    print(done.stdout, end='')\n    sys.exit(done.returncode)\n"
            "said = json.loads(done.stdout)\nsaid['answer']['look_ahead']['verdict'] = 'found'\n"
            "print(json.dumps(said))\nsys.exit(done.returncode)\n")
        (other / "tandem-worker").chmod(0o755)
        done = subprocess.run([other / "tandem", "eval", run["run"], "--json"], cwd=self.dir, capture_output=True, text=True)
        self.assertEqual(done.returncode, 3, done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual((found["look_ahead"]["verdict"], found["significant"]), ("found", False))
        self.assertTrue(found["words"][0].startswith("LOOK-AHEAD FOUND"))

    def test_a_symbol_that_is_too_young_for_a_fold_is_left_out_of_it_alone(self):
        folder = self.prices(days=900, BBB=lambda rows: rows[420:])
        done = self.tandem("train", "options", *SMALL, "--data", folder, "--walk-forward", 3, "--steps", 2, "--episodes", 0,
                           "--json")
        self.assertIn("fold 1 leaves out BBB", done.stderr)
        found = json.loads(self.tandem("eval", json.loads(done.stdout)["run"], "--json").stdout)
        self.assertEqual([fold["symbols"] for fold in found["folds"]], [1, 1, 2])

    def test_folds_and_seeds_are_a_set_that_eval_judges_as_one(self):
        done = self.tandem("train", "options", *SMALL, "--walk-forward", 2, "--seeds", 2, "--steps", 8, "--episodes", 0, "--json")
        trained = json.loads(done.stdout)
        found = json.loads(self.tandem("eval", trained["run"], "--json").stdout)
        self.assertEqual([fold["fold"] for fold in found["folds"]], [1, 2])
        self.assertEqual(len(found["seeds"]), 2)
        self.assertEqual(found["look_ahead"]["verdict"], "none")
        self.assertIsNotNone(found["over_seeds"]["sharpe"])
        single = self.train("--set", "folds=2", "--set", "fold=1", "--steps", 8, "--seed", 6)
        digests = {(fold["fold"], seed["seed"]): seed["digest"] for fold in found["folds"] for seed in fold["seeds"]}
        self.assert_bits(digests[(1, 6)], single["digest"])


if __name__ == "__main__":
    unittest.main()

"""Forecasts and measurements through the real programs: plan, its cache, runs that check it, and bench of recipes.

    python3 plan_test.py <folder with tandem and tandem-worker> [unittest arguments]
"""
import csv
import importlib.util
import io
import json
import os
import pathlib
import signal
import subprocess
import time
import unittest

from run_test import QUICK, TANDEM, Case  # noqa: E402  (takes the folder from the command line)


class Planned(Case):
    def setUp(self):
        super().setUp()
        self.env = {"XDG_CACHE_HOME": str(self.dir / "cache"), "XDG_CONFIG_HOME": str(self.dir / "config"), "TMPDIR": str(self.dir),
                    "TANDEM_SHORTEST_OUTCOME": "0"}   # that short runs count too

    def plan(self, *args, code=0):
        return self.tandem("plan", *args, "--budget", 8, code=code, env=self.env)


class Plan(Planned):
    def test_measures_once_forecasts_every_count_and_a_run_checks_it(self):
        words = ["tiny", *QUICK[:4], "--set", "batch_size=48", "--steps", 300]
        first = self.plan(*words, "--devices", "cpu:2", "--json")
        self.assertIn("measuring 1 of 4", first.stderr)
        self.assertIn("measuring 4 of 4: tiny on cpu:2, batch 96", first.stderr, "the corners, and nothing else in 8 s")
        output = json.loads(first.stdout)
        self.assertEqual([(row["devices"], row["batch_size"]) for row in output["rows"]], [(1, 48), (2, 48), (1, 96), (2, 96)])
        self.assertTrue(output["here"] and all(row["here"] for row in output["rows"]))
        row = output["rows"][0]
        self.assertEqual(output["total_steps"], 300)
        self.assertGreater(row["seconds"], 300 * row["step_seconds"])
        self.assertAlmostEqual(sum(row["time"].values()), row["seconds"], places=6)
        for trial in output["calibration"]["trials"]:
            self.assertGreaterEqual(trial["snapshots"], 1, "at its end there is one at least, and it is timed apart")
            if len(trial["devices"]) == 1:
                self.assertEqual(trial["in_pass"], 24, "all shards share a pass, and the forecast of memory knows it")
        measured = {(len(t["devices"]), t["batch"]): t["step_seconds"] for t in output["calibration"]["trials"]}
        for row in output["rows"]:
            self.assertAlmostEqual(row["step_seconds"], measured[row["devices"], row["batch_size"]], places=9, msg="what was measured is told")
        row = output["rows"][0]
        parts = row["memory"]
        self.assertAlmostEqual(sum(v for k, v in parts.items() if k != "total"), parts["total"], delta=1)
        self.assertEqual([row["guide_speedup"] for row in output["rows"][:2]], [1, 1.8])
        again = self.plan(*words, "--devices", "cpu:2")
        self.assertNotIn("measuring", again.stderr, "what was measured is kept")
        self.assertIn("cpu:0, cpu:1", again.stdout)
        self.assertIn("train tiny --devices ", again.stdout)
        self.assertIn(" --set steps=300", again.stdout, "what was planned is what is to be copied")
        # What others took of the machine meanwhile is part of the error.
        for load, least, most in ((0, 0, 1), (11.7, 5.8, 100)):
            for file in (self.dir / "cache/tandem/plan").glob("*.json"):
                kept = json.loads(file.read_text())
                if "load" in kept:
                    file.write_text(json.dumps({**kept, "load": load, "cores": 2}))
            rows = json.loads(self.plan(*words, "--devices", "cpu:2", "--json").stdout)["rows"]
            self.assertTrue(all(least <= row["error"] < most for row in rows), rows)
        # The run knows its forecast, tells it beside what came, and the next plan says how good it was.
        run = json.loads(self.tandem("train", *words, "--devices", "cpu:1", "--json", env=self.env).stdout)
        self.assertAlmostEqual(run["forecast_seconds"] / run["took_seconds"] - 1, run["forecast_error"], places=6)
        self.assertGreaterEqual(run["forecast_memory_error"], 0, "memory is never forecast below the truth")
        self.assertLess(run["forecast_memory_error"], 0.15)
        self.assertIn("forecast_seconds", self.tandem("runs", "show", "last", env=self.env).stdout)
        outcomes = json.loads(self.plan(*words, "--devices", "cpu:2", "--json").stdout)["outcomes"]
        self.assertEqual([one["run"] for one in outcomes], [run["run"]])
        # Hardware that is not here is marked in every line, and so is what does not train.
        away = self.plan(*words, "--devices", "cpu:2", "--hardware", "8xMI325X", "--gpus", "1,2,4,8")
        self.assertIn("NOT HERE", away.stdout)
        self.assertIn("AMD GPUs do not train with tandem yet", away.stdout)
        self.assertRegex(away.stdout, "best      1 device: .*\nwhy       on 8 devices a step computes for .* and adds up for")
        self.assertEqual(away.stdout.count("not here"), 4 + 4 + 2 * 2)  # devices; their memory; 1 and 8 by batch
        away = json.loads(self.plan(*words, "--devices", "cpu:2", "--hardware", "3060ti+2x3070", "--json").stdout)
        self.assertFalse(away["here"] or any(row["here"] for row in away["rows"]))
        self.assertTrue(all(row["error"] >= 0.5 for row in away["rows"]))
        self.assertEqual(away["power"]["peak_w"], 840, "the first guide's machine")
        table = self.plan(*words, "--devices", "cpu:2", "--csv", "-").stdout
        self.assertEqual(len(list(csv.DictReader(io.StringIO(table)))), 4)
        self.assertEqual([p.name for p in self.dir.glob("tandem-*")], [], "no folder is left")

    def test_a_set_is_planned_by_its_agents_and_its_run_checks_that(self):
        words = ["web-test", "--agents", "analysis,evolution", "--steps", 400, "--devices", "cpu:2",
                 *[word for pair in ("net.hidden=[32,16]", "net.head=8", "batch_size=64", "environments=2", "capacity=4000",
                                     "learning_starts=400", "shards=4") for word in ("--set", pair)]]
        output = json.loads(self.plan(*words, "--json").stdout)
        self.assertEqual([agent["name"] for agent in output["agents"]], ["analysis", "evolution"])
        self.assertEqual([row["devices"] for row in output["set"]], [1, 2])
        self.assertGreater(output["set"][0]["seconds"], output["set"][1]["ideal_seconds"])
        run = json.loads(self.tandem("train", *words, "--json", env=self.env).stdout)
        kept = json.loads((self.dir / "runs" / run["run"] / "run.json").read_text())["extra"]
        self.assertAlmostEqual(kept["plan_seconds"], output["set"][1]["seconds"], places=6)
        self.assertAlmostEqual(kept["plan_error"], kept["plan_seconds"] / run["seconds"] - 1, places=3)
        self.assertEqual([one["run"] for one in json.loads(self.plan(*words, "--json").stdout)["outcomes"]], [run["run"]])

    def test_a_set_for_other_gpus_is_planned_as_train_would_run_it_there(self):
        words = ["web-test", "--agents", "analysis,evolution", "--steps", 400, "--devices", "cpu:1", "--hardware", "2xH200",
                 *[word for pair in ("net.hidden=[32,16]", "net.head=8", "batch_size=64", "environments=2", "capacity=400000",
                                     "learning_starts=400", "shards=4") for word in ("--set", pair)]]
        together, apart = json.loads(self.plan(*words, "--json").stdout)["set"]
        self.assertEqual([(row["devices"], row["jobs"], row["agents"]) for row in (together, apart)], [(1, 1, 2), (2, 2, 2)])
        buffer = 400_000 * 500  # bytes, at least
        self.assertGreater(together["memory_bytes"], apart["memory_bytes"] + buffer, "both buffers lie on the one GPU")
        text = self.plan(*words).stdout
        self.assertIn("together  on H200: 2 agents side by side in 1 job", text)
        self.assertNotIn("together  on 2 x H200", text)
        off = json.loads(self.plan(*words, "--set", "together=off", "--json").stdout)["set"]
        self.assertEqual([row["jobs"] for row in off], [2, 2])
        self.assertAlmostEqual(off[0]["memory_bytes"], apart["memory_bytes"], delta=1)

    def test_doctor_and_old_short_outcomes_leave_its_self_check_alone(self):
        self.env.pop("TANDEM_SHORTEST_OUTCOME")
        words = ["tiny", "--devices", "cpu:1", "--json"]
        self.plan(*words)  # so that doctor's trial could have a forecast
        file = self.dir / "cache" / "tandem" / "plan" / "outcomes.jsonl"
        line = {"recipe": "tiny", "made": "then", "workers": 1, "forecast_memory": 0, "memory": 0}
        file.write_text("".join(json.dumps({**line, "run": run, "forecast_seconds": 10, "took_seconds": took}) + "\n"
                                for run, took in (("whole", 10.0), ("smoke", 0.6))))
        before = {path: path.read_bytes() for path in file.parent.iterdir()}
        self.tandem("doctor", "-q", code=None, env={**self.env, "TANDEM_NVML": "/nonexistent/libnvidia-ml.so.1"})
        self.assertEqual({path: path.read_bytes() for path in file.parent.iterdir()}, before)
        self.assertEqual([one["run"] for one in json.loads(self.plan(*words).stdout)["outcomes"]], ["whole"])

    def test_prices_are_a_file_to_edit_and_bad_ones_are_refused(self):
        path = self.plan("--make-prices").stdout.strip()
        self.assertEqual(path, str(self.dir / "config" / "tandem" / "prices.toml"))
        text = (self.dir / "config" / "tandem" / "prices.toml").read_text()
        self.assertIn("AWS p3.2xlarge (1x V100): $3.06/hour", text)
        self.assert_explains(self.plan("--make-prices", code=2), "there already")
        (self.dir / "mine.toml").write_text(text.replace("4xH100", "4xH1000"))
        self.assert_explains(self.plan("tiny", "--prices", "mine.toml", code=2), "H1000")
        self.assert_explains(self.plan("tiny", "--prices", "none.toml", code=2), "none.toml")

    def test_a_killed_calibration_leaves_no_process_and_no_folder_and_keeps_what_it_had_measured(self):
        words = ["plan", "tiny", *QUICK[:4], "--set", "batch_size=48", "--devices", "cpu:1", "--budget", 8]
        process = subprocess.Popen([TANDEM, *map(str, words)], cwd=self.dir, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, "NO_COLOR": "1", **self.env})
        self.addCleanup(process.stderr.close)
        self.wait_for(process, "measuring 2 of 2")
        process.send_signal(signal.SIGKILL)
        process.wait()

        def left():  # whoever was started for it has its folder in the command line or as a place to write
            for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    if str(self.dir) in entry.read_text(errors="replace"):
                        return True
                except OSError:
                    continue
            return any(self.dir.glob("tandem-*"))
        end = time.monotonic() + 600
        while left() and time.monotonic() < end:
            time.sleep(0.02)  # lint: allow(sleep) between two looks at a condition that has its own end
        self.assertFalse(left())
        again = self.tandem(*words, "--json", env=self.env)
        self.assertIn("measuring 1 of 1", again.stderr)
        self.assertEqual(len(json.loads(again.stdout)["calibration"]["trials"]), 2)

    def test_bad_questions_are_refused_before_anything_is_measured(self):
        for words, said in ((["--hardware", "8xH1000"], "H100"), (["--gpus", "1..99", "--devices", "cpu:2"], "--hardware"),
                            (["--batch", "x"], "--batch"), (["--precision", "fp31"], "fp32"), (["--price-kwh", "-1"], "kilowatt"),
                            (["--devices", "cpu:0"], "cpu"), (["--batch", "100"], "shards"), (["--batch", "24000"], "5100 samples")):
            done = self.plan("tiny", *words, code=2)
            self.assert_explains(done, said)
        self.assert_explains(self.plan(code=2), "plan tiny")
        self.assert_explains(self.plan("tinny", code=2), "tiny")


class ForecastError(unittest.TestCase):
    """The judge of forecasts, as far as it goes without a run."""

    def setUp(self):
        place = pathlib.Path(__file__).resolve().parents[2] / "bench" / "forecast_error.py"
        spec = importlib.util.spec_from_file_location("forecast_error", place)
        self.judge = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.judge)

    def events(self, forecasts, runs, memory=(1.05, 1.05, 1.05), sticks=(10.0, 10.0, 10.0)):
        place = {"recipe": "tiny", "batch": 192, "count": 1, "steps": 50}
        out = [{"kind": "forecast", "round": i, "seconds": s, "stated": 0.05, "bytes": 100 * m, **place}
               for i, (s, m) in enumerate(zip(forecasts, memory))]
        out += [{"kind": "run", "round": i, "seconds": s, "bytes": 100, **place} for i, s in enumerate(runs)]
        return out + [{"kind": "yardstick", "seconds": s} for s in sticks]

    def test_medians_are_compared_so_that_one_bad_minute_judges_nobody(self):
        output = self.judge.verdict(self.events((10, 10, 10), (9.5, 10, 30)))
        self.assertAlmostEqual(output["rows"][0]["time_error"], 0)
        self.assertTrue(output["summary"]["pass"])

    def test_a_restless_machine_is_told_and_excuses_nothing(self):
        output = self.judge.verdict(self.events((12, 12, 12), (10, 10, 10), sticks=(8.0, 10.0, 13.0)))
        self.assertAlmostEqual(output["yardstick"]["spread"], 0.3)
        self.assertEqual((output["summary"]["time_ok"], output["summary"]["within_yardstick"]), (0, 1))
        self.assertFalse(output["summary"]["pass"])

    def test_memory_is_judged_run_by_run(self):
        output = self.judge.verdict(self.events((10, 10, 10), (10, 10, 10), memory=(1.05, 0.99, 1.16)))
        self.assertEqual(output["summary"]["memory_ok"], 1)
        self.assertFalse(output["summary"]["pass"])

    def test_nothing_measured_is_no_pass(self):
        self.assertFalse(self.judge.verdict([])["summary"]["pass"])


class Bench(Planned):
    def test_several_recipes_as_json_csv_and_a_page(self):
        done = self.tandem("bench", "tiny", "tiny-rl", "--devices", "cpu:1", "--batch", "48,96", "--quick", "--rounds", 1, "--json",
                           "--csv", self.dir / "t.csv", "--plot", self.dir / "p.html", env=self.env)
        output = json.loads(done.stdout)
        self.assertEqual([(row["bench"], row["batch_size"]) for row in output["rows"]],
                         [("tiny", 48), ("tiny", 96), ("tiny-rl", 48), ("tiny-rl", 96)])
        for row in output["rows"]:
            self.assertAlmostEqual(row["samples_per_s"] * row["ms_per_iteration"] / 1e3, row["batch_size"], delta=row["batch_size"] * 0.05)
            self.assertEqual((row["speedup"], row["efficiency"]), (1, 1))
            self.assertGreater(row["memory_bytes"], 1e7)
            for part in ("loader_ms", "combine_ms"):
                self.assertGreaterEqual(row[part], 0)
                self.assertLess(row[part], row["ms_per_iteration"])
        self.assertGreater(max(row["loader_ms"] for row in output["rows"]), 0, "tiny has a loader")
        with open(self.dir / "t.csv", newline="") as file:
            self.assertEqual([line["bench"] for line in csv.DictReader(file)], ["tiny", "tiny", "tiny-rl", "tiny-rl"])
        page = (self.dir / "p.html").read_text()
        self.assertEqual(page.count("<svg"), 2)
        self.assertNotIn("http", page.replace("http-equiv", ""))
        self.assertIn("round 1 of 1, 1 of 4", done.stderr)
        self.assertEqual([p.name for p in self.dir.glob("tandem-*")], [])


if __name__ == "__main__":
    unittest.main()

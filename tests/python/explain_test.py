"""`tandem explain` on planted slow-downs: a few of bench/explain_score.py's cases, live runs, runs without records.

    python3 explain_test.py <folder with tandem and tandem-worker> [unittest arguments]
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import unittest

from run_test import BIN, Case, QUICK  # noqa: E402  (takes the folder from the command line)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import explain_score as score  # noqa: E402

TINY_200 = "bad0515e"  # two hundred steps of tiny with seed 7


class Planted(unittest.TestCase):
    """One of each kind; bench/explain_score.py has 48."""

    @classmethod
    def setUpClass(cls):
        cls.scorer = score.Scorer(BIN, seconds=3.5)
        cls.addClassCleanup(cls.scorer.close)
        cls.rate = cls.scorer.rate()

    def assert_named(self, case):
        for _ in range(2):  # cores that others took meanwhile tell of them, not of the plant
            _, told = self.scorer.run(case, case.kind)
            if score.named(told) == case.kind:
                break
        self.assertAlmostEqual(sum(told["shares"].values()), 1, delta=1e-3)
        self.assertEqual(score.named(told), case.kind, f"{case.text}: {told}")
        for found in told["findings"]:
            self.assertTrue(found["why"] and found["remedy"], found)
            self.assertRegex(found["command"], r"^(tandem|env -u) ")

    def plant(self, kind):
        self.assert_named(score.PLANT[kind](random.Random(f"test {kind}"), self.rate))

    def test_a_slow_loader(self):
        self.plant("loader")

    def test_a_slower_slot_with_as_many_shards(self):
        shape = score.Shape(random.Random(0), 2, hidden=384, rows=64)
        self.assert_named(score.Case("imbalance", "2 slots, one at 0.16", shape.arguments(), "cpu:2@0.25,0.04"))

    def test_a_throttled_gpu(self):
        self.plant("throttling")

    def test_a_batch_that_is_too_small(self):
        self.plant("small-batch")

    def test_a_slow_link(self):
        self.plant("communication")

    def test_many_tiny_operations(self):
        self.assert_named(score.plant_launches(random.Random("test launches 5"), self.rate))

    def test_a_gpu_that_has_nothing_to_do(self):
        self.plant("idle")

    def test_a_healthy_run_is_called_healthy(self):
        self.plant("healthy")


class Program(Case):
    def test_a_live_run_says_once_who_waits_for_whom_and_keeps_its_bits(self):
        env = {"TANDEM_EXPLAIN_SPEED": "5"}
        done = self.tandem("train", "tiny", "--steps", 200, "--seed", 7, "--devices", "cpu:2@1,0.2", "--json", "--run-dir", "even", env=env)
        self.assertEqual(json.loads(done.stdout)["digest"][:8], TINY_200)
        args = ["--set", "hidden=256", "--set", "shards=2", "--batch-size", 128, "--devices", "cpu:2@0.5,0.08", "--steps", 100000]
        process = self.begin("train", "tiny", *args, "--run-dir", "uneven", env=env)
        line = self.wait_for(process, "slow ")
        self.assertRegex(line, r"worker 0 \(cpu:0\) waits for worker 1 \(cpu:1\) \(up to \d\d % of each step\); why: .+; do: .+tandem leave uneven --rank 1")
        for _ in range(200):  # its records come once a second
            told = json.loads(self.tandem("explain", "uneven", "--json").stdout)
            if told["enough"]:
                break
        self.assertEqual((told["live"], told["findings"][0]["cause"], told["findings"][0]["rank"]), (True, "imbalance", 1))
        process.terminate()
        rest = process.stderr.read()
        process.wait()
        self.assertNotIn("slow  ", rest)
        self.assertIn('"slow"', (self.dir / "uneven" / "events.jsonl").read_text())
        self.assertIn("waits for", self.tandem("runs", "show", "uneven").stdout)
        self.assertIn('"verdict":"worker 0', (self.dir / "uneven" / "report.html").read_text())

    def begin(self, *args, env):
        process = subprocess.Popen([BIN / "tandem", *map(str, args)], cwd=self.dir, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, "NO_COLOR": "1", **env}, stdin=subprocess.DEVNULL)
        self.addCleanup(process.stderr.close)
        self.addCleanup(lambda: process.poll() is None and (process.kill(), process.wait()))
        return process

    def test_bad_input_is_explained(self):
        self.assert_explains(self.tandem("explain", code=2), "run")
        run = self.train(*QUICK, "--steps", 1)
        self.assert_explains(self.tandem("explain", run["run"], code=2), "ranks.jsonl")
        (pathlib.Path(run["dir"]) / "ranks.jsonl").write_text('{"ranks": [{"rank": "x", "times": [1, null, "y"]}]}\nnot JSON\n{"t": 3}\n')
        self.assertIn("too few steps to judge", self.tandem("explain", run["run"]).stdout)


if __name__ == "__main__":
    unittest.main()

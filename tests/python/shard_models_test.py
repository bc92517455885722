"""Models whose shards run in one pass (tests/gpu/shard_models.h), through processes that die, stop and go on.

    python3 shard_models_test.py <folder with tandem and tandem-worker> [unittest arguments]
"""
import json
import pathlib
import unittest

import run_test
from run_test import BIN, Case  # noqa: E402  (takes the folder from the command line)

run_test.TANDEM = BIN.parent / "tests" / "shard_models"
SMALL = ["--set", "shards=5", "--set", "batch_size=10", "--set", "samples=44", "--set", "tokens=12", "--set", "vocabulary=24", "--set", "side=8",
         "--set", "classes=10", "--set", "layers=1", "--seed", 7]
MODELS = {"gpt": ["--set", "model=gpt", "--set", "width=32"], "resnet": ["--set", "model=resnet", "--set", "width=8"]}


class Kills(Case):
    def run_model(self, model, *args, steps=12, env=None):
        done = self.tandem("train", "shards", *MODELS[model], *SMALL, "--steps", steps, "--json", *args, env=env)
        self.assertNotIn("shard by shard", done.stderr, "nothing falls back")
        return json.loads(done.stdout), done.stderr

    def test_deaths_and_resumes_keep_the_bits_of_one_worker_that_runs_shard_by_shard(self):
        for model in MODELS:
            want, said = self.run_model(model, "--devices", "cpu:1", "--set", "shards_per_pass=1")
            killed, said = self.run_model(model, "--devices", "cpu:3", env={"TANDEM_FAULT": "in-phase rank=1 step=6 do=kill"})
            self.assert_bits(killed["digest"], want["digest"], said)
            self.assertEqual(killed["deaths"], 1)
            half, said = self.run_model(model, "--devices", "cpu:2", steps=5)
            rest = json.loads(self.tandem("resume", half["run"], "--devices", "cpu:1", "--steps", 12, "--json").stdout)
            self.assert_bits(rest["digest"], want["digest"], said)

    def test_the_number_of_shards_in_a_pass_may_change_on_a_resume(self):
        want, _ = self.run_model("gpt", "--devices", "cpu:1")
        half, _ = self.run_model("gpt", "--devices", "cpu:1", "--set", "shards_per_pass=2", steps=5)
        rest = self.tandem("resume", half["run"], "--steps", 12, "--set", "shards_per_pass=3", "--json")
        self.assert_bits(json.loads(rest.stdout)["digest"], want["digest"], rest.stderr)


class Comparisons(Case):
    def test_a_pass_that_differs_later_ends_the_run_of_all_workers_and_what_it_says_to_do_goes_on(self):
        for model in MODELS:
            for devices, shards in (("cpu:1", 5), ("cpu:2", "[23]")):
                with self.subTest(model=model, devices=devices):
                    failed = self.tandem("train", "shards", *MODELS[model], *SMALL, "--set", "mixes_from=5", "--steps", 40,
                                         "--devices", devices, "--checkpoint-every", "10 steps", "--run-dir", f"{model}-{devices}", code=1)
                    self.assertRegex(failed.stderr, rf"error: .*phase 'learn' gave other bits for {shards} shards in one pass than for "
                                                    r"one by one, at step 16\n")
                    self.assert_explains(failed, "may be wrong", "set shards_per_pass = 1 and resume from an earlier checkpoint")
                    run = json.loads((self.dir / f"{model}-{devices}" / "run.json").read_text())
                    self.assertEqual(run["status"], "failed")
                    done = self.tandem("resume", f"{model}-{devices}", "--set", "shards_per_pass=1", "--steps", 40, "--json")
                    self.assertEqual(json.loads(done.stdout)["step"], 40)

    def test_how_many_shards_shared_a_pass_is_in_the_run_s_record(self):
        for most, want in ((0, 5), (2, 2), (1, 1)):
            done = self.tandem("train", "shards", *MODELS["gpt"], *SMALL, "--set", f"shards_per_pass={most}", "--steps", 4, "--json",
                               "--devices", "cpu:1")
            run = json.loads((pathlib.Path(json.loads(done.stdout)["dir"]) / "run.json").read_text())
            self.assertEqual([worker["shards_in_pass"] for worker in run["extra"]["usage"]], [want])


if __name__ == "__main__":
    unittest.main()

"""Models whose shards run in one pass (tests/gpu/shard_models.h), through processes that die, stop and go on.

    python3 shard_models_test.py <folder with tandem and tandem-worker> [unittest arguments]
"""
import json
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


if __name__ == "__main__":
    unittest.main()

"""Models whose shards run in one pass (tests/gpu/shard_models.h), through processes that die, stop and go on.

    python3 shard_models_test.py <folder with tandem and tandem-worker> [unittest arguments]
"""
import json
import pathlib
import re
import unittest

import run_test
from run_test import BIN, Case  # noqa: E402  (takes the folder from the command line)

run_test.TANDEM = BIN.parent / "tests" / "shard_models"
SMALL = ["--set", "shards=5", "--set", "batch_size=10", "--set", "samples=44", "--set", "tokens=12", "--set", "vocabulary=24", "--set", "side=8",
         "--set", "classes=10", "--set", "layers=1", "--seed", 7]
MODELS = {"gpt": ["--set", "model=gpt", "--set", "width=32"], "bert": ["--set", "model=bert", "--set", "width=32"],
          "resnet": ["--set", "model=resnet", "--set", "width=8"]}


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
    def failed_and_clean(self, model, devices, mixes_from, every="10 steps", keep=3):
        args = ["train", "shards", *MODELS[model], *SMALL, "--set", f"mixes_from={mixes_from}", "--steps", 40, "--devices", devices]
        clean = json.loads(self.tandem(*args, "--set", "shards_per_pass=1", "--json").stdout)
        failed = self.tandem(*args, "--checkpoint-every", every, "--set", f"checkpoint.keep={keep}", "--run-dir", f"{model}-failed", code=1)
        self.assertEqual(json.loads((self.dir / f"{model}-failed" / "run.json").read_text())["status"], "failed")
        return failed, clean

    def go_on_as_told(self, failed):
        told = re.search(r"`\S+ (resume \S+ --set shards_per_pass=1)`", failed.stderr)
        self.assertIsNotNone(told, failed.stderr)
        done = self.tandem(*told[1].split(), "--json")
        return json.loads(done.stdout), done.stderr

    def test_a_pass_that_differs_later_ends_the_run_and_the_checkpoint_that_it_names_goes_on_to_the_right_bits(self):
        for model, devices, shards in (("gpt", "cpu:1", "5"), ("resnet", "cpu:2", "[23]")):
            with self.subTest(model=model, devices=devices):
                failed, clean = self.failed_and_clean(model, devices, mixes_from=17)
                self.assertRegex(failed.stderr, rf"error: .*phase 'learn' gave other bits for {shards} shards in one pass than for "
                                                r"one by one, at step 32\n")
                self.assertRegex(failed.stderr, r"why .*layer '\w+.* the same bits at step 16, so what was trained since may be wrong\n")
                self.assertRegex(failed.stderr, r"do .*goes on from checkpoints/step-00000010, .*memory of this machine")
                left = {entry.name for entry in (self.dir / f"{model}-failed" / "checkpoints").iterdir()}
                self.assertEqual(left - {"suspect-step-00000030"}, {"latest", "step-00000010", "suspect-step-00000020"})
                done, said = self.go_on_as_told(failed)
                self.assertIn("resumed from step 10", said)
                self.assert_bits(done["digest"], clean["digest"], said)

    def test_a_checkpoint_from_before_the_last_equal_comparison_stays_however_few_are_kept(self):
        failed, clean = self.failed_and_clean("gpt", "cpu:1", mixes_from=17, every="4 steps", keep=2)
        found = re.search(r"goes on from checkpoints/step-(\d+),", failed.stderr)
        self.assertIsNotNone(found, failed.stderr)
        self.assertLessEqual(int(found[1]), 16)
        done, said = self.go_on_as_told(failed)
        self.assert_bits(done["digest"], clean["digest"], said)

    def test_a_pass_that_differs_before_the_first_checkpoint_is_old_enough_begins_anew(self):
        failed, clean = self.failed_and_clean("gpt", "cpu:1", mixes_from=5)
        self.assertIn("begins anew: there is no checkpoint from before step 2", failed.stderr)
        done, said = self.go_on_as_told(failed)
        self.assertIn("the run begins at step 0", said)
        self.assert_bits(done["digest"], clean["digest"], said)
        suspect = re.search(r"`\S+ (train --resume \S+/suspect-step-00000010 --set shards_per_pass=1)` goes on from", failed.stderr)
        self.assertIsNotNone(suspect, failed.stderr)
        self.assertIn("resumed from step 10", self.tandem(*suspect[1].split(), "--steps", 12).stderr)

    def test_how_many_shards_shared_a_pass_is_in_the_run_s_record(self):
        for most, want in ((0, 5), (2, 2), (1, 1)):
            done = self.tandem("train", "shards", *MODELS["gpt"], *SMALL, "--set", f"shards_per_pass={most}", "--steps", 4, "--json",
                               "--devices", "cpu:1")
            run = json.loads((pathlib.Path(json.loads(done.stdout)["dir"]) / "run.json").read_text())
            self.assertEqual([worker["shards_in_pass"] for worker in run["extra"]["usage"]], [want])


class Input(Case):
    def test_sizes_that_do_not_fit_end_the_run_with_code_2_and_what_was_given(self):
        for model, setting, words in (("gpt", "wrong=sample", ("int64 [2, 11] in the batch that begins with sample", "pad or cut the samples")),
                                      ("bert", "wrong=mask", ("was given a mask of [", "11]")),
                                      ("gpt", "batch_size=11", ("11", "5 shards"))):
            with self.subTest(setting=setting):
                done = self.tandem("train", "shards", *MODELS[model], *SMALL, "--set", setting, "--steps", 12, "--devices", "cpu:1", code=2)
                self.assert_explains(done, *words)


if __name__ == "__main__":
    unittest.main()

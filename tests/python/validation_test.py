"""Validation through the real programs: one number for any workers, kills and resumes; best, patience, eval.

    python3 validation_test.py <folder with tandem and tandem-worker> [unittest arguments]
"""
import json
import math
import pathlib
import signal
import subprocess
import time
import unittest

from run_test import QUICK, TANDEM, Case  # noqa: E402  (takes the folder from the command line)

EVERY = ("--set", "validation.every=10 steps", "--set", "validation_samples=1003")


class Validated(Case):
    def run_of(self, *args, steps=40, faults="", code=0):
        done = self.tandem("train", "tiny", *QUICK, *EVERY, "--steps", steps, "--json", *args, code=code,
                           env={"TANDEM_FAULT": faults})
        return json.loads(done.stdout), done.stderr

    def curve(self, run_dir):
        """Step and metrics of each validation."""
        found = []
        for line in (pathlib.Path(run_dir) / "metrics.jsonl").read_text().splitlines():
            record = json.loads(line)
            values = {name: value for name, value in record["metrics"].items() if name.startswith("validation/")}
            if values:
                found.append((record["step"], values))
        return found

    def best(self, run_dir):
        manifest = json.loads((pathlib.Path(run_dir) / "checkpoints" / "best" / "manifest.json").read_text())
        return manifest["step"], manifest["scalars"]["validation"]["best"]

    def quiet(self):
        if not hasattr(Validated, "_quiet"):
            output, _ = self.run_of("--devices", "cpu:1")
            Validated._quiet = (output["digest"], self.curve(output["dir"]), self.best(output["dir"]))
        return Validated._quiet

    def assert_quiet(self, output):
        digest, curve, best = self.quiet()
        self.assertEqual(output["digest"], digest)
        self.assertEqual(self.curve(output["dir"]), curve)
        self.assertEqual(self.best(output["dir"]), best)


class Numbers(Validated):
    def test_any_workers_and_kills_in_a_validation_give_one_curve_and_one_best(self):
        _, curve, best = self.quiet()
        self.assertEqual([step for step, _ in curve], [10, 20, 30, 40])
        losses = {step: values["validation/loss"] for step, values in curve}
        self.assertEqual(best, min(((step, loss) for step, loss in losses.items()), key=lambda pair: pair[1]))
        for faults, deaths in (("", 0), ("in-validation rank=1 step=20 do=kill", 1),
                               ("in-validation rank=0 step=20 do=kill", 1),
                               ("before-combine rank=1 step=30 do=kill", 1),
                               ("at-boundary rank=1 step=10 do=kill", 1), ("in-snapshot rank=1 step=10 do=kill", 1),
                               ("in-snapshot rank=0 step=10 do=kill", 1), ("after-snapshot rank=2 step=10 do=kill", 1),
                               ("after-combine rank=2 step=20 do=kill", 1)):
            with self.subTest(faults=faults):
                output, _ = self.run_of("--devices", "cpu:3", faults=faults)
                self.assertEqual(output["deaths"], deaths)
                self.assert_quiet(output)

    def test_its_curves_are_in_the_report_and_in_tensorboard_s_file(self):
        output, _ = self.run_of("--devices", "cpu:1", steps=20)
        folder = pathlib.Path(output["dir"])
        page = (folder / "report.html").read_text()
        events = b"".join(file.read_bytes() for file in folder.glob("events.out.tfevents.*"))
        for name in ("validation/loss", "validation/accuracy"):
            self.assertIn(f'"{name}"', page)
            self.assertIn(name.encode(), events)

    def test_a_run_that_was_stopped_and_resumed_has_the_same_curve(self):
        output, _ = self.run_of("--devices", "cpu:2", steps=25)  # its end is validated too
        self.assertEqual([step for step, _ in self.curve(output["dir"])], [10, 20, 25])
        done = self.tandem("resume", output["dir"], "--steps", 40, "--devices", "cpu:3", "--json")
        resumed = json.loads(done.stdout)
        digest, curve, _ = self.quiet()
        self.assertEqual(resumed["digest"], digest)
        self.assertEqual([point for point in self.curve(output["dir"]) if point[0] != 25], curve)

    def test_a_killed_launcher_loses_no_best(self):
        process = subprocess.Popen([TANDEM, "train", "tiny", *QUICK, *EVERY, "--steps", "10000000", "--devices", "cpu:2",
                                    "--run-dir", "killed"], cwd=self.dir, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        best = self.dir / "killed" / "checkpoints" / "best" / "manifest.json"
        while process.poll() is None and not best.exists():
            time.sleep(0.005)  # lint: allow(sleep) between two looks at a condition that has its own end
        process.send_signal(signal.SIGKILL)
        process.wait()
        manifests = (self.dir / "killed" / "checkpoints").glob("step-*/manifest.json")
        steps = max(json.loads(manifest.read_text())["step"] for manifest in manifests) + 20
        self.tandem("resume", "killed", "--steps", steps, "--devices", "cpu:1")
        whole, _ = self.run_of("--devices", "cpu:2", steps=steps)
        self.assertEqual(self.best(self.dir / "killed"), self.best(whole["dir"]))
        self.assertEqual(self.curve(self.dir / "killed"), self.curve(whole["dir"]))
        self.tandem("eval", "killed", "--checkpoint", "best", "--json")


class Stops(Validated):
    def test_patience_ends_all_ranks_at_one_step_and_resume_goes_on_when_asked(self):
        stop = ("--set", "validation.patience=2", "--set", "validation.min_delta=1000")
        ends = set()
        for devices in ("cpu:1", "cpu:3"):
            output, said = self.run_of("--devices", devices, *stop, steps=10000000)
            self.assertEqual((output["status"], output["step"]), ("done", 30))
            self.assertIn("stopped early: validation/loss has not become better in 2 validations", said)
            self.assertEqual(self.best(output["dir"])[0], 10)
            ends.add(output["digest"])
        self.assertEqual(len(ends), 1)
        again = json.loads(self.tandem("resume", output["dir"], "--json").stdout)
        self.assertEqual((again["status"], again["step"]), ("done", 30))
        further = self.tandem("resume", output["dir"], "--set", "validation.patience=0", "--steps", 40, "--json")
        self.assertEqual(json.loads(further.stdout)["digest"], self.quiet()[0])


class Eval(Validated):
    def test_eval_gives_the_numbers_of_training_for_best_last_and_a_step(self):
        output, _ = self.run_of("--devices", "cpu:2", "--checkpoint-every", "10 steps")
        curve = dict(self.curve(output["dir"]))
        for word, step in (("best", self.best(output["dir"])[0]), ("last", 40), ("30", 30)):
            found = json.loads(self.tandem("eval", output["dir"], "--checkpoint", word, "--json").stdout)
            self.assertEqual((found["step"], found["metrics"]), (step, curve[step]), word)
        text = self.tandem("eval", output["dir"]).stdout
        self.assertIn("validation/accuracy", text)

    def test_a_checkpoint_that_is_not_there_is_named_with_those_that_are(self):
        output, _ = self.run_of("--devices", "cpu:1")
        said = self.tandem("eval", output["dir"], "--checkpoint", "7", code=2).stderr
        self.assertIn("has no such checkpoint", said)
        self.assertIn("40", said)
        never, _ = self.run_of("--devices", "cpu:1", "--set", "validation.every=never")
        self.assertIn("no best checkpoint", self.tandem("eval", never["dir"], "--checkpoint", "best", code=2).stderr)

    def test_a_best_checkpoint_that_is_a_link_is_refused(self):
        output, _ = self.run_of("--devices", "cpu:1")
        best = pathlib.Path(output["dir"]) / "checkpoints" / "best"
        best.rename(self.dir / "elsewhere")
        best.symlink_to(self.dir / "elsewhere")
        self.assertIn("is a symbolic link", self.tandem("eval", output["dir"], code=2).stderr)

    def test_another_validation_set_begins_a_new_count(self):
        output, _ = self.run_of("--devices", "cpu:1", "--set", "validation.patience=1", "--set", "validation.min_delta=1000",
                                steps=10)
        done = self.tandem("resume", output["dir"], "--steps", 40, "--set", "validation_samples=500", "--json")
        resumed = json.loads(done.stdout)
        self.assertEqual((resumed["step"], resumed["validation"]["best_step"]), (30, 20))


class Input(Validated):
    def test_bad_settings_are_refused_before_training(self):
        for setting, words in (("validation.best=acuracy", "did you mean `accuracy`?"),
                               ("validation_samples=3", "fewer than the 24 shards"),
                               ("validation.every=10m", "times are no choice"),
                               ("validation.patience=-1", "at least 0")):
            with self.subTest(setting=setting):
                done = self.tandem("train", "tiny", *QUICK, "--steps", 5, "--devices", "cpu:1", "--set", setting, code=2)
                self.assertIn(words, done.stderr)
        done = self.tandem("train", "tiny", *QUICK, "--steps", 5, "--devices", "cpu:1", "--set", "validation_samples=0",
                           "--set", "validation.best=loss", code=2)
        self.assertIn("no validation set", done.stderr)

    def test_a_warm_up_in_epochs_is_that_many_steps(self):
        by_steps, _ = self.run_of("--devices", "cpu:1", "--set", "schedule.warmup_steps=14")
        epochs = self.steps_of_an_epoch()
        by_epochs, _ = self.run_of("--devices", "cpu:1", "--set", f"schedule.warmup_epochs={14 / epochs}")
        self.assertEqual(by_steps["digest"], by_epochs["digest"])
        recipe = (pathlib.Path(by_epochs["dir"]) / "recipe.toml").read_text()
        self.assertRegex(recipe, r"warmup_steps = 14 +# schedule.warmup_epochs")

    def test_warm_restarts_in_epochs_are_that_many_steps_and_the_rates_are_those_of_the_plain_formula(self):
        restarts = ("--devices", "cpu:1", "--set", "schedule.kind=cosine_restarts", "--set", "schedule.restart_factor=2",
                    "--set", "schedule.warmup_steps=0", "--set", "schedule.min_factor=0.1", "--set",
                    "optimizer.learning_rate=0.003")
        by_steps, _ = self.run_of(*restarts, "--set", "schedule.restart_steps=6")
        epochs = self.steps_of_an_epoch()
        by_epochs, _ = self.run_of(*restarts, "--set", f"schedule.restart_epochs={6 / epochs}")
        self.assertEqual(by_steps["digest"], by_epochs["digest"])
        recipe = (pathlib.Path(by_epochs["dir"]) / "recipe.toml").read_text()
        self.assertRegex(recipe, r"restart_steps = 6 +# schedule.restart_epochs")
        rates = [json.loads(line)["lr"] for line in (pathlib.Path(by_epochs["dir"]) / "metrics.jsonl").read_text().splitlines()]
        cycles = [6, 12, 24]  # each twice as long as the one before
        wanted = [0.003 * (0.1 + 0.9 * (1 + math.cos(math.pi * at / length)) / 2) for length in cycles for at in range(length)]
        self.assertEqual(len(rates), 40)
        for rate, want in zip(rates, wanted):
            self.assertAlmostEqual(rate, want, delta=1e-8)

    def steps_of_an_epoch(self):
        output, _ = self.run_of("--devices", "cpu:1", "--epochs", "1")
        return output["step"]


if __name__ == "__main__":
    unittest.main()

"""The recipe video through the real programs: one digest and the same metrics on any workers, through a kill and a
resume, under torchrun; metrics beside scikit-learn's; prediction of a video; the launch script; bad input.

    python3 video_test.py <folder with tandem and tandem-worker> [unittest arguments]
"""
import csv
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

from frame_metrics import frame_scores
from launched import WORKER, Launched, clean_environment
from ports import lease_ports
from run_test import BIN, TANDEM  # noqa: F401  (takes the folder from the command line)

ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALL = ["--set", "size=16", "--set", "clip.frames=9", "--set", "net.kind=light", "--set", "net.width=4", "--set", "shards=6",
         "--batch-size", 24, "--set", "augment.shift=1", "--set", "generated.videos=4", "--set", "generated.trials=2",
         "--set", "generated.frames=40", "--set", "split.validation_share=0.25", "--set", "schedule.restart_epochs=1", "--seed", 5]
STEPS = 20
EVERY = ["--steps", STEPS, "--set", "validation.every=8 steps"]


class Video(Launched):
    def setUp(self):
        super().setUp()
        os.environ["XDG_CACHE_HOME"] = str(self.dir / "cache")  # the generated set
        self.addCleanup(os.environ.pop, "XDG_CACHE_HOME")

    def train(self, *args, **kwargs):
        return super().train(*SMALL, *args, recipe="video", **kwargs)

    def curve(self, run):
        lines = (pathlib.Path(run["dir"]) / "metrics.jsonl").read_text().splitlines()
        return [(r["step"], {k: v for k, v in r["metrics"].items() if k.startswith("validation/")})
                for r in map(json.loads, lines) if "validation/loss" in r["metrics"]]

    def folder(self):
        """The generated set's, once a run has made it."""
        return next(path for path in (self.dir / "cache" / "tandem").glob("videos-*") if path.is_dir())


class Digest(Video):
    def test_one_digest_and_the_same_metrics_on_any_workers_through_kills_and_a_resume(self):
        alone = self.train(*EVERY, "--devices", "cpu:1")
        curve = self.curve(alone)
        self.assertEqual([step for step, _ in curve], [8, 16, 20])
        self.assertGreaterEqual(len(curve[0][1]), 7 + 7 + 49, "loss, means, an F1 and a row of the matrix for each class")
        for workers in (2, 3):
            run = self.train(*EVERY, "--devices", f"cpu:{workers}")
            self.assert_bits(run["digest"], alone["digest"], f"{workers} workers")
            self.assertEqual(self.curve(run), curve, f"{workers} workers")
        for fault in ("in-phase rank=1 step=9 do=kill", "in-validation rank=0 step=16 do=kill"):
            done = self.tandem("train", "video", *SMALL, *EVERY, "--json", "--devices", "cpu:2", env={"TANDEM_FAULT": fault})
            killed = json.loads(done.stdout)
            self.assert_bits((killed["digest"], self.curve(killed)), (alone["digest"], curve), done.stderr)
            self.assertEqual(killed["deaths"], 1, fault)
        part = self.train("--steps", 10, "--set", "validation.every=8 steps", "--devices", "cpu:2")
        whole = json.loads(self.tandem("resume", part["dir"], "--steps", STEPS, "--devices", "cpu:1", "--json").stdout)
        self.assert_bits(whole["digest"], alone["digest"], "resumed")
        self.assertEqual(self.curve(whole)[-1], curve[-1])

    def test_frames_on_the_device_or_from_the_mapped_cache_are_the_same_clips(self):
        self.assert_bits(self.train(*EVERY, "--set", "frames_on_device=off")["digest"],
                         self.train(*EVERY, "--set", "frames_on_device=on")["digest"])


class Torchrun(Video):
    def test_three_ranks_under_torchrun_itself_give_the_digest_of_one(self):
        torchrun = pathlib.Path(os.environ.get("TORCHRUN") or pathlib.Path(sys.executable).parent / "torchrun")
        if not os.access(torchrun, os.X_OK):
            self.skipTest("there is no torchrun")
        alone = self.train(*EVERY, "--devices", "cpu:1")
        process = self.spawn([torchrun, "--no-python", "--nproc-per-node", 3, "--master-port", lease_ports(), WORKER, "train", "video",
                              *SMALL, *EVERY, "--json"], clean_environment(XDG_CACHE_HOME=str(self.dir / "cache")))
        self.end(process)
        run = self.output(process)
        self.assert_bits((run["digest"], self.curve(run)), (alone["digest"], self.curve(alone)))
        self.assertEqual(run["workers"], 3)


class Words(Video):
    def test_the_start_the_epochs_and_the_best_models_are_said_as_the_guide_has_them(self):
        done = self.tandem("train", "video", *SMALL, "--epochs", 2, "--devices", "cpu:2")
        for pattern in (r"Found 4 unique videos with 8 total trials", r"Train trials: 6, Val trials: 2",
                        r"Class 0 \(rest *\): +\d+ samples \([ \d.]+%\) -> weight: [\d.]+",
                        r"Train batches: 8 of 24 \(per device: ~8 of 12\)", r"Val batches: \d+ of 24 \(per device",
                        r"Epoch 1/2 - Train Loss: [\d.]+, Acc: [\d.]+% \| Val Loss: [\d.]+, Acc: [\d.]+%, F1: [\d.]+",
                        r"Epoch 2/2 - ", r"saved best model: .*checkpoints/best \(F1: [\d.]+\)", r"GENERATED"):
            self.assertRegex(done.stderr, pattern)
        run = next((self.dir / "runs").glob("video-*"))
        report = (run / "report.html").read_text()
        self.assertIn('"confusion":[{', report)
        best = json.loads((run / "run.json").read_text())["extra"]["validation"]
        self.assertEqual(best["metric"], "validation/macro_f1")

    def test_rates_grow_with_the_number_of_devices_by_an_explicit_setting_alone(self):
        def rate(*args):
            run = self.train("--steps", 1, "--set", "validation.every=never", "--set", "validation.patience=0", *args)
            return json.loads((pathlib.Path(run["dir"]) / "metrics.jsonl").read_text().splitlines()[0])["lr"]
        self.assertEqual(rate("--devices", "cpu:2"), 1e-3)
        per_device = ["--set", 'shards="devices"', "--batch-size", 12, "--set", "schedule.base_batch=12", "--devices", "cpu:2"]
        self.assertAlmostEqual(rate(*per_device), 1e-3)
        self.assertAlmostEqual(rate(*per_device, "--lr-scaling", "linear"), 2e-3)
        self.assertAlmostEqual(rate(*per_device, "--lr-scaling", "sqrt"), 2 ** 0.5 * 1e-3)


class Judged(Video):
    """Labels from the annotations, predictions by `tandem predict`, metrics by scikit-learn and a plain loop."""

    def trials(self, folder, video, names, length, predicted):
        """(truth, predicted) of each trial: those frames that are the centre of a clip inside it."""
        found, offset = [], 0
        files = sorted(folder.rglob(f"prediction_{video}_*.csv"), key=lambda file: int(file.stem.rsplit("_", 1)[1]))
        for file in files:
            with open(file, newline="") as rows:
                labels = [row["Action"] for row in csv.DictReader(rows)]
            numbers = [int(label) if label.isdigit() else names.index(label) for label in labels]
            half = length // 2
            inside = range(half, len(numbers) - half)
            found.append(([numbers[f] for f in inside], [names.index(predicted[offset + f]) for f in inside]))
            offset += len(numbers)
        return found

    def test_eval_agrees_with_scikit_learn_on_what_predict_says_of_each_frame(self):
        try:
            import sklearn  # noqa: F401
        except ImportError:
            self.skipTest("there is no scikit-learn")
        if not (BIN / "tandem-video").exists():
            self.skipTest("this build has no FFmpeg")
        run = self.train("--steps", 60, "--set", "split.validation_share=0.2", "--set", "validation.every=20 steps")
        found = json.loads(self.tandem("eval", run["run"], "--json").stdout)
        names, matched = found["class_names"], 0
        for video in sorted(self.folder().rglob("*.mp4")):
            out = self.dir / f"{video.stem}.csv"
            self.tandem("predict", run["run"], video, "--csv", out)
            with open(out, newline="") as rows:
                predicted = [row["Action"] for row in csv.DictReader(rows)]
            trials = self.trials(self.folder(), video.stem, names, 9, predicted)
            theirs = frame_scores(len(names), trials)
            if theirs["support"] != [found["classes"][name]["support"] for name in names]:
                continue  # a video of training
            matched += 1
            for key in ("precision", "recall", "f1"):
                for name, value in zip(names, theirs[key]):
                    self.assertAlmostEqual(found["classes"][name][key], value, 9, f"{key} of {name}")
            for key in ("macro", "weighted"):
                for name, value in zip(("precision", "recall", "f1"), theirs[key]):
                    self.assertAlmostEqual(found[key][name], value, 9, f"{key} {name}")
            self.assertAlmostEqual(found["accuracy"], theirs["accuracy"], 9)
            self.assertAlmostEqual(found["segment_f1"], theirs["segment_f1"], 9)
            matrix = [[sum(t == a and p == b for ts, ps in trials for t, p in zip(ts, ps)) for b in range(len(names))]
                      for a in range(len(names))]
            self.assertEqual(found["confusion"], matrix)
        self.assertEqual(matched, 1, "the one video that validates")

    def test_predict_draws_its_labels_on_a_copy_of_the_video(self):
        if not (BIN / "tandem-video").exists():
            self.skipTest("this build has no FFmpeg")
        run = self.train("--steps", 2)
        video = sorted(self.folder().rglob("*.mp4"))[0]
        said = json.loads(self.tandem("predict", run["run"], video, "--overlay", "labelled.mp4", "--json").stdout)
        self.assertEqual(said["frames"], 80)
        self.assertEqual(sum(one["frames"] for one in said["classes"]), 80)
        again = json.loads(self.tandem("predict", run["run"], "labelled.mp4", "--json").stdout)
        self.assertEqual(again["frames"], 80, "the copy is a video of as many frames")
        copy = self.dir / "labelled.mp4"
        before = copy.read_bytes()
        for flags in (["--csv", copy], ["--overlay", copy], ["--csv", "same.mp4", "--overlay", "./same.mp4"]):
            self.assert_explains(self.tandem("predict", run["run"], copy, *flags, code=2), "would be replaced")
        self.assertEqual(copy.read_bytes(), before)
        self.assertFalse((self.dir / "same.mp4").exists())


class Script(Video):
    SCRIPT = ROOT / "scripts" / "train_multigpu.sh"

    def launch(self, *args, gpus=0, code=0, visible=None):
        """The script where nvidia-smi lists so many GPUs and tandem prints its arguments."""
        tools = self.dir / "tools"
        tools.mkdir(exist_ok=True)
        lines = "".join(f"GPU {i}: NVIDIA B200 (UUID: GPU-{i})\n" for i in range(gpus))
        for name, text in (("nvidia-smi", f"printf '%s' '{lines}'"), ("tandem", 'echo "$*"')):
            (tools / name).write_text(f"#!/bin/sh\n{text}\n")
            (tools / name).chmod(0o755)
        env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "TANDEM": str(tools / "tandem")}
        env.pop("CUDA_VISIBLE_DEVICES", None)
        if visible is not None:
            env["CUDA_VISIBLE_DEVICES"] = visible
        done = subprocess.run([self.SCRIPT, *map(str, args)], capture_output=True, text=True, stdin=subprocess.DEVNULL, env=env)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def test_it_prints_the_banner_and_trains_on_so_many_gpus(self):
        done = self.launch(3, "--epochs", 5, gpus=3)
        self.assertEqual(done.stdout, "train video --num-gpus 3 --epochs 5\n")
        for line in ("Multi-GPU Training Launcher", "Number of GPUs: 3", "GPU 2: NVIDIA B200 (UUID: GPU-2)", "Launching distributed training..."):
            self.assertIn(line + "\n", done.stderr)

    def test_without_a_number_it_takes_all(self):
        self.assertEqual(self.launch(gpus=2).stdout, "train video --num-gpus 2\n")

    def test_too_many_none_and_nonsense_are_refused_with_exit_code_2(self):
        for args, gpus, words in (((4,), 3, "4 GPUs were asked for, 3 are here"), ((0,), 3, "0 is no number of GPUs"),
                                  ((1,), 0, "1 GPUs were asked for, 0 are here"), ((-2,), 1, "-2 is no number")):
            done = self.launch(*args, gpus=gpus, code=2)
            self.assertEqual(done.stdout, "")
            self.assert_explains(done, words)

    def test_gpus_that_are_hidden_from_programs_do_not_count(self):
        for visible, count in (("0,2", 2), ("1", 1), ("GPU-2,GPU-0", 2), ("0,7,1", 1), ("0,1,2", 3), (" 1 , 2 ", 2)):
            self.assertEqual(self.launch(gpus=3, visible=visible).stdout, f"train video --num-gpus {count}\n", visible)
        banner = self.launch(gpus=3, visible="2").stderr
        self.assertIn("GPU 2: NVIDIA", banner)
        self.assertNotIn("GPU 0: NVIDIA", banner)
        refused = self.launch(2, gpus=3, visible="1", code=2)
        self.assert_explains(refused, "2 GPUs were asked for, 1 are here (CUDA_VISIBLE_DEVICES=1 hides others)")
        for nothing in ("", "-1", "NoDevFiles"):
            done = self.launch("--quick", gpus=3, visible=nothing)
            self.assertEqual(done.stdout, "train video --quick\n", nothing)
            self.assertIn("No GPU was found (CUDA_VISIBLE_DEVICES=", done.stderr)

    def test_without_a_gpu_it_says_so_and_trains_on_the_cpu(self):
        done = self.launch("--quick")
        self.assertEqual(done.stdout, "train video --quick\n")
        self.assertIn("No GPU was found", done.stderr)


class BadInput(Video):
    def refused(self, *args, words=()):
        self.assert_explains(self.tandem("train", "video", *SMALL, *args, code=2), *words)

    def test_data_that_cannot_be_trained_on_and_settings_that_fit_nothing(self):
        (self.dir / "empty").mkdir()
        self.refused("--data", "empty", words=("no video",))
        self.refused("--data", "missing", words=("missing",))
        self.refused("--set", "clip.frames=10", words=("set clip.frames to 9 or 11",))
        self.refused("--set", "net.width=5", words=("set net.width to 4 or 6",))
        self.refused("--set", "augment.shift=8", words=("augment.shift is 8",))
        self.refused("--set", "validation.best=f2", words=("macro_f1",))
        self.refused("--gpus", "0,1,2", words=("cuda",))

    def test_a_class_that_only_validation_has_is_named(self):
        self.train("--steps", 1)
        folder = self.dir / "rare"
        shutil.copytree(self.folder(), folder)
        for file in folder.rglob("prediction_*.csv"):
            lines = file.read_text().splitlines()
            file.write_text("\n".join([lines[0]] + [line.rsplit(",", 1)[0] + ",rest" for line in lines[1:]]) + "\n")
        video = sorted(folder.rglob("prediction_*.csv"))
        whole = self.tandem("train", "video", *SMALL, "--data", folder, "--steps", 1, code=None)
        self.assertIn("walk", whole.stderr, "classes without an example are named")
        refused = 0
        for file in video:  # one of them validates
            kept = file.read_text()
            file.write_text(kept.replace(",rest", ",walk"))
            done = self.tandem("train", "video", *SMALL, "--data", folder, "--steps", 1, code=None)
            refused += done.returncode == 2 and "walk" in done.stderr
            file.write_text(kept)
        self.assertGreater(refused, 0)

    def test_a_run_whose_data_changed_does_not_go_on(self):
        self.train("--steps", 1)
        folder = self.dir / "mine"
        shutil.copytree(self.folder(), folder)
        run = self.train("--data", folder, "--steps", 2)
        file = sorted(folder.rglob("prediction_*.csv"))[0]
        text = file.read_text().splitlines()
        text[5] = text[5].rsplit(",", 1)[0] + (",walk" if "rest" in text[5] else ",rest")
        file.write_text("\n".join(text) + "\n")
        self.assert_explains(self.tandem("resume", run["run"], "--steps", 3, code=2), "digest")

    def test_predict_and_eval_refuse_what_they_cannot_do(self):
        run = self.train("--steps", 1)
        self.assert_explains(self.tandem("predict", run["run"], code=2), "a run and a video")
        self.assert_explains(self.tandem("predict", run["run"], "none.mp4", code=2), "none.mp4")
        self.assert_explains(self.tandem("eval", run["run"], "--checkpoint", "77", code=2), "no such checkpoint")
        if (BIN / "tandem-video").exists():
            (self.dir / "bad.mp4").write_bytes(b"no video")
            self.assert_explains(self.tandem("predict", run["run"], "bad.mp4", "--csv", "x.csv", code=2))


if __name__ == "__main__":
    unittest.main()

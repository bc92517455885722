"""The recipe video through the real programs: one digest and the same metrics on any workers, through a kill and a
resume, under torchrun; metrics beside scikit-learn's; prediction of a video; the launch script; bad input.

    python3 video_test.py <folder with tandem and tandem-worker> [unittest arguments]
"""
import csv
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

import skips
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
        """(truth, predicted) of each trial: those frames that are the centre of a clip inside it. A gap parts it in two."""
        found, offset = [], 0
        files = sorted(folder.rglob(f"prediction_{video}_*.csv"), key=lambda file: int(file.stem.rsplit("_", 1)[1]))
        for file in files:
            with open(file, newline="") as rows:
                labels = {int(row["Frame"]): row["Action"] for row in csv.DictReader(rows)}
            numbers = {f: int(label) if label.isdigit() else names.index(label) for f, label in labels.items()}
            half, count = length // 2, max(numbers) + 1
            inside = range(half, count - half)
            for known, frames in itertools.groupby(inside, numbers.__contains__):
                frames = list(frames)
                if known:
                    found.append(([numbers[f] for f in frames], [names.index(predicted[offset + f]) for f in frames]))
            offset += count
        return found

    def test_eval_agrees_with_scikit_learn_on_what_predict_says_of_each_frame(self):
        try:
            import sklearn  # noqa: F401
        except ImportError:
            self.skipTest("there is no scikit-learn")
        if not (BIN / "tandem-video").exists():
            self.skipTest("this build has no FFmpeg")
        self.train("--steps", 1)
        gaps = self.dir / "gaps"
        shutil.copytree(self.folder(), gaps)
        for file in gaps.rglob("prediction_*.csv"):
            file.write_text("".join(line for line in file.read_text().splitlines(True) if not line.startswith(("18,", "19,"))))
        for folder, more in ((self.folder(), ()), (gaps, ("--data", gaps, "--set", "accept_gaps=true"))):
            self.compare(folder, *more)

    def compare(self, folder, *more):
        run = self.train("--steps", 60, "--set", "split.validation_share=0.2", "--set", "validation.every=20 steps", *more)
        found = json.loads(self.tandem("eval", run["run"], "--json").stdout)
        names, matched = found["class_names"], 0
        for video in sorted(folder.rglob("*.mp4")):
            out = self.dir / f"{video.stem}.csv"
            self.tandem("predict", run["run"], video, "--csv", out)
            with open(out, newline="") as rows:
                predicted = [row["Action"] for row in csv.DictReader(rows)]
            trials = self.trials(folder, video.stem, names, 9, predicted)
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
        for name, words in (("labelled.mp4", "is there already"), ("new.avi", "is an mp4, and no .avi"), ("new", "has no ending"),
                            ("-", "has no ending"), ("/dev/null", "has no ending"), ("none/new.mp4", "none")):
            self.assert_explains(self.tandem("predict", run["run"], video, "--overlay", name, code=2), words)
        self.assertEqual(copy.read_bytes(), before)
        self.assertEqual([path for path in self.dir.glob("*") if path.stem in ("same", "new", "-")], [])

    def test_each_frame_of_the_copy_bears_the_label_that_the_csv_gives_it(self):
        if not (BIN / "tandem-video").exists():
            self.skipTest("this build has no FFmpeg")
        side = 96  # room for the longest label
        self.train("--steps", 1, "--set", f"size={side}", "--set", "validation.every=never", "--set", "validation.patience=0")
        video = shutil.copy(sorted(self.folder().rglob("*.mp4"))[0], self.dir / "mouse.mp4")
        run = self.train("--steps", 60, "--set", "validation.every=60 steps", "--lr", 0.003)
        said = self.tandem("predict", run["run"], video, "--csv", "labels.csv", "--overlay", "labelled.mp4").stderr
        self.assertRegex(said, r"decoding 80 frames of 16 x 16: 20\.5 kB in /")
        with open(self.dir / "labels.csv", newline="") as rows:
            texts = [f"{row['Action']} {float(row['Probability']):.2f}" for row in csv.DictReader(rows)]
        different = sorted(set(texts))
        self.assertGreater(len(different), 5)
        drawn = subprocess.run([BIN.parent / "tests" / "draw_label_tool", str(side), str(side)], input="\n".join(different).encode(),
                               check=True, capture_output=True).stdout
        copy = subprocess.run([BIN / "tandem-video", "decode", self.dir / "labelled.mp4", "--raw"], check=True, capture_output=True).stdout
        self.assertEqual((len(drawn), len(copy)), (len(different) * side * side, 80 * side * side))
        boxes = {text: [row * side + column for row in range(9) for column in range(len(text) * 6 + 1)] for text in different}
        pictures = {text: [drawn[at * side * side + i] for i in boxes[text]] for at, text in enumerate(different)}
        for frame, text in enumerate(texts):
            off = {other: sum(abs(copy[frame * side * side + i] - pixel) for i, pixel in zip(boxes[other], picture)) / len(picture)
                   for other, picture in pictures.items()}
            self.assertEqual(min(off, key=off.get), text, f"frame {frame}: {off}")

    def test_a_cpu_takes_a_few_clips_at_a_time_whatever_the_batch(self):
        run = self.train("--steps", 2)
        frames = sorted(self.folder().rglob("*.frames"))[0]
        answers = {}
        for rows in (1, 16, 512):
            (self.dir / "question.json").write_text(json.dumps({"ask": "predict", "frames": str(frames), "poses": "", "rows": rows}))
            done = subprocess.run([WORKER, "evaluate", run["dir"], pathlib.Path(run["dir"]) / "checkpoints/best", "question.json"], cwd=self.dir,
                                  env=clean_environment(OMP_NUM_THREADS="1", TANDEM_DEVICE="cpu"), check=True, capture_output=True, text=True)
            answers[rows] = json.loads(done.stdout)["answer"]
        self.assertEqual([answer["rows"] for answer in answers.values()], [8] * 3, "clips of 256 x 256 fill its memory")
        for answer in answers.values():
            self.assertEqual((answer["predicted"], answer["probability"]), (answers[1]["predicted"], answers[1]["probability"]))

    def test_a_video_without_a_frame_is_refused(self):
        ffmpeg = shutil.which("ffmpeg")
        if not ffmpeg or not (BIN / "tandem-video").exists():
            self.skipTest("there is no ffmpeg, or this build has none")
        run = self.train("--steps", 1)
        subprocess.run([ffmpeg, "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=64x64:r=25", "-frames:v", "3", self.dir / "a.mp4"], check=True)
        data = bytearray((self.dir / "a.mp4").read_bytes())
        start = data.index(b"mdat") + 4
        data[start:start + 4000] = b"\xff" * len(data[start:start + 4000])
        (self.dir / "a.mp4").write_bytes(data)
        done = self.tandem("predict", run["run"], "a.mp4", "--csv", "a.csv", "--overlay", "b.mp4", code=2)
        self.assert_explains(done, "a.mp4")
        self.assertEqual(sorted(path.name for path in self.dir.glob("[ab].*")), ["a.mp4"])

    def test_predict_needs_the_run_and_the_video_alone(self):
        if not (BIN / "tandem-video").exists():
            self.skipTest("this build has no FFmpeg")
        for more in ((), ("--set", "poses=true")):
            self.train("--steps", 1, *more)
            folder = self.dir / f"mine{len(more)}"
            shutil.move(self.folder(), folder)
            run = self.train("--data", folder, "--steps", 3, *more)
            video = sorted(folder.rglob("*.mp4"))[0]
            shutil.copy(video, self.dir / "mouse.mp4")
            shutil.copy(next(folder.rglob(f"{video.name}.*.frames")), self.dir / "mouse.frames")
            pose = next(iter(folder.rglob(f"{video.stem}DLC*.csv")), None)
            flags = ["--pose", shutil.copy(pose, self.dir / "pose.csv")] if more else []
            with_data = self.labels(run, "mouse.mp4", *flags)
            shutil.rmtree(folder)
            self.assertEqual(self.labels(run, "mouse.mp4", *flags), with_data)
            self.assertEqual(self.labels(run, "mouse.frames", *flags), with_data, "of the frames as they were trained on")
            self.assert_explains(self.tandem("predict", run["run"], "mouse.frames", *flags, "--overlay", "x.mp4", code=2), "video itself")
            self.assert_explains(self.tandem("eval", run["run"], code=2), str(folder))

    def test_frames_alone_train_are_judged_and_labelled_where_there_is_no_program_for_videos(self):
        self.train("--steps", 1)
        folder, alone = self.dir / "mine", self.dir / "bin"
        shutil.copytree(self.folder(), folder)
        shutil.rmtree(folder / "Videos", ignore_errors=True)
        alone.mkdir()
        for program in BIN.iterdir():
            if program.is_file() and program.name != "tandem-video":
                shutil.copy(program, alone)

        def tandem(*args, code=0):
            done = subprocess.run([alone / "tandem", *map(str, args)], cwd=self.dir, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  env={**os.environ, "NO_COLOR": "1", "XDG_CACHE_HOME": str(self.dir / "none")})
            self.assertEqual(done.returncode, code, done.stderr)
            return done
        run = json.loads(tandem("train", "video", *SMALL, "--data", folder, "--steps", 3, "--json").stdout)
        self.assertEqual(run["digest"], self.train("--data", folder, "--steps", 3)["digest"])
        self.assertEqual(json.loads(tandem("eval", run["run"], "--json").stdout)["step"], 3)
        frames = sorted(folder.rglob("*.frames"))[0]
        self.assertEqual(json.loads(tandem("predict", run["run"], frames, "--csv", "frames.csv", "--json").stdout)["frames"], 80)
        self.assertEqual((self.dir / "frames.csv").read_text(), self.labels(run, frames))
        (self.dir / "mouse.mp4").write_bytes(b"a video")
        self.assert_explains(tandem("predict", run["run"], "mouse.mp4", code=2), "built without FFmpeg")

    def labels(self, run, video, *flags):
        self.tandem("predict", run["run"], video, *flags, "--csv", "labels.csv")
        return (self.dir / "labels.csv").read_text()


class Settings(Video):
    """Settings that change what is computed: one digest for any number of workers all the same."""

    def digest_on_any_workers(self, *args):
        alone = self.train(*EVERY, *args, "--devices", "cpu:1")
        for workers in (2, 3):
            run = self.train(*EVERY, *args, "--devices", f"cpu:{workers}")
            self.assert_bits((run["digest"], self.curve(run)), (alone["digest"], self.curve(alone)), f"{args}: {workers} workers")
        return alone

    def test_batch_norm_over_the_whole_batch(self):
        synced = self.digest_on_any_workers("--set", "sync_bn=true")
        self.assertNotEqual(synced["digest"], self.train(*EVERY, "--devices", "cpu:1")["digest"])

    def test_bf16_on_a_cpu_trains_is_judged_and_labels(self):
        flags = ("--precision", "bf16", "--steps", 6, "--set", "validation.every=3 steps")
        runs = [self.train(*flags, "--devices", f"cpu:{workers}") for workers in (1, 2)]
        self.assert_bits((runs[0]["digest"], self.curve(runs[0])), (runs[1]["digest"], self.curve(runs[1])))
        self.assertNotEqual(runs[0]["digest"], self.train("--steps", 6, "--set", "validation.every=3 steps")["digest"], "it is another type")
        frames = sorted(self.folder().rglob("*.frames"))[0]
        found = []
        for run in runs:
            judged = json.loads(self.tandem("eval", run["run"], "--json").stdout)
            self.tandem("predict", run["run"], frames, "--csv", "labels.csv")
            found.append((judged["loss"], judged["confusion"], (self.dir / "labels.csv").read_text()))
        self.assertEqual(found[0], found[1])

    def test_poses_are_a_second_input(self):
        run = self.digest_on_any_workers("--set", "poses=true")
        part = self.train("--steps", 10, "--set", "poses=true", "--set", "validation.every=8 steps", "--devices", "cpu:2")
        whole = json.loads(self.tandem("resume", part["dir"], "--steps", STEPS, "--devices", "cpu:1", "--json").stdout)
        self.assert_bits(whole["digest"], run["digest"], "resumed")
        if not (BIN / "tandem-video").exists():
            self.skipTest("this build has no FFmpeg")
        videos, poses = sorted(self.folder().rglob("*.mp4")), sorted(self.folder().rglob("*DLC*.csv"))
        def labels(pose):
            self.tandem("predict", run["run"], videos[0], "--pose", pose, "--csv", "out.csv")
            return (self.dir / "out.csv").read_text()
        self.assertEqual(labels(poses[0]), labels(poses[0]))
        self.assertNotEqual(labels(poses[0]), labels(poses[1]), "they are used")
        self.assert_explains(self.tandem("predict", run["run"], videos[0], code=2), "--pose FILE")
        rows = poses[0].read_text().splitlines(True)
        (self.dir / "short.csv").write_text("".join(rows[:-1]))
        (self.dir / "bad.csv").write_text("".join(rows).replace("mouth", "nose"))
        for file, words in (("short.csv", "each frame needs its pose"), ("bad.csv", "the header lacks mouth"), ("none.csv", "none.csv")):
            self.assert_explains(self.tandem("predict", run["run"], videos[0], "--pose", file, code=2 if file != "none.csv" else None), words)

    def test_label_smoothing_is_a_share_of_the_loss_over_all_classes(self):
        self.digest_on_any_workers("--set", "loss.label_smoothing=0.1")
        losses = []
        for share in (0, 0.25, 0.5):  # of the weights at the start, nearly
            run = self.train("--steps", 1, "--set", "validation.every=1 steps", "--set", f"loss.label_smoothing={share}", "--lr", 1e-12)
            losses.append(self.curve(run)[-1][1]["validation/loss"])
        self.assertGreater(abs(losses[2] - losses[0]), 1e-4)
        self.assertAlmostEqual(losses[2] - losses[1], losses[1] - losses[0], 5, "it grows as a line")


class Script(Video):
    SCRIPT = ROOT / "scripts" / "train_multigpu.sh"

    def launch(self, *args, gpus=0, code=0, visible=None, parts=()):
        """The script where nvidia-smi lists so many GPUs, the first with these MIG devices, and tandem prints its arguments."""
        tools = self.dir / "tools"
        tools.mkdir(exist_ok=True)
        below = "".join(f"  MIG 1g.5gb     Device  {i}: (UUID: {name})\n" for i, name in enumerate(parts))
        lines = "".join(f"GPU {i}: NVIDIA B200 (UUID: GPU-{i})\n{below if i == 0 else ''}" for i in range(gpus))
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

    def test_mig_devices_count_as_tandem_counts_them(self):
        parts = ("MIG-4a5b", "MIG-4a5b-2")
        for visible, count in (("MIG-4a5b", 1), ("MIG-4a5b-2,MIG-4a5b", 2), ("MIG-4a5b, GPU-1", 2), ("MIG-elsewhere", 1)):
            done = self.launch(gpus=2, parts=parts, visible=visible)
            self.assertEqual(done.stdout, f"train video --num-gpus {count}\n", visible)
        self.assertEqual(self.launch(gpus=2, parts=parts).stdout, "train video --num-gpus 2\n")
        banner = self.launch(1, gpus=2, parts=parts, visible="MIG-4a5b-2").stderr
        self.assertIn("Device  1: (UUID: MIG-4a5b-2)", banner)
        self.assertNotIn("No GPU was found", banner)
        self.assertIn("MIG device (UUID: MIG-elsewhere)", self.launch(gpus=2, visible="MIG-elsewhere").stderr)

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
        self.refused("--set", "augment.frame_drop=1", words=("augment.frame_drop", "below 1"))
        self.refused("--set", "validation.best=f2", words=("macro_f1",))
        self.refused("--gpus", "0,1,2", words=("cuda",))

    def test_trials_without_a_clip_and_names_of_one_animal_are_named_by_the_check_and_by_training(self):
        self.train("--steps", 1)
        folder = self.dir / "mine"
        shutil.copytree(self.folder(), folder)
        last = sorted(folder.rglob("prediction_*_2.csv"))[-1]
        short = last.with_name(last.name.replace("_2.csv", "_3.csv"))  # its last 5 frames are a trial of their own
        rows = last.read_text().splitlines()
        last.write_text("\n".join(rows[:-5]) + "\n")
        short.write_text("\n".join([rows[0]] + [f"{i},{row.split(',')[1]}" for i, row in enumerate(rows[-5:])]) + "\n")
        check = json.loads(self.tandem("data", "check", "video", folder, "--size", 16, "--json").stdout)
        done = self.tandem("train", "video", *SMALL, "--data", folder, "--steps", 1, "--set", "split.animal_separator=0")
        for text in (" ".join(check["split"]), done.stderr):
            self.assertRegex(text, rf"1 of 9 trials is shorter than a clip of \d+ frames and has none \(Annotations/{short.name}: 5 frames\)")
        self.assertNotIn("animal", "".join(line for line in done.stderr.splitlines() if "warning" in line))
        (folder / "animals.csv").write_text("video,animal\n" + "".join(f"{video.stem},{video.stem}\n" for video in folder.rglob("*.mp4")))
        done = self.tandem("train", "video", *SMALL, "--data", folder, "--steps", 1, "--set", "split.by=animal")
        self.assertNotIn("animal", "".join(line for line in done.stderr.splitlines() if "warning" in line))

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
        names = sorted({file.stem.split("_", 1)[1].rsplit("_", 1)[0] for file in folder.rglob("prediction_*.csv")})
        rows = [f"{name},{number}" for number, name in enumerate(names)]
        (folder / "animals.csv").write_text("\n".join(["video,animal", *rows]) + "\n")
        self.tandem("resume", run["run"], "--steps", 3)  # whose animals they are decides nothing in a split by video
        by_animal = self.train("--data", folder, "--steps", 1, "--set", "split.by=animal")
        (folder / "animals.csv").write_text("\n".join(["video,animal", *rows[:-1], f"{names[-1]},0"]) + "\n")
        self.assert_explains(self.tandem("resume", by_animal["run"], "--steps", 2, code=2), "digest")
        file = sorted(folder.rglob("prediction_*.csv"))[0]
        text = file.read_text().splitlines()
        text[5] = text[5].rsplit(",", 1)[0] + (",walk" if "rest" in text[5] else ",rest")
        file.write_text("\n".join(text) + "\n")
        self.assert_explains(self.tandem("resume", run["run"], "--steps", 4, code=2), "digest")

    def test_a_refusal_stands_until_the_data_are_mended(self):
        if not (BIN / "tandem-video").exists():
            self.skipTest("this build has no FFmpeg")
        self.train("--steps", 1)
        folder = self.dir / "mine"
        shutil.copytree(self.folder(), folder)
        (folder / "Videos/extra.mp4").write_bytes(b"no video, and nobody trains on it")
        video = sorted(folder.rglob("m*.mp4"))[0]
        whole = video.read_bytes()
        video.write_bytes(whole[:len(whole) * 3 // 4])
        said = [self.tandem("train", "video", *SMALL, "--data", folder, "--steps", 1, code=2) for _ in range(3)]
        for done in said:
            self.assert_explains(done, f"{video.name}: ")
        self.assertEqual(len({done.stderr for done in said}), 1)
        video.write_bytes(whole)
        for _ in range(2):
            done = self.tandem("train", "video", *SMALL, "--data", folder, "--steps", 1)
            self.assertIn("Videos/extra.mp4: no prediction_extra_<trial>.csv", done.stderr, "a warning names its file")

    def test_what_was_kept_of_a_damaged_video_stays_when_another_one_comes(self):
        if not (BIN / "tandem-video").exists():
            self.skipTest("this build has no FFmpeg")
        self.train("--steps", 1)
        folder = self.dir / "mine"
        shutil.copytree(self.folder(), folder)
        videos = sorted(folder.rglob("m*.mp4"))
        data = bytearray(videos[0].read_bytes())
        data[len(data) * 3 // 4:len(data) * 3 // 4 + 300] = b"\xff" * 300
        videos[0].write_bytes(data)
        self.assertEqual(self.tandem("data", "prepare", "video", folder, "--size", 16, code=None).returncode, 2)
        self.tandem("data", "prepare", "video", folder, "--size", 16, "--accept-damaged")
        for file in folder.rglob(f"{videos[1].name}.*.frames"):
            file.unlink()
        done = self.tandem("train", "video", *SMALL, "--data", folder, "--steps", 1)
        self.assertRegex(done.stderr, f"warning: {videos[0].name}: .*damaged")

    def test_predict_and_eval_refuse_what_they_cannot_do(self):
        run = self.train("--steps", 1)
        self.assert_explains(self.tandem("predict", run["run"], code=2), "a run and a video")
        self.assert_explains(self.tandem("predict", run["run"], "none.mp4", code=2), "none.mp4")
        self.assert_explains(self.tandem("eval", run["run"], "--checkpoint", "77", code=2), "no such checkpoint")
        if (BIN / "tandem-video").exists():
            (self.dir / "bad.mp4").write_bytes(b"no video")
            self.assert_explains(self.tandem("predict", run["run"], "bad.mp4", "--csv", "x.csv", code=2))


if __name__ == "__main__":
    skips.main()

"""What bench/video_baseline.py makes of figures of a GPU, without one: memory, its floors' lines, learning, time limits.

    python3 video_baseline_test.py <folder with tandem and tandem-worker> [unittest arguments]
"""
import argparse
import io
import json
import pathlib
import sys
import tempfile
import threading
import types
import unittest
from unittest import mock

import skips
from run_test import BIN  # noqa: F401  (takes the folder from the command line)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
try:
    import video_baseline
except ImportError as error:  # torch or safetensors
    video_baseline = None
    WHY = str(error)

# Of a run on an H200: what a worker says of itself at the end (src/engine/usage.h).
USAGE = {"memory_bytes": 3.1e9, "memory_now": 3.0e9, "card_now": 8.0e9, "steps": 40, "step_s": 6.1, "compute_s": 5.8, "combine_s": 0.1,
         "load_s": 0.02, "snapshot_s": 0.4, "snapshots": 1, "shards": 8}
PER_CLIP, FIXED = 60_000_000, 400_000_000


class Floors(unittest.TestCase):
    def setUp(self):
        if video_baseline is None:
            self.skipTest(WHY)
        self.said = io.StringIO()
        self.enterContext(mock.patch("sys.stderr", self.said))
        self.verdicts = video_baseline.Verdicts(True)
        self.given = argparse.Namespace(judged_batch=128, left_out=40, device="cuda:0", shift=5, set=[], mode_seconds=300,
                                        programs=pathlib.Path("/nowhere"), updates=20, rounds=3)

    def memory(self, theirs_per_clip, most_tandem=128, passes=lambda batch: 8):
        """measure_memory() beside runs that leave what a run leaves."""
        root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        tandem = video_baseline.Tandem(self.given, root)

        def train(batch, steps, *more):
            if batch > most_tandem:
                return None, root
            folder = tandem.folder()
            usage = {**USAGE, "card_bytes": FIXED + batch * PER_CLIP, "shards_in_pass": passes(batch)}
            (folder / "run.json").write_text(json.dumps({"status": "done", "step": steps, "extra": {"workers": 1, "usage": [usage]}}))
            return {"step": steps}, folder

        tandem.train = train
        with mock.patch.object(video_baseline, "baseline_bytes", lambda given, batch, *_: 1e9 + batch * theirs_per_clip if theirs_per_clip else None):
            return video_baseline.measure_memory(self.given, tandem, None, None, self.verdicts)

    def verdict(self):
        return self.verdicts.found[-1]["found"], self.verdicts.found[-1]["holds"], self.verdicts.failed()

    def test_memory_per_clip_is_the_difference_of_two_batches_beside_pytorchs(self):
        found = self.memory(120_000_000)
        self.assertEqual((found["tandem_per_clip"], found["torch_per_clip"], found["share"]), (PER_CLIP, 120_000_000, 0.5))
        self.assertEqual(self.verdict(), (0.5, True, False))
        self.assertRegex(self.said.getvalue(), r"tandem 60\.0 MB, PyTorch 120\.0 MB(.|\n)*0\.50, floor <= 0\.6: holds")
        self.memory(90_000_000)
        self.assertEqual(self.verdict(), (2 / 3, False, True))
        self.assertIn("MISSED", self.said.getvalue())

    def test_memory_that_cannot_be_compared_is_not_measured_and_fails(self):
        for more in ({"theirs_per_clip": None}, {"theirs_per_clip": 1e8, "most_tandem": 64},
                     {"theirs_per_clip": 1e8, "passes": lambda batch: batch // 16}):
            self.assertIsNone(self.memory(**more)["share"])
            self.assertEqual(self.verdict(), (None, False, True), more)
        self.assertIn("not measured", self.said.getvalue())

    def test_a_floor_of_a_gpu_is_none_on_a_cpu(self):
        cpu = video_baseline.Verdicts(False)
        cpu.add("speed", 1.0, False, ">= 1.3x", str)
        self.assertFalse(cpu.failed())
        self.assertIsNone(video_baseline.measure_memory(self.given, None, None, None, cpu))

    def test_learning_is_judged_where_seeds_agree_alone(self):
        judge = lambda ours, theirs: video_baseline.judge_learning(ours, theirs, 200, 7, self.verdicts)
        judge([1.00, 1.02, 1.01], [1.00, 1.01, 1.02])
        self.assertTrue(self.verdicts.found[-1]["holds"])
        judge([1.20, 1.22, 1.21], [1.00, 1.01, 1.02])
        self.assertEqual(self.verdict()[1:], (False, True))
        scattered = judge([0.5, 1.5, 1.0], [1.00, 1.01, 1.02])  # the noise is larger than any difference
        self.assertGreater(scattered["noise"], scattered["most_noise"])
        self.assertEqual(self.verdict(), (None, False, True))

    def test_a_mode_that_takes_too_long_is_left_out_with_its_limit(self):
        def compiles_for_ever(*_):
            for _ in range(3):
                try:
                    threading.Event().wait(60)
                except Exception:  # as torch.compile's autotuner does
                    pass

        self.given.mode_seconds = 0.05
        with mock.patch.object(video_baseline, "Baseline", compiles_for_ever):
            self.assertEqual(video_baseline.baseline_seconds(self.given, 128, "max-autotune", None, None), (None, "not done after 0.05 s"))

    def test_what_a_part_found_is_printed_before_the_next_one_begins(self):
        class Parts(types.SimpleNamespace):
            pass

        given = Parts(**vars(self.given), quick=True, json=True, parts=["memory", "speed"], batches=[128], length=9)
        out = io.StringIO()
        tandem = mock.Mock(train=lambda *_: ({"step": 1}, None))

        def fails(*_):
            raise RuntimeError("the GPU is gone")

        clips = mock.MagicMock(length=9)
        with mock.patch.multiple(video_baseline, read_arguments=lambda: (given, False), Tandem=lambda *_: tandem, Clips=lambda *_: clips,
                                 same_function=lambda *_: "", measure_speed=lambda *_: [{"batch": 128}], measure_memory=fails), \
                mock.patch("sys.stdout", out), mock.patch.dict("os.environ"), self.assertRaises(RuntimeError):
            video_baseline.main()
        self.assertEqual([json.loads(line)["rows"] for line in out.getvalue().splitlines()], [[{"batch": 128}]])


if __name__ == "__main__":
    skips.main()

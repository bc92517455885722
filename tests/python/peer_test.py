"""Whole runs whose workers sum by kernels: CPU workers, with the kernels' twins in shared memory (reduce/peer_link.h).

    python3 peer_test.py <folder with tandem and tandem-worker> [unittest arguments]
"""
import json
import os
import signal
import unittest

from run_test import Case, QUICK  # noqa: E402  (takes the folder from the command line)

STEPS = 24


class Runs(Case):
    _quiet = []

    def quiet(self):
        """The digest of one worker."""
        if not Runs._quiet:
            Runs._quiet.append(self.train(*QUICK, "--steps", STEPS, "--devices", "cpu:1")["digest"])
        return Runs._quiet[0]

    def over(self, plane, workers=3, code=0, faults=""):
        env = {"TANDEM_PLANE": plane, "TANDEM_FAULT": faults}
        return self.tandem("train", "tiny", *QUICK, "--steps", STEPS, "--json", "--devices", f"cpu:{workers}", code=code, env=env)

    def events(self, output):
        lines = (self.dir / output["dir"] / "events.jsonl").read_text().splitlines()
        return [json.loads(line)["text"] for line in lines if '"combine"' in line]

    def test_every_pair_is_told_and_the_bits_are_those_of_one_worker(self):
        want = self.quiet()
        for plane, through, words in (("peer", "GPU memory", "in each other's memory"),
                                      ("pinned", "pinned host memory", "through pinned host memory (rank 0 of rank 1: asked for"),
                                      ("auto-with-peers", "GPU memory", "in each other's memory")):
            done = self.over(plane)
            output = json.loads(done.stdout)
            self.assertEqual(output["digest"], want)
            self.assertEqual([(pair["reader"], pair["of"], pair["through"]) for pair in output["combine"]],
                             [(a, b, through) for a in range(3) for b in range(3) if a != b])
            self.assertEqual(json.loads((self.dir / output["dir"] / "run.json").read_text())["extra"]["combine"], output["combine"])
            told = self.events(output)
            self.assertEqual(len(told), 1, told)
            self.assertIn(f"3 workers sum by kernels, {words}", told[0])
            self.assertIn(told[0], done.stderr)

    def test_kills_inside_the_kernel_are_named_and_change_no_bit(self):
        want = self.quiet()
        done = self.over("peer", faults="peer-published rank=1 step=8 do=kill; peer-reduced rank=2 step=16 do=kill")
        output = json.loads(done.stdout)
        self.assertEqual(output["digest"], want)
        self.assertEqual(output["deaths"], 2, done.stderr)
        for rank in (1, 2):
            self.assertIn(f"rank {rank} (cpu:{rank}) was killed (SIGKILL)", done.stderr)
        lines = (self.dir / output["dir"] / "metrics.jsonl").read_text().splitlines()
        self.assertEqual([json.loads(line)["step"] for line in lines], list(range(1, STEPS + 1)), "every step once")

    def test_more_workers_than_a_kernel_sums_over_are_refused_before_any_begins(self):
        done = self.over("pinned", workers=17, code=2)
        self.assert_explains(done, "TANDEM_PLANE=pinned with 17 workers", "16 GPUs at most")

    def test_more_of_them_are_refused_to_join_and_the_run_goes_on(self):
        os.environ["TANDEM_PLANE"] = "pinned"
        self.addCleanup(os.environ.pop, "TANDEM_PLANE")
        process = self.start("train", "tiny", *QUICK, "--steps", 10 ** 7, "--devices", "cpu:2", "--run-dir", "run", "--json")
        self.addCleanup(lambda: process.poll() is None and process.kill())
        done = self.tandem("join", "run", "--devices", "cpu:15", code=None)
        self.assert_explains(done, "TANDEM_PLANE=pinned with 17 workers", "16 GPUs at most", "add at most 14")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
        self.assertEqual(process.returncode, 130, err)
        self.assertEqual(json.loads(out)["deaths"], 0, err)


if __name__ == "__main__":
    unittest.main()

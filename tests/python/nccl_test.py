"""Whole runs whose workers combine over NCCL: CPU workers, with libfake_nccl.so in its place (tests/fake_nccl.cc).

    python3 nccl_test.py <folder with tandem and tandem-worker> [unittest arguments]
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import unittest

from run_test import BIN, Case, QUICK, QUICK_RL, TANDEM  # noqa: E402  (takes the folder from the command line)

FAKE = BIN.parent / "tests" / "libfake_nccl.so"
JOBS = (("tiny", QUICK), ("tiny-rl", QUICK_RL))
STEPS = 40


class Runs(Case):
    _quiet = {}

    def quiet(self, recipe):
        """The digest of one worker that nobody disturbs."""
        if recipe not in Runs._quiet:
            Runs._quiet[recipe] = self.train(*dict(JOBS)[recipe], "--steps", STEPS, "--devices", "cpu:1", recipe=recipe)["digest"]
        return Runs._quiet[recipe]

    def over_nccl(self, recipe, *args, workers=3, code=0, plane="nccl", nccl="", faults="", frozen=60):
        return self.tandem(*self.line(recipe, workers), *args, code=code, env=self.planted(plane, nccl, faults, frozen))

    def line(self, recipe, workers=3):
        return ["train", recipe, *dict(JOBS)[recipe], "--steps", STEPS, "--json", "--devices", f"cpu:{workers}"]

    def planted(self, plane="nccl", nccl="", faults="", frozen=60):
        self.log = self.dir / "fake.log"
        self.log.unlink(missing_ok=True)
        return {"TANDEM_NCCL": str(FAKE), "TANDEM_PLANE": plane, "FAKE_NCCL": nccl, "FAKE_NCCL_LOG": str(self.log),
                "TANDEM_FAULT": faults, "TANDEM_FROZEN_SECONDS": str(frozen)}

    def logged(self, word):
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return sum(line.startswith(word) for line in lines)

    def assert_same(self, done, recipe):
        output = json.loads(done.stdout)
        self.assertEqual(output["digest"], self.quiet(recipe), done.stderr)
        lines = (pathlib.Path(output["dir"]) / "metrics.jsonl").read_text().splitlines()
        self.assertEqual([json.loads(line)["step"] for line in lines], list(range(1, STEPS + 1)), "every step once")
        return output

    def test_two_and_three_workers_have_the_bits_of_one(self):
        for recipe, _ in JOBS:
            for workers in (2, 3):
                self.assert_same(self.over_nccl(recipe, workers=workers), recipe)
                self.assertEqual(self.logged("form"), workers)
                self.assertGreaterEqual(self.logged("group"), workers * 2 * (STEPS - 2), "all but the first two steps")

    def test_a_kill_at_any_place_changes_no_bit(self):
        for recipe, _ in JOBS:
            for place in ("in-phase", "before-combine", "after-combine", "before-apply"):
                done = self.over_nccl(recipe, faults=f"{place} rank=1 step=20 do=kill")
                self.assertGreaterEqual(self.assert_same(done, recipe)["deaths"], 1)

    def test_a_death_in_the_middle_of_a_sum_changes_no_bit(self):
        done = self.over_nccl("tiny", nccl="dies-in-group rank=1 at=61")
        self.assertEqual(self.assert_same(done, "tiny")["deaths"], 1)
        self.assertEqual(self.logged("shrink"), 2)

    def test_a_survivor_that_had_not_begun_the_sum_lives_on(self):
        """Stopped before the sum in which rank 1 dies, and woken before rank 1's replacement is up."""
        env = self.planted(nccl="dies-in-group rank=1 at=61", faults="before-combine rank=2 step=32 do=stop")
        process = subprocess.Popen([TANDEM, *map(str, self.line("tiny"))], cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, env={**os.environ, "NO_COLOR": "1", **env}, stdin=subprocess.DEVNULL)
        self.addCleanup(process.stderr.close)
        self.wait_for(process, "rank 1 (cpu:1) was killed")
        os.kill(int(re.search(r"form ranks=3 rank=2 pid=(\d+)", self.log.read_text())[1]), signal.SIGCONT)
        stdout, stderr = process.communicate()
        output = self.assert_same(subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr), "tiny")
        self.assertEqual(output["deaths"], 1, stderr)

    def test_two_deaths_change_no_bit(self):
        done = self.over_nccl("tiny", faults="before-combine rank=1 step=12 do=kill; in-phase rank=2 step=13 do=kill")
        self.assertEqual(self.assert_same(done, "tiny")["deaths"], 2)

    def test_a_frozen_worker_is_replaced_and_the_others_leave_nccl(self):
        done = self.over_nccl("tiny", faults="before-combine rank=1 step=20 do=stop", frozen=2)
        self.assertGreaterEqual(self.assert_same(done, "tiny")["deaths"], 1)
        self.assertIn("rank 1 (cpu:1) was taken out", done.stderr)

    def test_a_hang_of_nccl_itself_is_ended_by_the_launcher(self):
        done = self.over_nccl("tiny", nccl="group-hangs rank=1 at=61", frozen=2)
        self.assertGreaterEqual(self.assert_same(done, "tiny")["deaths"], 1)

    def test_where_nccl_refuses_host_memory_is_used_and_the_reason_told_once(self):
        done = self.over_nccl("tiny", plane="auto", nccl="duplicate")
        self.assert_same(done, "tiny")
        self.assertEqual(done.stderr.count("the GPUs combine through host memory: NCCL refused"), 1, done.stderr)
        self.assertIn("Duplicate GPU detected", done.stderr)
        self.assertEqual(self.logged("group"), 0)

    def test_a_run_that_allows_nothing_but_nccl_ends_with_the_reason(self):
        done = self.over_nccl("tiny", nccl="duplicate", code=2)
        self.assertIn("Duplicate GPU detected", done.stdout + done.stderr)

    def test_a_plane_that_does_not_exist_is_refused(self):
        done = self.over_nccl("tiny", plane="ncll", code=2)
        self.assertIn("TANDEM_PLANE=ncll is not known", done.stdout + done.stderr)

    def test_host_memory_is_used_where_it_is_asked_for(self):
        self.assert_same(self.over_nccl("tiny", plane="host"), "tiny")
        self.assertEqual(self.logged("form"), 0)


if __name__ == "__main__":
    unittest.main()

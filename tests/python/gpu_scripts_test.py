"""The scripts that measure and test on GPUs, without one: they run, and they end what they started.

    python3 gpu_scripts_test.py <folder with tandem and tandem-worker> [unittest arguments]
"""
import argparse
import contextlib
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest

from run_test import BIN, Case  # noqa: E402  (takes the folder from the command line)

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "gpu"), str(ROOT / "bench")]
import gpu_runs  # noqa: E402
import peer_checks  # noqa: E402


class Scripts(Case):
    def test_make_builds_every_program_that_the_gpu_tests_run(self):
        targets = re.search(r"GPU_TARGETS := ((?:.*\\\n)*.*)", (ROOT / "Makefile").read_text())[1].replace("\\\n", " ").split()
        used = set()
        for script in (ROOT / "tests" / "gpu").glob("*.py"):
            text = script.read_text()
            used |= set(re.findall(r"c\.tests / ['\"](\w+)['\"]", text)) | set(re.findall(r"\"bench\" / \"(\w+)\"", text))
        used |= {"gpu_mixed_model", "shard_models"}  # Runs.program()
        self.assertGreater(len(used), 10)
        self.assertEqual(used - set(targets), set())

    def test_a_program_that_is_missing_is_one_failed_check(self):
        code, found, words = gpu_runs.lines_of(self.dir / "missing")
        self.assertEqual((code, found), (127, []))
        self.assertIn("No such file", words)

    def fleet(self, *more):
        return [sys.executable, ROOT / "bench" / "gpu_fleet.py", BIN, "--cpu", "--quick", "--work", "tiny", *map(str, more)]

    def test_the_fleet_keeps_what_it_has_measured_and_how_the_workers_combined(self):
        env = {**os.environ, "TMPDIR": str(self.dir)}
        done = subprocess.run(self.fleet("--workers", 1, 2, 17, "--plane", "pinned", "--steps", 20, "--json", self.dir / "rows.json"),
                              capture_output=True, text=True, env=env)
        self.assertEqual(done.returncode, 1, "17 workers are refused\n" + done.stderr)
        rows = json.loads((self.dir / "rows.json").read_text())["rows"]
        self.assertEqual(rows[0]["digest"], rows[1]["digest"])
        self.assertEqual({pair["through"] for pair in rows[1]["pairs"]}, {"pinned host memory"})
        self.assertIn("2 workers sum by kernels", done.stdout)
        self.assertIn("TANDEM_PLANE=pinned with 17 workers", rows[2]["trouble"])

    def test_a_killed_fleet_takes_its_run_with_it(self):
        env = {**os.environ, "TMPDIR": str(self.dir)}
        process = subprocess.Popen(self.fleet("--workers", 2, "--steps", 10 ** 6), env=env, stdout=subprocess.DEVNULL)
        while not (runs := list(self.dir.glob("tandem-bench-*/runs/*/run.json"))):
            self.assertIsNone(process.poll())
        children = [int(pid) for pid in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
        pidfds = [os.pidfd_open(pid) for pid in children]
        self.assertGreaterEqual(len(pidfds), 2, "the watcher and the run")
        process.send_signal(signal.SIGKILL)
        process.wait()
        for pidfd in pidfds:
            with self.subTest(pidfd=pidfd):
                select_until_ended(pidfd)

    def test_kills_and_freezes_are_counted_over_calls(self):
        peer_checks.workers_on_gpu = lambda count: f"cpu:{count}"
        peer_checks.FAULTS = {"tiny": ("tiny", ["--set", "samples=400", "--set", "hidden=16", "--batch-size", "48", "--steps", 250, "--checkpoint-every", "100"])}
        peer_checks.KILLS_PER_RUN = 1
        (self.dir / "earlier.json").write_text(json.dumps({"peer_faults": {"SIGKILL": 5, "SIGSTOP": 1}}))
        options = argparse.Namespace(minutes=5, kills=6, freezes=1, faults="only", so_far=self.dir / "earlier.json", out=self.dir / "out.json")
        checks = gpu_runs.Checks(BIN, BIN.parent / "tests", ["tiny"], options)
        with contextlib.redirect_stdout(io.StringIO()) as told:
            peer_checks.faults(checks)
        self.assertEqual(checks.failed, 0, told.getvalue())
        kept = json.loads(options.out.read_text())["peer_faults"]
        self.assertGreaterEqual(kept["SIGKILL"], 6, told.getvalue())
        self.assertEqual(kept["SIGSTOP"], 1)


def select_until_ended(pidfd):
    """A pidfd can be read once its process has ended."""
    import select
    select.select([pidfd], [], [])
    os.close(pidfd)


if __name__ == "__main__":
    unittest.main()

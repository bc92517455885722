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
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

from launched import processes_of
from run_test import BIN, QUICK, Case  # noqa: E402  (takes the folder from the command line)

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
        self.addCleanup(lambda: process.poll() is None and (process.kill(), process.wait()))
        end = time.monotonic() + 300
        below = {}
        while sum("tandem-worker" in line for _, line in below.values()) < 2:
            below = processes_of(process.pid)
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), end, "there are no workers")
            time.sleep(0.01)  # lint: allow(sleep) between two looks at a condition that has its own end
        pidfds = []
        for pid in below.keys() - {process.pid}:
            with contextlib.suppress(ProcessLookupError):
                pidfds.append(os.pidfd_open(pid))
        self.assertGreaterEqual(len(pidfds), 4, "the watcher, the run and its workers")
        process.send_signal(signal.SIGKILL)
        process.wait()
        for pidfd in pidfds:  # it can be read once its process has ended
            self.assertTrue(select.select([pidfd], [], [], 300)[0], below)
            os.close(pidfd)

    def test_kills_and_freezes_are_counted_over_calls(self):
        works = {"tiny": ("tiny", [*QUICK, "--steps", 1000, "--checkpoint-every", "250"])}  # live.json comes once a second
        (self.dir / "earlier.json").write_text(json.dumps({"peer_faults": {"SIGKILL": 5, "SIGSTOP": 1}}))
        options = argparse.Namespace(minutes=5, kills=6, freezes=1, faults="only", so_far=self.dir / "earlier.json", out=self.dir / "out.json")
        checks = gpu_runs.Checks(BIN, BIN.parent / "tests", ["tiny"], options)
        with (mock.patch.object(peer_checks, "workers_on_gpu", lambda count: f"cpu:{count}"), mock.patch.object(peer_checks, "FAULTS", works),
              mock.patch.object(peer_checks, "KILLS_PER_RUN", 1), contextlib.redirect_stdout(io.StringIO()) as told):
            peer_checks.faults(checks)
        self.assertEqual(checks.failed, 0, told.getvalue())
        kept = json.loads(options.out.read_text())["peer_faults"]
        self.assertGreaterEqual(kept["SIGKILL"], 6, told.getvalue())
        self.assertEqual(kept["SIGSTOP"], 1)

    def test_faults_are_tried_where_mps_does_not_start_and_too_few_of_them_are_a_failure(self):
        quick = {"tiny": ("tiny", [*QUICK, "--steps", 2])}
        options = argparse.Namespace(minutes=0, kills=1, freezes=0, faults=None, so_far=None, out=self.dir / "out.json")
        checks = gpu_runs.Checks(BIN, BIN.parent / "tests", ["tiny"], options)
        with (mock.patch.object(peer_checks, "workers_on_gpu", lambda count: f"cpu:{count}"), mock.patch.object(peer_checks, "FAULTS", quick),
              mock.patch.dict(os.environ, PATH=str(self.dir)), mock.patch.object(tempfile, "tempdir", str(self.dir)),
              contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as error):
            peer_checks.peers(checks)
        good = {check["name"]: check["ok"] for check in checks.results["checks"]}
        self.assertFalse(good["MPS starts"])
        self.assertIn("MPS does not start", error.getvalue())
        self.assertFalse(good["so many kills and freezes as were asked for"])
        self.assertEqual(list(self.dir.glob("tandem-mps-*")), [])


if __name__ == "__main__":
    unittest.main()

"""How a command is started and stopped: closed descriptors, early signals, limits, workers that hang in their start.

    python3 start_test.py <folder with tandem and tandem-worker> [unittest arguments]
"""
import contextlib
import fcntl
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import termios
import unittest

from fleet_test import Fleet, alive, children  # noqa: E402  (takes the folder from the command line)
from run_test import QUICK, TANDEM

TRAIN = ["train", "tiny", *QUICK, "--steps", "20", "--run-dir", "run"]


class Descriptors(Fleet):
    def closed(self, which, *args, code=0):
        """Runs a command with these redirections of the shell."""
        done = subprocess.run(["bash", "-c", f'exec "$@" {which}', "sh", TANDEM, *args], cwd=self.dir, capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def test_closed_descriptors_cost_no_run_and_nothing_is_written_in_its_lock(self):
        for which in (">&-", "<&- >&-", "<&- >&- 2>&-"):
            self.closed(which, *TRAIN, "--devices", "cpu:2", "--json")
            self.assertRegex((self.dir / "run/.lock").read_text(), r"\A[0-9]+\Z", which)
            self.assertEqual(json.loads(self.tandem("digest", "run", "--json").stdout)["digest"], self.quiet("tiny", 20))
            subprocess.run(["rm", "-rf", self.dir / "run"], check=True)

    def test_output_that_is_lost_is_told(self):
        self.assertIn("warning: standard output is closed", self.closed(">&-", *TRAIN, "--json").stderr)
        self.assertNotIn("standard output", self.closed(">&-", "resume", "run").stderr, "nothing was to be printed there")
        for args in (["version"], ["runs", "list"], ["digest", "run"], ["train", "--help"]):
            self.assert_explains(self.closed(">&-", *args, code=1), "standard output is closed")


class Signals(Fleet):
    def background(self, *args, env=None):
        process = subprocess.Popen([TANDEM, *args], cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, "NO_COLOR": "1", **(env or {})})
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_sigusr1_before_there_is_anything_to_save_ends_nothing(self):
        """The command is held in its start: it warns of two variables, and there is room for one warning."""
        read, write = os.pipe()
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
        names = {f"TANDEM_{letter * 3000}": "1" for letter in "XY"}
        process = subprocess.Popen([TANDEM, *TRAIN, "--json"], cwd=self.dir, stdout=subprocess.PIPE, stderr=write, text=True,
                                   env={**os.environ, "NO_COLOR": "1", **names})
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        os.close(write)
        said = lambda: struct.unpack("i", fcntl.ioctl(read, termios.FIONREAD, b"\0" * 4))[0]
        self.wait_until(said)
        self.assertFalse((self.dir / "run").exists(), "it is held before there is anything to save")
        process.send_signal(signal.SIGUSR1)
        with open(read) as rest:
            err = rest.read()
        self.assertEqual(process.wait(), 0, err[-300:])
        self.assertEqual(json.loads(process.stdout.read())["digest"], self.quiet("tiny", 20))

    def test_a_limit_of_file_sizes_is_told(self):
        done = subprocess.run(["bash", "-c", 'ulimit -f 64; exec "$@"', "sh", TANDEM, *TRAIN], cwd=self.dir, capture_output=True, text=True)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assert_explains(done, "File too large", "ulimit -f")

    def hang(self, *ranks):
        """A run whose workers of these ranks have stopped in their start."""
        faults = ";".join(f"start rank={rank} do=stop" for rank in ranks)
        process = self.background(*TRAIN, "--devices", "cpu:2", "--json", env={"TANDEM_FAULT": faults})

        def stopped():
            states = []
            for pid in children(process.pid):
                with contextlib.suppress(OSError):  # it is gone again
                    states.append(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0])
            return states.count("T") == len(ranks)

        self.wait_until(stopped)
        return process, children(process.pid)

    def test_a_stop_is_heeded_while_workers_hang_in_their_start(self):
        for ranks in ((0, 1), (1,)):
            process, workers = self.hang(*ranks)
            if len(ranks) == 1:  # the other one is up and waits
                self.wait_until(lambda: (self.dir / "run/metrics.jsonl").exists())
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=600)
            self.assertEqual(process.returncode, 143, err)
            self.assertIn("training has not begun", err)
            output = json.loads(out)
            self.assertEqual((output["status"], output["step"]), ("stopped", 0))
            self.assertFalse([pid for pid in workers if alive(pid)])
            self.assertEqual(json.loads((self.dir / "run/run.json").read_text())["status"], "stopped")
            rest = json.loads(self.tandem("resume", "run", "--json").stdout)
            self.assertEqual(rest["digest"], self.quiet("tiny", 20))
            subprocess.run(["rm", "-rf", self.dir / "run"], check=True)

    def test_a_stop_is_heeded_while_replacements_hang_in_their_start(self):
        """What the loader of every new process opens first becomes a pipe that nobody writes to."""
        for devices, checkpoints in (("cpu:1", ["--checkpoint-every", "5 steps"]), ("cpu:2", ["--checkpoint-every", "5 steps"]), ("cpu:2", [])):
            gate = self.dir / "gate.so"
            process = self.background(*TRAIN[:-4], "--steps", "100000000", "--run-dir", "run", "--devices", devices, *checkpoints, "--json",
                                      env={"LD_PRELOAD": str(gate)})
            self.wait_until(lambda: (self.dir / "run/metrics.jsonl").exists() and (self.dir / "run/metrics.jsonl").stat().st_size)
            self.wait_until(lambda: not checkpoints or list((self.dir / "run/checkpoints").glob("step-*")))
            os.mkfifo(gate)
            workers = children(process.pid)
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
            for _ in workers:
                self.wait_for(process, "a replacement is on its way")
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=600)
            self.assertEqual(process.returncode, 143, err)
            self.assertIn("stopping: no worker is up", err)
            self.assertEqual(json.loads(out)["status"], "stopped")
            gate.unlink()
            steps = json.loads(out)["step"] + 10
            rest = json.loads(self.tandem("resume", "run", "--steps", steps, "--json").stdout)
            self.assertEqual((rest["status"], rest["step"]), ("done", steps))
            subprocess.run(["rm", "-rf", self.dir / "run"], check=True)

    def test_how_long_a_worker_made_no_progress_is_told_as_it_was(self):
        self.set_environment(TANDEM_FROZEN_SECONDS="3")
        process, _ = self.hang(1)
        line = self.wait_for(process, "rank 1 (cpu:1) was taken out")
        self.assertLess(int(re.search(r"no progress for (\d+) s \(the process is stopped\)", line)[1]), 100, "not the 300 s of a start")
        self.assert_ends_as(process, "tiny", 20, deaths=1)

    def test_a_launcher_killed_in_its_start_does_not_keep_the_run(self):
        for _ in range(3):
            process = self.background(*TRAIN, "--devices", "cpu:2")
            self.wait_until(lambda: children(process.pid))  # forked, perhaps not yet begun
            process.kill()  # nobody waits for it yet: a dead process all the same
            rest = json.loads(self.tandem("resume", "run", "--json").stdout)
            self.assertEqual(rest["digest"], self.quiet("tiny", 20))
            self.assertFalse(list((self.dir / "run").glob(".tmp-*")))
            process.communicate()
            subprocess.run(["rm", "-rf", self.dir / "run"], check=True)


if __name__ == "__main__":
    unittest.main()

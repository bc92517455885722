"""A phase that takes longer than the watch for frozen workers waits: who says that it is alive is left alone.

    python3 long_phase_test.py <folder with tandem and tandem-worker> [unittest arguments]

Nobody waits for a time: the phase that says that it is alive lasts until the watch has taken out the worker whose phase
began with it and says nothing (tests/long_phase_program.cc).
"""
import json
import unittest

import run_test
from run_test import BIN, Case  # noqa: E402  (takes the folder from the command line)

run_test.TANDEM = BIN.parent / "tests" / "long_phase"
LIMIT = 3  # seconds


class Stalls(Case):
    def train_long(self, *args, **env):
        done = self.tandem("train", "long-phase", "--devices", "cpu:2", "--json", *args, env=env)
        return json.loads(done.stdout), done.stderr

    def test_a_long_phase_that_says_it_is_alive_is_left_alone_and_one_that_does_not_is_taken_out(self):
        quiet, _ = self.train_long()
        output, said = self.train_long("--set", "long_step=8", TANDEM_FROZEN_SECONDS=str(LIMIT))
        self.assertRegex(said, rf"rank 1 \(cpu:1\) was taken out: no progress for {LIMIT} s in phase 'learn' of step 9")
        self.assertNotIn("rank 0 (cpu:0) was taken out", said)
        self.assertEqual((output["frozen"], output["deaths"]), (1, 1), said)
        self.assert_bits(output["digest"], quiet["digest"], said)


if __name__ == "__main__":
    unittest.main()

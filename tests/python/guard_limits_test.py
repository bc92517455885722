"""Whatever happens to the guard, limits and fans of a fake machine are as they were (guarded.py).

    python3 guard_limits_test.py <folder with tandem and tandem-worker> [unittest arguments]
"""
import fcntl
import json
import os
import pathlib
import resource
import signal
import time
import unittest

from guarded import HOT, Machine  # noqa: E402  (takes the folder from the command line)


class Limits(Machine):
    """Whatever happens to the guard, limits and fans are as they were."""

    def borrowed(self):
        self.play(gpus=[HOT])
        guard = self.begin("guard", "--power", "80%")
        self.until(lambda: self.limit() == 176)
        self.assertEqual(self.fan(), 100)
        self.assertEqual(len(self.records()), 1)
        return guard

    def assert_given_back(self):
        self.until(lambda: self.limit() == 220 and self.fan() == -1 and not self.records())

    def test_after_kill_9(self):
        guard = self.borrowed()
        guard.kill()
        guard.wait()
        self.assert_given_back()

    def test_after_sigterm_and_ctrl_c(self):
        for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            guard = self.borrowed()
            guard.send_signal(number)
            self.assertEqual(guard.wait(), code)
            self.assertEqual((self.limit(), self.fan(), self.records()), (220, -1, []), "before it ends")
            pathlib.Path(f"{self.script}.state").unlink()

    def test_a_watchdog_that_is_killed_is_started_again(self):
        guard = self.borrowed()
        first = self.watchdog_of(guard.pid)
        os.kill(first, signal.SIGKILL)
        second = self.until(lambda: (found := self.watchdog_of(guard.pid)) != first and found)
        self.assertNotEqual(first, second)
        guard.kill()
        guard.wait()
        self.assert_given_back()

    def test_after_both_are_killed_restore_puts_them_back(self):
        guard = self.borrowed()
        self.kill_both(guard)
        self.assertEqual(self.limit(), 176)
        self.assertIn("220 W again", self.say("guard", "restore").stderr)
        self.assert_given_back()

    def test_the_next_guard_puts_back_what_a_dead_one_left(self):
        guard = self.borrowed()
        self.kill_both(guard)
        self.say("guard", "--for", "1s", "--target", "100")
        self.assertEqual((self.limit(), self.records()), (220, []))

    def test_a_limit_that_somebody_else_changed_is_left_alone(self):
        guard = self.borrowed()
        self.somebody_sets(0, 150)
        guard.kill()
        guard.wait()
        self.until(lambda: not self.records())
        self.assertEqual((self.limit(), self.fan()), (150, -1))

    def test_a_guard_that_may_not_restore_keeps_the_record(self):
        self.kill_both(self.borrowed())
        before = self.records()[0].read_text()
        self.play(gpus=[HOT], power_permission=False, fan_permission=False)
        output = self.say("guard", "--power", "80%", "--for", "40s").stderr
        self.assertIn("could not be put back", output)
        self.assertEqual(self.records()[0].read_text(), before)
        self.play(gpus=[HOT])
        self.say("guard", "restore")
        self.assert_given_back()

    def test_a_kept_limit_outlives_a_guard_that_died_over_it(self):
        self.play(gpus=[HOT])
        self.say("guard", "set", "0=200W")
        first = self.begin("guard", "--power", "80%")
        self.until(lambda: self.limit() == 160)
        second = self.begin("guard", "--power", "80%")
        self.wait_for(second, "another guard holds this GPU")
        self.kill_both(first)
        self.until(lambda: self.limit() == 160 and self.record()["pid"] == second.pid)
        self.ended(second)
        self.assertEqual((self.limit(), self.record()["found_w"]), (200, 220))
        self.say("guard", "restore")
        self.assertEqual(self.limit(), 220)

    def test_a_watchdog_that_could_not_be_started_is_tried_again(self):
        self.play(gpus=[{**HOT, "fans": 0}])
        guard = self.begin("guard", "--power", "50%")
        self.until(lambda: self.limit() == 198)
        resource.prlimit(guard.pid, resource.RLIMIT_NOFILE, (3, 1024))
        os.kill(self.watchdog_of(guard.pid), signal.SIGKILL)
        self.wait_for(guard, "could not start the guard's watchdog")
        self.assertEqual(self.limit(), 198)
        resource.prlimit(guard.pid, resource.RLIMIT_NOFILE, (1024, 1024))
        self.wait_for(guard, "watchdog is there again")
        guard.kill()
        guard.wait()
        self.assert_given_back()

    def test_what_could_not_be_given_back_is_said(self):
        self.play(gpus=[HOT], events=[{"at": 60, "gpu": 0, "lost": True}])
        guard = self.begin("guard", "--power", "80%")
        self.wait_for(guard, "is gone")
        output = self.ended(guard)
        self.assertIn("NOT all limits and fans", output)
        self.assertIn("sudo nvidia-smi -i 0 -pl 220", output)
        self.assertEqual(len(self.records()), 1)

    def test_fans_that_could_not_be_given_back_are_not_raised(self):
        for function, code in (("nvmlDeviceSetDefaultFanSpeed_v2", 3), ("nvmlDeviceGetNumFans", 999)):
            self.play(gpus=[{**HOT, "fans": 2}], refuse={function: code})
            self.say("guard", "--for", "20s")
            self.assertEqual((self.fan(), self.records()), (-1, []), function)

    def test_fans_that_somebody_set_are_given_back_to_that(self):
        self.play(gpus=[HOT])
        self.say("guard", "status")
        self.somebody_sets_fan(0, 60)
        guard = self.begin("guard")
        self.until(lambda: self.fan() == 100)
        self.ended(guard)
        self.assertEqual((self.fan(), self.records()), (60, []))

    def test_what_somebody_set_before_the_first_step_is_given_back(self):
        def attempt(number):  # 4, 16, 64 s between the fan and the first step: somebody must be in time on a busy machine
            self.another_machine(number)
            self.play(speed=4 / 4 ** number, gpus=[HOT])
            guard = self.begin("guard", "--power", "80%")
            self.until(lambda: self.fan() == 100)
            self.somebody_sets(0, 200)
            self.until(lambda: self.limit() < 200)
            self.assertNotIn("somebody else", self.ended(guard))
            self.assertEqual((self.limit(), self.fan(), self.records()), (200, -1, []))

        self.again(attempt)

    def test_another_guards_record_does_not_hold_up_the_end(self):
        other, took = self.state / "guard" / "GPU-other", []
        while not took or (min(took) > 0.9 and len(took) < 6):  # held up, each takes a second or more; a busy machine holds up some
            self.play(gpus=[HOT])
            guard = self.begin("guard")
            self.until(lambda: self.fan() == 100)
            watchdog = self.watchdog_of(guard.pid)
            mine = next(path for path in self.records() if path.stem != other.name)
            other.with_suffix(".json").write_text(json.dumps({**json.loads(mine.read_text()), "uuid": other.name, "pid": 1}))
            with other.with_suffix(".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                begun = time.monotonic()
                self.ended(guard)
                self.until(lambda: not pathlib.Path(f"/proc/{watchdog}").exists())
                took.append(time.monotonic() - begun)
            other.with_suffix(".json").unlink()
            pathlib.Path(f"{self.script}.state").unlink()
        self.assertLess(min(took), 0.9)

    def test_a_guard_that_waited_for_another_acts_when_that_has_ended(self):
        first = self.borrowed()
        second = self.begin("guard", "--power", "80%")
        self.wait_for(second, "another guard holds this GPU")
        self.ended(first)
        self.assertEqual(self.limit(), 220)
        self.until(lambda: self.limit() == 176)
        self.ended(second)
        self.assert_given_back()

    def test_only_one_guard_holds_a_gpu(self):
        self.borrowed()
        status = json.loads(self.say("guard", "status", "--json").stdout)
        self.assertTrue(status["records"][0]["held"])
        self.assert_explains(self.say("guard", "set", "0=200W", code=1), "holds this GPU")
        self.assertIn("held by a guard that is alive", self.say("guard", "restore", code=1).stderr)


if __name__ == "__main__":
    unittest.main()

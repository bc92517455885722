"""What the tests of the guard share: a machine that tests/fake_nvml.cc simulates (docs/testing.md).

Its time and the guard's run SPEED times as fast as ours. Waiting is done on what a program prints, on its end, or on what
the machine's state says, never on time.
"""
import contextlib
import fcntl
import json
import os
import pathlib
import re
import signal
import subprocess
import time

from run_test import BIN, TANDEM, Case  # noqa: E402  (takes the folder from the command line)

SPEED = 10
FAKE = BIN.parent / "tests" / "libfake_nvml.so"
HOT = {"card": "3070", "temperature": [[0, 92], [100000, 92]], "load": 1}
SLOW = "cpu:3@0.1,0.1,0.1"


class Machine(Case):
    def setUp(self):
        super().setUp()
        self.script = self.dir / "machine.json"
        self.state = self.dir / "state"

    def play(self, speed=SPEED, stepped=False, **script):
        """Stepped: the machine stands still until at() moves it; the guard's own time goes on."""
        self.script.write_text(json.dumps({"clock": {"stepped": True} if stepped else {"speed": speed}, **script}))
        self.at(0)
        self.env = {"TANDEM_NVML": str(FAKE), "FAKE_NVML_SCRIPT": str(self.script), "TANDEM_STATE_DIR": str(self.state),
                    "TANDEM_GUARD_SPEED": str(speed), "TANDEM_GUARD_CPU_SLOTS": "1"}

    def at(self, seconds):
        beside = self.dir / "clock.new"
        beside.write_text(f"{seconds}\n")
        beside.rename(f"{self.script}.clock")

    def say(self, *args, code=0):
        return self.tandem(*args, code=code, env=self.env)

    def begin(self, *args):
        process = subprocess.Popen([TANDEM, *map(str, args)], cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, env={**os.environ, "NO_COLOR": "1", **self.env}, stdin=subprocess.DEVNULL)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(lambda: process.poll() is None and (process.kill(), process.wait()))
        return process

    def until(self, what, seconds=600):
        end = time.monotonic() + seconds
        while not (found := what()):
            self.assertLess(time.monotonic(), end, "it never happened")
            time.sleep(0.005)  # lint: allow(sleep) between two looks at a condition that has its own end
        return found

    def said_until(self, process, word):
        """What it says up to this."""
        said = ""
        for line in process.stderr:
            said += line
            if word in line:
                return said
        self.fail(f"it ended before it said '{word}':\n{said}")

    def another_machine(self, number):
        """For a further try: nothing is left of the machine before."""
        self.script, self.state = self.dir / f"machine-{number}.json", self.dir / f"state-{number}"

    def gpus(self):
        return json.loads(pathlib.Path(f"{self.script}.state").read_text())["gpus"]

    def limit(self, gpu=0):
        with contextlib.suppress(OSError, ValueError):
            return self.gpus()[gpu]["power_limit_w"]

    def fan(self, gpu=0):
        with contextlib.suppress(OSError, ValueError):
            return self.gpus()[gpu]["fan_percent"]

    def orders(self):
        log = pathlib.Path(f"{self.script}.log")
        return re.findall(r"(power_limit|fan) gpu=(\d) value=(-?\d+)", log.read_text()) if log.exists() else []

    def somebody_sets(self, gpu, watts, **more):
        state = pathlib.Path(f"{self.script}.state")
        with open(f"{self.script}.lock", "a") as lock:  # the machine's own: no order is lost in between
            fcntl.flock(lock, fcntl.LOCK_EX)
            whole = json.loads(state.read_text())
            whole["gpus"][gpu].update(power_limit_w=watts, **more)
            beside = state.with_suffix(".other")
            beside.write_text(json.dumps(whole))
            beside.rename(state)

    def somebody_sets_fan(self, gpu, percent):
        self.somebody_sets(gpu, self.limit(gpu), fan_percent=percent)

    def kill_both(self, guard):
        """The guard and its watchdog, so that nobody puts anything back."""
        watchdog = self.watchdog_of(guard.pid)
        os.kill(guard.pid, signal.SIGSTOP)  # so that it can't start another one
        os.kill(watchdog, signal.SIGKILL)
        guard.kill()
        guard.wait()

    def record(self):
        return json.loads(self.records()[0].read_text())

    def ended(self, guard, number=signal.SIGINT):
        guard.send_signal(number)
        return guard.communicate()[1]

    def records(self):
        return list((self.state / "guard").glob("*.json"))

    def watchdog_of(self, pid):
        def look():
            for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    if b"__guard-watchdog\0" + str(self.state / "guard").encode() in path.read_bytes():
                        return int(path.parent.name)
        return self.until(look)

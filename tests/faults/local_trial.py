"""A trial on one machine: workers killed, frozen, joined and let go; Ctrl-C or kill -9 of the launcher and a resume."""
import json
import signal
import subprocess
import threading

from trial import POINTS, STEPS, Failure, Trial, wait_until_gone, workers_of


class LocalTrial(Trial):
    def harm(self, process, ended):
        """Signals and requests at random moments while the run goes on."""
        for _ in range(0 if self.gentle else self.random.choice([0, 1, 1, 2])):
            if ended.wait(self.random.uniform(0.05, 1.2)):
                return
            self.harmed = True
            what = self.random.random()
            workers = workers_of(process.pid)
            if what < 0.6 and workers:
                number = self.random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV])
                victims = self.random.sample(workers, min(len(workers), self.random.choice([1, 1, 1, 2])))
                self.tell(f"{number.name} to {victims}")
                self.send(number, victims)
            elif what < 0.75:
                self.ask("join", "run", "--devices", "cpu:1")
            elif what < 0.85:
                self.ask("leave", "run", "--rank", str(self.random.randrange(5)))
            elif what < 0.93:
                self.tell("SIGINT to the launcher")
                process.send_signal(signal.SIGINT)
            else:
                self.tell("SIGKILL to the launcher")
                process.kill()

    def ask(self, *words):
        done = subprocess.run([self.options.tandem, *words], cwd=self.dir, capture_output=True, text=True,
                              env=self.environment())
        self.tell(f"{' '.join(words)}: {done.returncode} {(done.stdout + done.stderr).splitlines()[:1]}")

    def run(self):
        for attempt in range(12):
            count = self.random.randint(1, 5)
            devices = self.devices(count)
            faults = self.planted(count) if attempt < 3 else ""
            words = [*self.words(self.there_is_a_run()), "--steps", str(STEPS), "--devices", devices, "--json",
                     "--checkpoint-every", self.random.choice(["auto", "7 steps", "1s"])]
            self.sums["resumed"] += words[0] == "resume"
            self.tell(f"{' '.join(words)}   TANDEM_FAULT='{faults}'")
            process = subprocess.Popen([self.options.tandem, *words], cwd=self.dir, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True,
                                       env=self.environment(TANDEM_FAULT=faults, TANDEM_FROZEN_SECONDS="2"))
            ended = threading.Event()
            harm = threading.Thread(target=self.harm, args=(process, ended)) if attempt < 4 else None
            if harm:
                harm.start()
            try:
                out, err = process.communicate(timeout=self.options.patience)
            except subprocess.TimeoutExpired:
                self.hangs()
            finally:
                ended.set()
                if harm:
                    harm.join()
            self.tell(f"exit {process.returncode}: {err[-1500:]}")
            wait_until_gone(self.mark)
            if left := self.left_behind():
                raise Failure(f"left behind: {left}")
            if process.returncode == 0:
                return self.judge(json.loads(out))
            if process.returncode not in (130, -9, 6, 1, 4):
                raise Failure(f"exit {process.returncode}")
            if process.returncode in (1, 4, 6):  # a run may end for good only where a fault strikes again and again
                self.sums["ended"] += 1
                if not (faults or self.harmed):
                    raise Failure(f"exit {process.returncode} without a fault")
        raise Failure("never came to an end")


class NcclTrial(LocalTrial):
    """The same over a stand-in for NCCL (tests/fake_nccl.cc), at once or as it gets ready."""

    def environment(self, **more):
        library = self.options.bin.resolve().parent / "tests" / "libfake_nccl.so"
        return super().environment(TANDEM_NCCL=str(library), TANDEM_PLANE=["auto", "nccl"][self.number % 2], **more)


class PeerTrial(LocalTrial):
    """Sums by kernels that read each other's memory, on CPU workers: the kernels' twins."""
    points = [*POINTS, "peer-shown", "peer-published", "peer-added", "peer-reduced"]

    def environment(self, **more):
        return super().environment(TANDEM_PLANE=["peer", "pinned", "auto-with-peers"][self.number % 3], **more)

"""A trial over the network: plain ranks, each a supervisor with one worker; workers and supervisors are harmed.

A lost worker is replaced. A lost or stopped supervisor ends the run with a code, and another number of ranks, or one
`tandem resume`, goes on with it. join and leave are refused there, so they are not tried.
"""
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from ports import lease_ports  # noqa: E402  (beside the tests of launchers, which run at the same time)
from trial import STEPS, Failure, Trial, wait_until_gone, workers_of

JOIN_SECONDS = 20
START_FOLDER = re.compile(r"^tandem-(seat|start)-")


@dataclasses.dataclass
class Harm:
    """One signal at one moment, drawn before the run begins: a trial is a function of its number."""
    seconds: float | None  # after the start; otherwise at `part` of the steps that remain
    part: float
    number: signal.Signals
    whom: str  # workers, supervisors
    picks: list


class NetTrial(Trial):
    def draw_harms(self, size):
        chance, harms = self.random, []
        for _ in range(0 if self.gentle else chance.choice([0, 1, 1, 2])):
            harm = Harm(chance.uniform(0.05, 1.2) if chance.random() < 0.3 else None, chance.uniform(0, 0.95),
                        chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV]), "workers",
                        chance.sample(range(4), chance.choice([1, 1, 1, 2])))
            what = chance.random()
            if what >= 0.65:
                harm.whom = "supervisors"
                harm.number = signal.SIGTERM if what < 0.77 else signal.SIGKILL
                harm.picks = (list(range(size)) if what < 0.70 else  # as torchrun does
                              [0] if what >= 0.92 else [chance.randrange(size)])
            harms.append(harm)
        return harms

    def recorded(self):
        with contextlib.suppress(OSError):
            path = self.dir / "run/metrics.jsonl"
            return path.stat().st_mtime_ns, path.read_text().count("\n")
        return 0, 0

    def wait_for(self, harm, before, ended):
        """True: the moment has come. False: the run ended."""
        if harm.seconds is not None:
            return not ended.wait(harm.seconds)
        target = None
        while not ended.wait(0.005):
            time_of, steps = self.recorded()
            if time_of == before:
                continue  # not yet touched by this run
            target = target or steps + int(harm.part * (STEPS - steps))
            if steps >= target:
                return True
        return False

    def harm(self, ranks, harms, before, ended, sent):
        for harm in harms:
            if not self.wait_for(harm, before, ended):
                return
            self.tell(f"{harm.number.name} to {harm.whom} {harm.picks} after step {self.recorded()[1]}")
            if harm.whom == "workers":
                workers = [pid for rank in ranks for pid in workers_of(rank.pid)]
                self.send(harm.number, {workers[pick % len(workers)] for pick in harm.picks} if workers else set())
            for pick in harm.picks if harm.whom == "supervisors" else []:
                self.harmed = True
                sent.add((harm.number, pick))
                ranks[pick].send_signal(harm.number)

    def start(self, words, size, faults, more):
        """The ranks; without ranks (size 0) one program on this machine."""
        port = lease_ports()
        ranks = []
        for rank in range(max(size, 1)):
            own = dict(TANDEM_FAULT=faults, TANDEM_FROZEN_SECONDS="2", TANDEM_JOIN_SECONDS=str(JOIN_SECONDS),
                       TANDEM_SECRET_FILE=str(self.dir / "secret"))
            if size:
                own |= dict(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1",
                            MASTER_PORT=str(port), **more)
            program = self.options.bin.resolve() / "tandem-worker" if size else self.options.tandem
            with open(self.dir / f"{rank}.out", "w") as out, open(self.dir / f"{rank}.err", "w") as err:
                ranks.append(subprocess.Popen([program, *words], cwd=self.dir, stdout=out, stderr=err,
                                              stdin=subprocess.DEVNULL, env=self.environment(**own)))
        return ranks

    def text(self, rank, which="err"):
        return (self.dir / f"{rank}.{which}").read_text()

    def wait_for_end(self, ranks):
        end = time.monotonic() + self.options.patience
        try:
            return [rank.wait(max(0.0, end - time.monotonic())) for rank in ranks]
        except subprocess.TimeoutExpired:
            self.tell(f"codes so far {[rank.poll() for rank in ranks]}; rank 0 said: {self.text(0)[-1500:]}")
            self.hangs()

    def check_codes(self, codes, faults, sent):
        """All end with rank 0's code, and that is one that what was done to them explains."""
        first = codes[0]
        killed = {rank for number, rank in sent if number == signal.SIGKILL}
        stopped = {rank for number, rank in sent if number == signal.SIGTERM}
        right = {0} | ({1, 4, 6} if faults or self.harmed else set()) | ({2} if killed | stopped else set())
        right |= ({143} if stopped else set()) | ({-15} if 0 in stopped else set())
        right |= {-9} if 0 in killed or "rank=-1" in faults else set()
        if first not in right or (first == 2 and "did not come within" not in self.text(0)):
            raise Failure(f"rank 0 ended with {first}")
        for rank, code in enumerate(codes):
            mine = {first} if first >= 0 else {6, 2}
            mine |= ({-9} if rank in killed else set()) | ({-15} if rank in stopped else set())
            if rank and code not in mine:
                raise Failure(f"rank {rank} ended with {code}, rank 0 with {first}: {self.text(rank)[-500:]}")
        self.sums["ended"] += first in (1, 4) or (first == 6 and not sent)

    def check_files(self, sent):
        """A supervisor that was killed -9 may leave its folder, for now: counted apart."""
        left = self.left_behind()
        killed = len({rank for number, rank in sent if number == signal.SIGKILL and rank > 0})
        if len(left) > killed or (left and self.options.strict) or any(not START_FOLDER.match(path.name) for path in left):
            raise Failure(f"left behind: {left}")
        for path in left:
            self.sums["leftovers"] += 1
            shutil.rmtree(path)

    def attempt(self, nth):
        """One start; what rank 0 told at its end, or None."""
        self.random = random.Random(f"net {self.options.recipe} {self.options.seed} {self.number} {nth}")
        there = self.there_is_a_run()
        size = self.random.randint(1, 4)
        again = self.random.random()
        alone = there and again < 0.3
        restarted = there and again > 0.75 and size > 1  # by its launcher, with the same words: `train` goes on with the run
        faults = self.planted(size) if nth < 3 else ""
        harms = self.draw_harms(1 if alone else size) if nth < 4 else []
        words = [*self.words(there and not restarted), "--steps", str(STEPS), "--devices", self.devices(size), "--json",
                 "--checkpoint-every", self.random.choice(["auto", "7 steps", "1s"])]
        self.sums["resumed"] += there
        start = "alone" if alone else f"{size} ranks{' again' if restarted else ''}"
        self.tell(f"{start}: {' '.join(words)}   TANDEM_FAULT='{faults}'")
        before, ended, sent = self.recorded()[0], threading.Event(), set()
        self.harmed = False
        ranks = self.start(words, 0 if alone else size, faults, {"TORCHELASTIC_RESTART_COUNT": "1"} if restarted else {})
        harm = threading.Thread(target=self.harm, args=(ranks, harms, before, ended, sent))
        harm.start()
        try:
            codes = self.wait_for_end(ranks)
        finally:
            ended.set()
            harm.join()
        self.tell(f"exits {codes}: {self.text(0)[-1500:]}")
        wait_until_gone(self.mark)
        self.check_files(sent)
        self.check_codes(codes, faults, sent)
        output = [json.loads(line) for line in self.text(0, "out").splitlines() if line.startswith('{"')]
        if codes[0] == 0:
            return output[0]
        for words in output:
            self.count(words)
        return None

    def run(self):
        with open(os.open(self.dir / "secret", os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(f"{random.Random(self.mark).getrandbits(256):064x}")
        for nth in range(12):
            if output := self.attempt(nth):
                return self.judge(output)
        raise Failure("never came to an end")

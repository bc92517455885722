"""What the tests of runs under other launchers share: ranks as processes with plain variables, and what they left."""
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import time

from ports import lease_ports
from run_test import BIN, TANDEM, Case, QUICK, QUICK_RL  # noqa: F401  (takes the folder from the command line)

WORKER = BIN / "tandem-worker"
JOBS = (("tiny", QUICK), ("tiny-rl", QUICK_RL))
ENDLESS = 10000000  # steps of a run that the test stops: however busy the machine, the run does not end first
NAMES = re.compile(r"^(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|MASTER_|SLURM_|OMPI_|PMI|TORCHELASTIC|TANDEM_)")


def clean_environment(**more):
    return {**{k: v for k, v in os.environ.items() if not NAMES.match(k)}, "NO_COLOR": "1", "TANDEM_JOIN_SECONDS": "300",
            "TANDEM_FROZEN_SECONDS": "60", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **more}


def processes_of(root):
    """pid -> (parent, command line) of everything below `root`."""
    tree = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rsplit(")", 1)[1].split()
            line = (stat.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            tree[int(stat.parent.name)] = (int(fields[1]), line, fields[0])
    below, found = {root}, {}
    for _ in range(20):
        more = {pid for pid, (parent, _, _) in tree.items() if parent in below} - below
        if not more:
            break
        below |= more
    for pid in below:
        if pid in tree and tree[pid][2] != "Z":
            found[pid] = tree[pid][:2]
    return found


class Launched(Case):
    _quiet = {}

    def setUp(self):
        super().setUp()
        self.spawned = []

    def quiet(self, recipe, steps):
        """The digest of one worker that nobody disturbs."""
        if (recipe, steps) not in Launched._quiet:
            run = self.train(*dict(JOBS)[recipe], "--steps", steps, "--devices", "cpu:1", recipe=recipe)
            Launched._quiet[recipe, steps] = run["digest"]
        return Launched._quiet[recipe, steps]

    def arguments(self, recipe, steps, *more):
        return ["train", recipe, *dict(JOBS)[recipe], "--steps", str(steps), "--json", *map(str, more)]

    def spawn(self, command, env, name="out"):
        out, err = open(self.dir / f"{name}.out", "w+"), open(self.dir / f"{name}.err", "w+")
        process = subprocess.Popen([str(c) for c in command], cwd=self.dir, stdout=out, stderr=err, env=env,
                                   stdin=subprocess.DEVNULL, start_new_session=True)
        process.texts, process.name = (out, err), name
        self.spawned.append(process)
        self.addCleanup(self.put_away, process)
        return process

    def put_away(self, process):
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for file in process.texts:
            file.close()

    def text(self, process, which=1):
        process.texts[which].seek(0)
        return process.texts[which].read()

    def all_said(self):
        """What every process still open said and how it stands: one that waits in vain rarely knows why."""
        return "\n".join(f"---- {one.name}, code {one.poll()}\n{self.text(one, 0)}{self.text(one)}"
                         for one in self.spawned if not one.texts[0].closed)

    def end(self, process, code=0, seconds=600):
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.fail(f"{process.name} did not end:\n{self.all_said()}")
        if code is not None and process.returncode != code:
            self.fail(f"{process.name} ended with {process.returncode}, not {code}:\n{self.all_said()}")
        return self.text(process)

    def output(self, process):
        lines = [line for line in self.text(process, 0).splitlines() if line.startswith('{"') and '"error"' not in line]
        self.assertEqual(len(lines), 1, f"one object from rank 0 alone:\n{self.text(process, 0)}\n{self.text(process)}")
        return json.loads(lines[0])

    def wait_until(self, what, seconds=600):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = what()
            if found:
                return found
            time.sleep(0.02)  # lint: allow(sleep) between two looks at a condition that has its own end
        self.fail("it never happened")

    def wait_for_step(self, run_dir, step):
        def there():
            try:
                lines = (self.dir / run_dir / "metrics.jsonl").read_text().splitlines()
                return lines and json.loads(lines[-1])["step"] >= step
            except (OSError, json.JSONDecodeError):
                return False
        self.wait_until(there)

    def assert_same(self, output, recipe, steps):
        self.assertEqual(output["digest"], self.quiet(recipe, steps))
        lines = (pathlib.Path(output["dir"]) / "metrics.jsonl").read_text().splitlines()
        recorded = [json.loads(line)["step"] for line in lines]
        # A stop after a death went back may come before the steps that were recorded already; a resume cuts them off.
        self.assertGreaterEqual(len(recorded), steps)
        self.assertEqual(recorded, list(range(1, len(recorded) + 1)), "every step once")

    def assert_stops_as(self, ranks, recipe):
        """Ranks without an end, stopped now by rank 0: they have the digest of one worker after as many steps."""
        ranks[0].send_signal(signal.SIGTERM)
        for rank in ranks:
            self.end(rank, code=143)
        output = self.output(ranks[0])
        self.assert_same(output, recipe, output["step"])
        return output

    # ---- plain variables ----

    def ranks(self, size, arguments, program=WORKER, port=None, env=None, per_rank=None, wrap=None):
        port = port or lease_ports()
        started = []
        for rank in range(size):
            own = {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(port), **(env or {}), **((per_rank or {}).get(rank, {}))}
            own = {k: v for k, v in own.items() if v is not None}
            command = [program, *arguments]
            started.append(self.spawn(wrap(rank, command) if wrap else command, clean_environment(**own), f"rank-{rank}-{own.get('RANK')}-{port}"))
        return started

"""Runs under other launchers: plain variables, torchrun, torch.distributed.launch, mpirun, Slurm's names, two hosts.

    python3 launchers_test.py <folder with tandem and tandem-worker> [unittest arguments]

One digest with one worker alone, whatever starts the processes and whatever dies. torchrun is taken from TORCHRUN, else
from beside this Python, else from the path; where it can't run, those tests are skipped with its reason.
"""
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

from run_test import BIN, TANDEM, Case, QUICK, QUICK_RL  # noqa: E402  (takes the folder from the command line)

WORKER = BIN / "tandem-worker"
JOBS = (("tiny", QUICK), ("tiny-rl", QUICK_RL))
NAMES = re.compile(r"^(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|MASTER_|SLURM_|OMPI_|PMI|TORCHELASTIC|TANDEM_)")


def clean_environment(**more):
    return {**{k: v for k, v in os.environ.items() if not NAMES.match(k)}, "NO_COLOR": "1", "TANDEM_JOIN_SECONDS": "40",
            "TANDEM_FROZEN_SECONDS": "4", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **more}


_next_port = [random.Random().randrange(21000, 29000, 40)]


def free_port():
    """The first of 16 ports that nobody uses; another one each time."""
    _next_port[0] += 40
    return _next_port[0]


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
        process.texts = out, err
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

    def end(self, process, code=0, seconds=180):
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.fail(f"it did not end:\n{self.text(process)}")
        if code is not None:
            self.assertEqual(process.returncode, code, self.text(process, 0) + self.text(process))
        return self.text(process)

    def told(self, process):
        lines = [line for line in self.text(process, 0).splitlines() if line.startswith('{"') and '"error"' not in line]
        self.assertEqual(len(lines), 1, f"one object from rank 0 alone:\n{self.text(process, 0)}\n{self.text(process)}")
        return json.loads(lines[0])

    def wait_until(self, what, seconds=60):
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
        self.wait_until(there, 120)

    def assert_same(self, told, recipe, steps):
        self.assertEqual(told["digest"], self.quiet(recipe, steps))
        lines = (pathlib.Path(told["dir"]) / "metrics.jsonl").read_text().splitlines()
        self.assertEqual([json.loads(line)["step"] for line in lines], list(range(1, steps + 1)), "every step once")

    # ---- plain variables ----

    def ranks(self, size, arguments, program=WORKER, port=None, env=None, per_rank=None, wrap=None):
        port = port or free_port()
        started = []
        for rank in range(size):
            own = {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(port), **(env or {}), **((per_rank or {}).get(rank, {}))}
            own = {k: v for k, v in own.items() if v is not None}
            command = [program, *arguments]
            started.append(self.spawn(wrap(rank, command) if wrap else command, clean_environment(**own), f"rank-{rank}-{port}"))
        return started


class Plain(Launched):
    def test_two_and_three_ranks_give_the_digest_of_one(self):
        for recipe, _ in JOBS:
            for size in (2, 3):
                with self.subTest(recipe=recipe, size=size):
                    ranks = self.ranks(size, self.arguments(recipe, 40))
                    for rank in ranks:
                        self.end(rank)
                    told = self.told(ranks[0])
                    self.assert_same(told, recipe, 40)
                    self.assertEqual(told["workers"], size)
                    for rank in ranks[1:]:
                        self.assertEqual(self.text(rank, 0) + self.text(rank), "", "the others are silent")
                    for rank in range(size):
                        self.assertTrue((pathlib.Path(told["dir"]) / f"logs/rank-{rank}.log").exists())

    def test_tandem_itself_and_the_names_of_slurm_and_open_mpi(self):
        slurm = {r: {"SLURM_PROCID": str(r), "SLURM_NTASKS": "2", "SLURM_LOCALID": str(r), "SLURM_JOB_ID": str(free_port())}
                 for r in range(2)}
        slurm[1]["SLURM_JOB_ID"] = slurm[0]["SLURM_JOB_ID"]
        ompi = {r: {"OMPI_COMM_WORLD_RANK": str(r), "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": str(r),
                    "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": f"test-{free_port()}"} for r in range(2)}
        ompi[1]["PMIX_NAMESPACE"] = ompi[0]["PMIX_NAMESPACE"]
        nothing = {"RANK": None, "WORLD_SIZE": None, "LOCAL_RANK": None, "MASTER_ADDR": None, "MASTER_PORT": None}
        for names in ({r: {} for r in range(2)}, {r: {**nothing, **slurm[r]} for r in slurm}, {r: {**nothing, **ompi[r]} for r in ompi}):
            ranks = self.ranks(2, self.arguments("tiny", 30), program=TANDEM, per_rank=names)
            for rank in ranks:
                self.end(rank)
            self.assert_same(self.told(ranks[0]), "tiny", 30)

    def test_a_size_of_one_is_as_ever_and_other_commands_do_not_care(self):
        env = {"RANK": "0", "WORLD_SIZE": "1"}
        told = json.loads(self.tandem(*self.arguments("tiny", 30), env=env).stdout)
        self.assert_same(told, "tiny", 30)
        self.tandem("runs", "list", env={"RANK": "1", "WORLD_SIZE": "3"})

    def test_local_rank_by_flag_before_or_after_the_command(self):
        arguments = self.arguments("tiny", 30)
        ranks, port = [], free_port()
        for rank, words in ((0, ["--local_rank=0", *arguments]), (1, [*arguments, "--local-rank=1"])):
            ranks += self.ranks(1, words, port=port, env={"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": None})
        for rank in ranks:
            self.end(rank)
        self.assert_same(self.told(ranks[0]), "tiny", 30)

    def test_unequal_slots_by_rank(self):
        ranks = self.ranks(3, self.arguments("tiny-rl", 40, "--devices", "cpu:3@1,0.5,0.5"))
        for rank in ranks:
            self.end(rank)
        self.assert_same(self.told(ranks[0]), "tiny-rl", 40)

    def test_resume_on_ranks_of_what_one_machine_began_and_back(self):
        for recipe, quick in JOBS:
            part = self.train(*quick, "--steps", 15, "--devices", "cpu:2", recipe=recipe)
            ranks = self.ranks(3, ["resume", part["run"], "--steps", "30", "--json"])
            for rank in ranks:
                self.end(rank)
            self.assertEqual(self.told(ranks[0])["step"], 30)
            rest = json.loads(self.tandem("resume", part["run"], "--steps", 40, "--devices", "cpu:1", "--json").stdout)
            self.assert_same(rest, recipe, 40)


class Faults(Launched):
    def faulty(self, recipe, faults, steps=40, size=3, env=None, more=()):
        ranks = self.ranks(size, self.arguments(recipe, steps, "--checkpoint-every", "5 steps", *more),
                           env={"TANDEM_FAULT": faults, **(env or {})})
        for rank in ranks:
            self.end(rank)
        told = self.told(ranks[0])
        self.assert_same(told, recipe, steps)
        return told, self.text(ranks[0])

    def test_a_worker_killed_at_named_points_changes_no_bit(self):
        for recipe, _ in JOBS:
            for fault in ("in-phase rank=1 step=17 do=kill", "before-combine rank=0 step=17 do=kill",
                          "after-combine rank=2 step=17 do=kill", "in-snapshot rank=1 do=kill", "before-adopt rank=1 do=kill",
                          "start rank=2 do=kill"):
                with self.subTest(recipe=recipe, fault=fault):
                    told, err = self.faulty(recipe, fault)
                    self.assertIn("SIGKILL", err)

    def test_two_at_once_and_one_in_the_recovery_of_another(self):
        for recipe, _ in JOBS:
            for fault in ("in-phase rank=0 step=9 do=kill;in-phase rank=2 step=9 do=kill",
                          "before-combine rank=1 step=9 do=kill;before-adopt rank=2 do=kill"):
                with self.subTest(recipe=recipe, fault=fault):
                    self.faulty(recipe, fault)

    def test_a_frozen_worker_is_named_and_replaced(self):
        for recipe, _ in JOBS:
            told, err = self.faulty(recipe, "in-phase rank=1 step=14 do=stop")
            self.assertEqual(told["frozen"], 1)
            self.assertRegex(err, r"rank 1 \(cpu:1\) was taken out: no progress for 4 s \(the process is stopped\) in phase")

    def test_what_a_worker_said_last_is_told_by_rank_0(self):
        told, err = self.faulty("tiny", "in-phase rank=1 step=12 do=segv")
        self.assertRegex(err, r"rank 1 \(cpu:1\) crashed \(SIGSEGV.*in phase '\w+' of step 13")

    def test_real_kills_of_random_workers(self):
        chance = random.Random(7)
        for recipe, steps in (("tiny", 400), ("tiny-rl", 150)):
            run = f"run-{recipe}"
            ranks = self.ranks(3, self.arguments(recipe, steps, "--run-dir", run))
            for step in (10, 60):
                self.wait_for_step(run, step)
                workers = [pid for rank in ranks for pid, (_, line) in processes_of(rank.pid).items() if " work " in line]
                os.kill(chance.choice(workers), signal.SIGKILL)
            for rank in ranks:
                self.end(rank)
            told = self.told(ranks[0])
            self.assert_same(told, recipe, steps)
            self.assertGreaterEqual(told["deaths"], 1)

    def test_stopped_by_sigterm_to_all_and_resumed_on_one_process(self):
        for recipe, _ in JOBS:
            run = f"run-{recipe}"
            ranks = self.ranks(3, self.arguments(recipe, 3000, "--run-dir", run))
            self.wait_for_step(run, 20)
            for rank in ranks:
                rank.send_signal(signal.SIGTERM)
            for rank in ranks:
                self.end(rank, code=143)
            told = self.told(ranks[0])
            self.assertEqual(told["status"], "stopped")
            steps = told["step"] + 20
            rest = json.loads(self.tandem("resume", run, "--steps", steps, "--devices", "cpu:1", "--json").stdout)
            self.assert_same(rest, recipe, steps)

    def test_sigterm_to_one_rank_alone_stops_all(self):
        ranks = self.ranks(2, self.arguments("tiny", 100000, "--run-dir", "run"))
        self.wait_for_step("run", 10)
        ranks[1].send_signal(signal.SIGTERM)
        for rank in ranks:
            self.end(rank, code=143)

    def test_a_lost_supervisor_ends_the_run_with_what_to_do(self):
        ranks = self.ranks(3, self.arguments("tiny", 100000, "--run-dir", "run"))
        self.wait_for_step("run", 10)
        ranks[2].kill()
        err = self.end(ranks[0], code=6, seconds=30)
        self.end(ranks[1], code=6, seconds=30)
        self.assertIn("the supervisor of rank 2 (cpu:2) is lost", err)
        self.assertIn("resume", err)
        self.assertEqual([p for p in processes_of(os.getpid()).values() if " work " in p[1]], [], "no orphans")

    def test_a_lost_rank_0_ends_the_others(self):
        ranks = self.ranks(3, self.arguments("tiny", 100000, "--run-dir", "run"))
        self.wait_for_step("run", 10)
        ranks[0].kill()
        for rank in ranks[1:]:
            err = self.end(rank, code=6, seconds=30)
            self.assertIn("lost rank 0", err)
            self.assertIn("resume", err)


class Refusals(Launched):
    def explains(self, text, *words):
        for word in ("error: ", "why ", "do ", *words):
            self.assertIn(word, text)

    def test_world_size_without_rank_and_a_rank_too_high(self):
        for env, word in (({"WORLD_SIZE": "3"}, "RANK is not"), ({"RANK": "3", "WORLD_SIZE": "3"}, "RANK=3, but WORLD_SIZE=3"),
                          ({"RANK": "1"}, "WORLD_SIZE is not")):
            for program in (TANDEM, WORKER):
                process = self.spawn([program, *self.arguments("tiny", 5)], clean_environment(**env), f"{word[:4]}-{program.name}")
                self.explains(self.end(process, code=2), word)
        self.assertFalse(list(self.dir.glob("runs/*")))

    def test_a_wrong_secret(self):
        ranks = self.ranks(2, self.arguments("tiny", 5), env={"TANDEM_JOIN_SECONDS": "6"},
                           per_rank={0: {"TANDEM_SECRET": "a-secret-of-rank-0"}, 1: {"TANDEM_SECRET": "another-secret"}})
        self.explains(self.end(ranks[1], code=2), "could not prove itself", "secret")
        self.explains(self.end(ranks[0], code=2), "rank 1 did not come", "does not know the secret")
        self.assertFalse(list(self.dir.glob("runs/*")))

    def test_a_rank_twice(self):
        ranks = self.ranks(3, self.arguments("tiny", 5), env={"TANDEM_JOIN_SECONDS": "6"}, per_rank={2: {"RANK": "1"}})
        for rank in ranks:
            self.end(rank, code=2)
        self.assertIn("rank 1 is there already", self.text(ranks[1]) + self.text(ranks[2]))
        self.explains(self.text(ranks[0]), "rank 2 did not come", "rank 1 is there already")

    def test_nobody_comes(self):
        alone = self.ranks(1, self.arguments("tiny", 5), env={"WORLD_SIZE": "2", "TANDEM_JOIN_SECONDS": "2"})[0]
        self.explains(self.end(alone, code=2), "rank 1 did not come within 2 s")
        alone = self.ranks(1, self.arguments("tiny", 5), env={"RANK": "1", "WORLD_SIZE": "2", "TANDEM_JOIN_SECONDS": "2"})[0]
        self.explains(self.end(alone, code=2), "found no rank 0")

    def test_an_error_of_rank_0_ends_the_others_at_once_and_silently(self):
        begin = time.monotonic()
        ranks = self.ranks(3, ["train", "tiny", "--set", "nonsense=1", "--steps", "5"])
        for rank in ranks:
            self.end(rank, code=2)
        self.assertIn("nonsense", self.text(ranks[0]))
        self.assertEqual(self.text(ranks[1]), "")
        self.assertLess(time.monotonic() - begin, 20)

    def test_a_secret_that_others_can_read(self):
        (self.dir / "secret").write_text("x" * 64)
        os.chmod(self.dir / "secret", 0o644)
        rank = self.ranks(1, self.arguments("tiny", 5), env={"WORLD_SIZE": "2", "TANDEM_SECRET_FILE": "secret"})[0]
        self.explains(self.end(rank, code=2), "others than you can read")

    def test_join_and_leave_are_refused(self):
        ranks = self.ranks(2, self.arguments("tiny", 100000, "--run-dir", "run"))
        self.wait_for_step("run", 5)
        done = self.tandem("join", "run", "--devices", "cpu:1", code=2)
        self.explains(done.stderr, "another launcher")
        done = self.tandem("leave", "run", "--rank", "1", code=2)
        self.explains(done.stderr, "another launcher")
        ranks[0].send_signal(signal.SIGTERM)
        for rank in ranks:
            self.end(rank, code=143)

    def test_an_address_that_is_everywhere_nowhere_or_elsewhere(self):
        for address, word in (("0.0.0.0", "every interface"), ("no.such.host.invalid", "can't be resolved"),
                              ("192.0.2.1", "not an address of this machine")):
            rank = self.ranks(1, self.arguments("tiny", 5), env={"WORLD_SIZE": "2", "MASTER_ADDR": address})[0]
            self.explains(self.end(rank, code=2), word)

    def test_two_devices_for_one_rank(self):
        ranks = self.ranks(3, self.arguments("tiny", 5, "--devices", "cpu:2"))
        self.explains(self.end(ranks[0], code=2), "2 devices for 3 ranks")


class Strangers(Launched):
    def connect(self, port):
        def there():
            with contextlib.suppress(OSError):
                return socket.create_connection(("127.0.0.1", port), timeout=5)
        return self.wait_until(there)

    def test_garbage_and_silence_at_the_listening_port(self):
        port = free_port()
        first = self.ranks(1, self.arguments("tiny", 40), port=port, env={"WORLD_SIZE": "3"})
        strangers = [self.connect(port) for _ in range(6)]
        strangers[0].sendall(b"GET / HTTP/1.0\r\n\r\n" + os.urandom(4000))
        strangers[1].sendall(b"tandem-link 1\0\0\0" + os.urandom(64))
        strangers[2].sendall(b"tandem-link 1\0\0\0" + os.urandom(10))
        strangers[3].close()
        for rank in (1, 2):
            first += self.ranks(1, self.arguments("tiny", 40), port=port,
                                env={"WORLD_SIZE": "3", "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in first:
            self.end(rank)
        self.assert_same(self.told(first[0]), "tiny", 40)
        for stranger in strangers[:3]:
            stranger.settimeout(5)
            try:
                got = stranger.recv(1000)
            except ConnectionResetError:
                got = b""
            self.assertLessEqual(len(got), 48, "a stranger learns nothing")
            stranger.close()

    def test_a_conversation_played_again(self):
        """A relay writes down what a true rank 1 says, and says it again to the next run of the same job."""
        port, relay_port = free_port(), free_port()
        said = bytearray()
        relay = socket.create_server(("127.0.0.1", relay_port))

        def carry(source, sink, keep):
            with contextlib.suppress(OSError):
                while data := source.recv(65536):
                    if keep and len(said) < 116:
                        said.extend(data[:116 - len(said)])
                    sink.sendall(data)
            for end in (source, sink):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

        def serve():
            with contextlib.suppress(OSError):
                inward, _ = relay.accept()
                outward = socket.create_connection(("127.0.0.1", port))
                threading.Thread(target=carry, args=(outward, inward, False), daemon=True).start()
                carry(inward, outward, True)

        env = {"TANDEM_SECRET": "a-secret-of-both"}
        ranks = self.ranks(1, self.arguments("tiny", 5), port=port, env={**env, "WORLD_SIZE": "2"})
        self.connect(port).close()
        threading.Thread(target=serve, daemon=True).start()
        ranks += self.ranks(1, self.arguments("tiny", 5), port=port,
                            env={**env, "RANK": "1", "WORLD_SIZE": "2", "TANDEM_PORT": str(relay_port)})
        for rank in ranks:
            self.end(rank)
        self.assertEqual(len(said), 116)
        relay.close()
        again = self.ranks(1, self.arguments("tiny", 5), port=port, env={**env, "WORLD_SIZE": "2", "TANDEM_JOIN_SECONDS": "4"})[0]
        with self.connect(port) as stranger:
            stranger.sendall(said)
            answer = b""
            stranger.settimeout(5)
            with contextlib.suppress(OSError):
                while data := stranger.recv(1000):
                    answer += data
            self.assertIn(b"tandem-unproved", answer)
        self.assertIn("does not know the secret", self.end(again, code=2))

    def test_nothing_listens_once_all_ranks_are_there(self):
        if not shutil.which("ss"):
            self.skipTest("no ss")
        port = free_port()
        ranks = self.ranks(2, self.arguments("tiny", 100000, "--run-dir", "run"), port=port)
        self.wait_for_step("run", 5)
        pids = {pid for rank in ranks for pid in processes_of(rank.pid)}
        lines = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True).stdout.splitlines()
        ours = [line for line in lines if any(f"pid={pid}," in line for pid in pids)]
        self.assertEqual(ours, [], "no listener of ours, Gloo's included")
        ranks[0].send_signal(signal.SIGTERM)
        for rank in ranks:
            self.end(rank, code=143)


class Foreign(Launched):
    """torchrun and mpirun themselves."""

    def torchrun(self):
        for path in (os.environ.get("TORCHRUN"), pathlib.Path(sys.executable).parent / "torchrun", shutil.which("torchrun")):
            if path and os.access(path, os.X_OK):
                done = subprocess.run([path, "--help"], capture_output=True, text=True, env=clean_environment())
                if done.returncode == 0:
                    return str(path)
                reason = done.stderr.strip().splitlines()[-1:]
                self.why_not = f"torchrun can't run: {reason}"
        self.skipTest(getattr(self, "why_not", "there is no torchrun"))

    def mpirun(self):
        path = shutil.which("mpirun")
        if not path:
            self.skipTest("there is no mpirun (apt install openmpi-bin)")
        return [path, "--oversubscribe", "--bind-to", "none"]

    def commands(self, size, which):
        if which == "mpirun":
            return [*self.mpirun(), "-n", str(size), str(WORKER)]
        torchrun = self.torchrun()
        if which == "torchrun":
            return [torchrun, "--no-python", "--nproc-per-node", str(size), "--master-port", str(free_port()), str(WORKER)]
        if which == "standalone":
            return [torchrun, "--standalone", "--no-python", "--nproc-per-node", str(size), str(WORKER)]
        python = pathlib.Path(torchrun).parent / "python3"
        return [str(python), "-m", "torch.distributed.launch", "--use-env", "--no-python", "--nproc-per-node", str(size), "--master-port",
                str(free_port()), str(WORKER)]

    def digest(self, which):
        for recipe, _ in JOBS:
            process = self.spawn([*self.commands(3, which), *self.arguments(recipe, 40)], clean_environment(), recipe)
            self.end(process)
            self.assert_same(self.told(process), recipe, 40)

    def test_torchrun(self):
        self.digest("torchrun")
        self.digest("standalone")

    def test_torch_distributed_launch(self):
        self.digest("launch")

    def test_mpirun(self):
        self.digest("mpirun")

    def killed(self, which):
        for recipe, steps in (("tiny", 400), ("tiny-rl", 150)):
            run = f"run-{recipe}"
            process = self.spawn([*self.commands(3, which), *self.arguments(recipe, steps, "--run-dir", run)], clean_environment(), recipe)
            self.wait_for_step(run, 20)
            workers = [pid for pid, (_, line) in processes_of(process.pid).items() if " work " in line]
            self.assertEqual(len(workers), 3)
            os.kill(workers[1], signal.SIGKILL)
            self.end(process)
            told = self.told(process)
            self.assert_same(told, recipe, steps)
            self.assertEqual(told["deaths"], 1)

    def test_torchrun_does_not_notice_a_killed_worker(self):
        self.killed("torchrun")

    def test_mpirun_does_not_notice_a_killed_worker(self):
        self.killed("mpirun")

    def test_torchrun_starts_a_job_again_that_lost_a_supervisor_and_it_goes_on(self):
        command = self.commands(3, "torchrun")
        command[1:1] = ["--max-restarts", "2"]
        process = self.spawn([*command, *self.arguments("tiny-rl", 200, "--run-dir", "run", "--checkpoint-every", "10 steps")],
                             clean_environment())
        self.wait_for_step("run", 40)
        supervisors = [pid for pid, (parent, line) in processes_of(process.pid).items() if parent == process.pid]
        self.assertEqual(len(supervisors), 3)
        os.kill(supervisors[1], signal.SIGKILL)
        self.end(process)
        self.assert_same(self.told(process), "tiny-rl", 200)

    def test_torchrun_stopped_and_resumed_on_one_process(self):
        process = self.spawn([*self.commands(3, "torchrun"), *self.arguments("tiny-rl", 3000, "--run-dir", "run")], clean_environment())
        self.wait_for_step("run", 20)
        process.send_signal(signal.SIGTERM)
        self.end(process, code=None)
        status = json.loads((self.dir / "run/run.json").read_text())
        self.assertEqual(status["status"], "stopped", self.text(process))
        steps = status["step"] + 20
        rest = json.loads(self.tandem("resume", "run", "--steps", steps, "--devices", "cpu:1", "--json").stdout)
        self.assert_same(rest, "tiny-rl", steps)


class Hosts(Launched):
    """Two machines, played by network namespaces."""

    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0 or not shutil.which("ip"):
            raise unittest.SkipTest("network namespaces need root and `ip`")
        cls.names = [f"tandem{os.getpid()}{side}" for side in "ab"]
        a, b = cls.names
        script = f"""set -e
ip netns add {a}; ip netns add {b}
ip link add {a[-10:]} netns {a} type veth peer name {b[-10:]} netns {b}
ip -n {a} addr add 10.77.0.1/24 dev {a[-10:]}; ip -n {b} addr add 10.77.0.2/24 dev {b[-10:]}
ip -n {a} addr add 10.78.0.1/24 dev lo
for n in {a} {b}; do ip -n $n link set lo up; done
ip -n {a} link set {a[-10:]} up; ip -n {b} link set {b[-10:]} up"""
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
        if done.returncode != 0:
            cls.tearDownClass()
            raise unittest.SkipTest(f"no network namespaces here: {done.stderr.strip()}")

    @classmethod
    def tearDownClass(cls):
        for name in getattr(cls, "names", []):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def hosts(self, recipe, steps, size=3, env=None, more=()):
        """Rank 0 on the first host, the others on the second."""
        return self.ranks(size, self.arguments(recipe, steps, *more), env={"MASTER_ADDR": "10.77.0.1", "LOCAL_RANK": None, **(env or {})},
                          wrap=lambda rank, command: ["ip", "netns", "exec", self.names[min(rank, 1)], *command])

    def listeners(self, host):
        done = subprocess.run(["ip", "netns", "exec", self.names[host], "ss", "-Hltn"], capture_output=True, text=True)
        return [line.split()[3] for line in done.stdout.splitlines()]

    def test_one_digest_and_only_the_chosen_address_is_listened_on(self):
        for recipe, _ in JOBS:
            first = self.ranks(1, self.arguments(recipe, 40), env={"MASTER_ADDR": "10.77.0.1", "WORLD_SIZE": "2"}, port=29700,
                               wrap=lambda rank, command: ["ip", "netns", "exec", self.names[0], *command])
            self.wait_until(lambda: self.listeners(0))
            self.assertEqual(self.listeners(0), ["10.77.0.1:29700"])
            first += self.ranks(1, self.arguments(recipe, 40), env={"MASTER_ADDR": "10.77.0.1", "WORLD_SIZE": "2", "RANK": "1"},
                                port=29700, wrap=lambda rank, command: ["ip", "netns", "exec", self.names[1], *command])
            for rank in first:
                self.end(rank)
            self.assert_same(self.told(first[0]), recipe, 40)

    def test_nothing_listens_while_it_trains(self):
        ranks = self.hosts("tiny", 100000, more=("--run-dir", "run"))
        self.wait_for_step("run", 5)
        self.assertEqual((self.listeners(0), self.listeners(1)), ([], []))
        ranks[0].send_signal(signal.SIGTERM)
        for rank in ranks:
            self.end(rank, code=143)

    def test_a_worker_killed_on_either_host(self):
        for recipe, _ in JOBS:
            for fault in ("in-phase rank=0 step=17 do=kill", "in-phase rank=1 step=17 do=kill"):
                ranks = self.hosts(recipe, 40, env={"TANDEM_FAULT": fault}, more=("--checkpoint-every", "5 steps"))
                for rank in ranks:
                    self.end(rank)
                self.assert_same(self.told(ranks[0]), recipe, 40)

    def test_a_host_that_vanishes_is_noticed_within_15_seconds(self):
        ranks = self.hosts("tiny", 100000, size=2, more=("--run-dir", "run"))
        self.wait_for_step("run", 5)
        begin = time.monotonic()
        subprocess.run(["ip", "-n", self.names[1], "link", "set", self.names[1][-10:], "down"], check=True)
        self.addCleanup(subprocess.run, ["ip", "-n", self.names[1], "link", "set", self.names[1][-10:], "up"])
        err = self.end(ranks[0], code=6, seconds=30)
        self.assertLess(time.monotonic() - begin, 15)
        self.assertIn("the supervisor of rank 1", err)
        self.end(ranks[1], code=6, seconds=30)


if __name__ == "__main__":
    unittest.main(verbosity=2)

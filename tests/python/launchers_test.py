"""Runs whose processes somebody else started, told by plain variables: digests, deaths, refusals, strangers.

    python3 launchers_test.py <folder with tandem and tandem-worker> [unittest arguments]

One digest with one worker alone, whatever starts the processes and whatever dies.
"""
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import threading
import unittest

from launched import BIN, ENDLESS, JOBS, TANDEM, WORKER, Launched, clean_environment, processes_of
from ports import lease_ports


class Plain(Launched):
    def test_two_and_three_ranks_give_the_digest_of_one(self):
        for recipe, _ in JOBS:
            for size in (2, 3):
                with self.subTest(recipe=recipe, size=size):
                    ranks = self.ranks(size, self.arguments(recipe, 40))
                    for rank in ranks:
                        self.end(rank)
                    output = self.output(ranks[0])
                    self.assert_same(output, recipe, 40)
                    self.assertEqual(output["workers"], size)
                    for rank in ranks[1:]:
                        self.assertEqual(self.text(rank, 0) + self.text(rank), "", "the others are silent")
                    for rank in range(size):
                        self.assertTrue((pathlib.Path(output["dir"]) / f"logs/rank-{rank}.log").exists())

    def test_tandem_itself_and_the_names_of_slurm_and_open_mpi(self):
        slurm = {r: {"SLURM_PROCID": str(r), "SLURM_NTASKS": "2", "SLURM_LOCALID": str(r), "SLURM_JOB_ID": str(lease_ports())}
                 for r in range(2)}
        slurm[1]["SLURM_JOB_ID"] = slurm[0]["SLURM_JOB_ID"]
        ompi = {r: {"OMPI_COMM_WORLD_RANK": str(r), "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": str(r),
                    "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": f"test-{lease_ports()}"} for r in range(2)}
        ompi[1]["PMIX_NAMESPACE"] = ompi[0]["PMIX_NAMESPACE"]
        nothing = {"RANK": None, "WORLD_SIZE": None, "LOCAL_RANK": None, "MASTER_ADDR": None, "MASTER_PORT": None}
        for names in ({r: {} for r in range(2)}, {r: {**nothing, **slurm[r]} for r in slurm}, {r: {**nothing, **ompi[r]} for r in ompi}):
            ranks = self.ranks(2, self.arguments("tiny", 30), program=TANDEM, per_rank=names)
            for rank in ranks:
                self.end(rank)
            self.assert_same(self.output(ranks[0]), "tiny", 30)

    def test_a_size_of_one_is_as_ever_and_other_commands_do_not_care(self):
        env = {"RANK": "0", "WORLD_SIZE": "1"}
        output = json.loads(self.tandem(*self.arguments("tiny", 30), env=env).stdout)
        self.assert_same(output, "tiny", 30)
        self.tandem("runs", "list", env={"RANK": "1", "WORLD_SIZE": "3"})

    def test_a_size_of_one_that_its_launcher_starts_again_goes_on(self):
        part = self.tandem("train", "tiny", *JOBS[0][1], "--steps", 10, "--run-dir", "run", env={"RANK": "0", "WORLD_SIZE": "1"})
        self.assertEqual(part.returncode, 0)
        done = self.tandem("train", "tiny", *JOBS[0][1], "--steps", 20, "--run-dir", "run", "--json",
                           env={"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RESTART_COUNT": "1"})
        self.assert_same(json.loads(done.stdout), "tiny", 20)

    def test_local_rank_by_flag_before_or_after_the_command(self):
        arguments = self.arguments("tiny", 30)
        ranks, port = [], lease_ports()
        for rank, words in ((0, ["--local_rank=0", *arguments]), (1, [*arguments, "--local-rank=1"])):
            ranks += self.ranks(1, words, port=port, env={"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": None})
        for rank in ranks:
            self.end(rank)
        self.assert_same(self.output(ranks[0]), "tiny", 30)

    def test_unequal_slots_by_rank(self):
        ranks = self.ranks(3, self.arguments("tiny-rl", 40, "--devices", "cpu:3@1,0.5,0.5"))
        for rank in ranks:
            self.end(rank)
        self.assert_same(self.output(ranks[0]), "tiny-rl", 40)

    def test_resume_on_ranks_of_what_one_machine_began_and_back(self):
        for recipe, quick in JOBS:
            part = self.train(*quick, "--steps", 15, "--devices", "cpu:2", recipe=recipe)
            ranks = self.ranks(3, ["resume", part["run"], "--steps", "30", "--json"])
            for rank in ranks:
                self.end(rank)
            self.assertEqual(self.output(ranks[0])["step"], 30)
            rest = json.loads(self.tandem("resume", part["run"], "--steps", 40, "--devices", "cpu:1", "--json").stdout)
            self.assert_same(rest, recipe, 40)


class Faults(Launched):
    def faulty(self, recipe, faults, steps=40, size=3, env=None, more=()):
        ranks = self.ranks(size, self.arguments(recipe, steps, "--checkpoint-every", "5 steps", *more),
                           env={"TANDEM_FAULT": faults, **(env or {})})
        for rank in ranks:
            self.end(rank)
        output = self.output(ranks[0])
        self.assert_same(output, recipe, steps)
        return output, self.text(ranks[0])

    def test_a_worker_killed_at_named_points_changes_no_bit(self):
        for recipe, _ in JOBS:
            for fault in ("in-phase rank=1 step=17 do=kill", "before-combine rank=0 step=17 do=kill",
                          "after-combine rank=2 step=17 do=kill", "in-snapshot rank=1 do=kill", "before-adopt rank=1 do=kill",
                          "start rank=2 do=kill"):
                with self.subTest(recipe=recipe, fault=fault):
                    output, err = self.faulty(recipe, fault)
                    self.assertIn("SIGKILL", err)

    def test_two_at_once_and_one_in_the_recovery_of_another(self):
        for recipe, _ in JOBS:
            for fault in ("in-phase rank=0 step=9 do=kill;in-phase rank=2 step=9 do=kill",
                          "before-combine rank=1 step=9 do=kill;before-adopt rank=2 do=kill"):
                with self.subTest(recipe=recipe, fault=fault):
                    self.faulty(recipe, fault)

    def test_a_frozen_worker_is_named_and_replaced(self):
        for recipe, _ in JOBS:
            output, err = self.faulty(recipe, "in-phase rank=1 step=14 do=stop", env={"TANDEM_FROZEN_SECONDS": "4"})
            self.assertGreaterEqual(output["frozen"], 1)
            # That the process is stopped is known from its supervisor, if that had its turn.
            self.assertRegex(err, r"rank 1 \(cpu:1\) was taken out: no progress for \d+ s( \(the process is stopped\))? in phase")

    def test_what_a_worker_said_last_is_told_by_rank_0(self):
        output, err = self.faulty("tiny", "in-phase rank=1 step=12 do=segv")
        self.assertRegex(err, r"rank 1 \(cpu:1\) crashed \(SIGSEGV.*in phase '\w+' of step 13")

    def test_real_kills_of_random_workers(self):
        chance = random.Random(7)
        for recipe, _ in JOBS:
            run = f"run-{recipe}"
            ranks = self.ranks(3, self.arguments(recipe, ENDLESS, "--run-dir", run))
            for step in (10, 60):
                self.wait_for_step(run, step)
                workers = [pid for rank in ranks for pid, (_, line) in processes_of(rank.pid).items() if " work " in line]
                os.kill(chance.choice(workers), signal.SIGKILL)
            self.wait_for_step(run, 90)
            self.assertGreaterEqual(self.assert_stops_as(ranks, recipe)["deaths"], 1)

    def test_stopped_by_sigterm_to_all_and_resumed_on_one_process(self):
        for recipe, _ in JOBS:
            run = f"run-{recipe}"
            ranks = self.ranks(3, self.arguments(recipe, ENDLESS, "--run-dir", run))
            self.wait_for_step(run, 20)
            for rank in ranks:
                rank.send_signal(signal.SIGTERM)
            for rank in ranks:
                self.end(rank, code=143)
            output = self.output(ranks[0])
            self.assertEqual(output["status"], "stopped")
            steps = output["step"] + 20
            rest = json.loads(self.tandem("resume", run, "--steps", steps, "--devices", "cpu:1", "--json").stdout)
            self.assert_same(rest, recipe, steps)

    def test_sigterm_to_one_rank_alone_stops_all(self):
        ranks = self.ranks(2, self.arguments("tiny", ENDLESS, "--run-dir", "run"))
        self.wait_for_step("run", 10)
        ranks[1].send_signal(signal.SIGTERM)
        for rank in ranks:
            self.end(rank, code=143)

    def test_a_lost_supervisor_ends_the_run_with_what_to_do(self):
        ranks = self.ranks(3, self.arguments("tiny", ENDLESS, "--run-dir", "run"))
        self.wait_for_step("run", 10)
        ranks[2].kill()
        err = self.end(ranks[0], code=6)
        self.end(ranks[1], code=6)
        self.assertIn("the supervisor of rank 2 (cpu:2) is lost", err)
        self.assertIn("resume", err)
        self.assertEqual([p for p in processes_of(os.getpid()).values() if " work " in p[1]], [], "no orphans")

    def test_a_lost_rank_0_ends_the_others(self):
        ranks = self.ranks(3, self.arguments("tiny", ENDLESS, "--run-dir", "run"))
        self.wait_for_step("run", 10)
        ranks[0].kill()
        for rank in ranks[1:]:
            err = self.end(rank, code=6)
            self.assertIn("lost rank 0", err)
            self.assertIn("resume", err)


    def test_every_checkpoint_by_steps_is_there_at_the_end(self):
        """The disk is behind, so the last but one still has parts elsewhere when training ends."""
        ranks = self.ranks(2, self.arguments("tiny-rl", 20, "--run-dir", "run", "--checkpoint-every", "1 steps", "--set", "checkpoint.keep=50"),
                           env={"TANDEM_FAULT": "before-rename rank=-1 step=18 do=slow"})
        for rank in ranks:
            self.end(rank)
        self.assert_same(self.output(ranks[0]), "tiny-rl", 20)
        saved = sorted(int(path.name[5:]) for path in (self.dir / "run/checkpoints").glob("step-*"))
        self.assertEqual(saved, list(range(1, 21)))

    def test_a_killed_supervisor_leaves_nothing_in_the_temporary_folder(self):
        (self.dir / "tmp").mkdir()
        ranks = self.ranks(2, self.arguments("tiny", ENDLESS, "--run-dir", "run"), env={"TMPDIR": str(self.dir / "tmp")})
        self.wait_for_step("run", 10)
        self.assertEqual(list((self.dir / "tmp").iterdir()), [])
        pids = {pid for rank in ranks for pid in processes_of(rank.pid)}
        ranks[1].kill()
        self.end(ranks[0], code=6)
        self.assertEqual(list((self.dir / "tmp").iterdir()), [])
        self.assertEqual([pid for pid in pids if pathlib.Path(f"/tmp/perf-{pid}.map").exists()], [], "oneDNN's, of its kernels")

    def test_a_full_temporary_folder_ends_no_run(self):
        if os.geteuid() != 0:
            self.skipTest("mounts need root")
        full = self.dir / "full"
        full.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", full], capture_output=True, text=True)
        if done.returncode != 0:
            self.skipTest(f"no mounts here: {done.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", full], check=True)
        with contextlib.suppress(OSError):
            (full / "big").write_bytes(b"x" * 100000)
        output, _ = self.faulty("tiny", "in-phase rank=1 step=17 do=kill", size=2, env={"TMPDIR": str(full)})
        self.assertEqual(output["deaths"], 1)


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

    def in_time(self, attempt):
        """With the seconds that rank 0 waits for the others: more, should the others have come too late on a busy machine."""
        self.again(lambda number: attempt({"TANDEM_JOIN_SECONDS": str((6, 60, 300)[number])}))

    def test_a_wrong_secret(self):
        def attempt(env):
            ranks = self.ranks(2, self.arguments("tiny", 5), env=env,
                               per_rank={0: {"TANDEM_SECRET": "a-secret-of-rank-0"}, 1: {"TANDEM_SECRET": "another-secret-of-1"}})
            self.explains(self.end(ranks[1], code=2), "could not prove itself", "secret")
            self.explains(self.end(ranks[0], code=2), "rank 1 did not come", "does not know the secret")
            self.assertFalse(list(self.dir.glob("runs/*")))

        self.in_time(attempt)

    def test_a_secret_of_fifteen_characters(self):
        rank = self.ranks(1, self.arguments("tiny", 5), env={"WORLD_SIZE": "2", "TANDEM_SECRET": "x" * 15})[0]
        self.explains(self.end(rank, code=2), "too short", "at least 16")

    def test_another_build_of_the_worker(self):
        (self.dir / "bin").mkdir()
        for name in ("tandem", "tandem-worker"):
            shutil.copy(BIN / name, self.dir / "bin" / name)
        with open(self.dir / "bin/tandem-worker", "ab") as file:
            file.write(b"another build")

        def attempt(env):
            port = lease_ports()
            ranks = self.ranks(1, self.arguments("tiny", 5), port=port, env={**env, "WORLD_SIZE": "2"})
            ranks += self.ranks(1, self.arguments("tiny", 5), port=port, program=self.dir / "bin/tandem-worker",
                                env={**env, "WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"})
            self.explains(self.end(ranks[1], code=2), "the worker of rank 1 is another build", "copy the program")
            self.explains(self.end(ranks[0], code=2), "rank 1 did not come", "another build")
            self.assertFalse(list(self.dir.glob("runs/*")))

        self.in_time(attempt)

    def test_a_rank_twice(self):
        def attempt(env):
            ranks = self.ranks(3, self.arguments("tiny", 5), env=env, per_rank={2: {"RANK": "1"}})
            for rank in ranks:
                self.end(rank, code=2)
            self.assertIn("rank 1 is there already", self.text(ranks[1]) + self.text(ranks[2]))
            self.explains(self.text(ranks[0]), "rank 2 did not come", "rank 1 is there already")

        self.in_time(attempt)

    def test_nobody_comes(self):
        alone = self.ranks(1, self.arguments("tiny", 5), env={"WORLD_SIZE": "2", "TANDEM_JOIN_SECONDS": "2"})[0]
        self.explains(self.end(alone, code=2), "rank 1 did not come within 2 s")
        alone = self.ranks(1, self.arguments("tiny", 5), env={"RANK": "1", "WORLD_SIZE": "2", "TANDEM_JOIN_SECONDS": "2"})[0]
        self.explains(self.end(alone, code=2), "found no rank 0")

    def test_an_error_of_rank_0_ends_the_others_at_once_and_silently(self):
        never = {"TANDEM_JOIN_SECONDS": "100000"}  # who waits for rank 0 does not end within this test
        ranks = self.ranks(3, ["train", "tiny", "--set", "nonsense=1", "--steps", "5"], env=never)
        for rank in ranks:
            self.end(rank, code=2)
        self.assertIn("nonsense", self.text(ranks[0]))
        self.assertEqual(self.text(ranks[1]), "")

    def test_a_secret_that_others_can_read(self):
        (self.dir / "secret").write_text("x" * 64)
        os.chmod(self.dir / "secret", 0o644)
        rank = self.ranks(1, self.arguments("tiny", 5), env={"WORLD_SIZE": "2", "TANDEM_SECRET_FILE": "secret"})[0]
        self.explains(self.end(rank, code=2), "others than you can read")

    def test_join_and_leave_are_refused(self):
        ranks = self.ranks(2, self.arguments("tiny", ENDLESS, "--run-dir", "run"))
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
        port = lease_ports()
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
        self.assert_same(self.output(first[0]), "tiny", 40)
        for stranger in strangers[:3]:
            stranger.settimeout(600)
            try:
                got = stranger.recv(1000)
            except ConnectionResetError:
                got = b""
            self.assertLessEqual(len(got), 48, "a stranger learns nothing")
            stranger.close()

    def test_a_conversation_played_again(self):
        """A relay writes down what a true rank 1 says, and says it again to the next run of the same job."""
        port, relay_port = lease_ports(), lease_ports()
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

        def played_again(number):
            waits = {**env, "WORLD_SIZE": "2", "TANDEM_JOIN_SECONDS": str((4, 60, 300)[number])}
            rank = self.ranks(1, self.arguments("tiny", 5), port=port, env=waits)[0]
            with self.connect(port) as stranger:
                stranger.sendall(said)
                answer = b""
                stranger.settimeout(600)
                with contextlib.suppress(OSError):
                    while data := stranger.recv(1000):
                        answer += data
                self.assertIn(b"tandem-unproved", answer)
            self.assertIn("does not know the secret", self.end(rank, code=2))

        self.again(played_again)

    def test_nothing_listens_once_all_ranks_are_there(self):
        if not shutil.which("ss"):
            self.skipTest("no ss")
        port = lease_ports()
        ranks = self.ranks(2, self.arguments("tiny", ENDLESS, "--run-dir", "run"), port=port)
        self.wait_for_step("run", 5)
        pids = {pid for rank in ranks for pid in processes_of(rank.pid)}
        lines = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True).stdout.splitlines()
        ours = [line for line in lines if any(f"pid={pid}," in line for pid in pids)]
        self.assertEqual(ours, [], "no listener of ours, Gloo's included")
        ranks[0].send_signal(signal.SIGTERM)
        for rank in ranks:
            self.end(rank, code=143)


if __name__ == "__main__":
    unittest.main(verbosity=2)

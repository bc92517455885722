"""Runs under torchrun, torch.distributed.launch and mpirun themselves, and on two hosts.

    python3 hosts_test.py <folder with tandem and tandem-worker> [unittest arguments]

torchrun is taken from TORCHRUN, else from beside this Python (`scripts/setup.sh test` makes that one work), else from the
path. One that is there and can't run fails these tests; where there is none, they are skipped.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

from launched import ENDLESS, JOBS, WORKER, Launched, clean_environment, processes_of
from ports import lease_ports


class Foreign(Launched):
    """torchrun and mpirun themselves."""

    def torchrun(self):
        for path in (os.environ.get("TORCHRUN"), pathlib.Path(sys.executable).parent / "torchrun", shutil.which("torchrun")):
            if path and os.access(path, os.X_OK):
                done = subprocess.run([path, "--help"], capture_output=True, text=True, env=clean_environment())
                if done.returncode == 0:
                    return str(path)
                self.fail(f"{path} can't run; `scripts/setup.sh test` mends that of .venv:\n{done.stderr}")
        self.skipTest("there is no torchrun")

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
            return [torchrun, "--no-python", "--nproc-per-node", str(size), "--master-port", str(lease_ports()), str(WORKER)]
        if which == "standalone":
            return [torchrun, "--standalone", "--no-python", "--nproc-per-node", str(size), str(WORKER)]
        python = pathlib.Path(torchrun).parent / "python3"
        return [str(python), "-m", "torch.distributed.launch", "--use-env", "--no-python", "--nproc-per-node", str(size), "--master-port",
                str(lease_ports()), str(WORKER)]

    def digest(self, which):
        for recipe, _ in JOBS:
            process = self.spawn([*self.commands(3, which), *self.arguments(recipe, 40)], clean_environment(), recipe)
            self.end(process)
            self.assert_same(self.output(process), recipe, 40)

    def test_torchrun(self):
        self.digest("torchrun")
        self.digest("standalone")

    def test_torch_distributed_launch(self):
        self.digest("launch")

    def test_mpirun(self):
        self.digest("mpirun")

    def killed(self, which):
        def attempt(number):  # on a busy machine the run may end before the kill
            run, steps = f"run-{recipe}-{number}", least * 10 ** number
            process = self.spawn([*self.commands(3, which), *self.arguments(recipe, steps, "--run-dir", run)], clean_environment(), run)
            self.wait_for_step(run, 20)
            workers = [pid for pid, (_, line) in processes_of(process.pid).items() if " work " in line]
            self.assertEqual(len(workers), 3)
            os.kill(workers[1], signal.SIGKILL)
            self.end(process)
            output = self.output(process)
            self.assert_same(output, recipe, steps)
            self.assertEqual(output["deaths"], 1)

        for recipe, least in (("tiny", 400), ("tiny-rl", 150)):
            self.again(attempt)

    def test_torchrun_does_not_notice_a_killed_worker(self):
        self.killed("torchrun")

    def test_mpirun_does_not_notice_a_killed_worker(self):
        self.killed("mpirun")

    def test_torchrun_starts_a_job_again_that_lost_a_supervisor_and_it_goes_on(self):
        def attempt(number):  # on a busy machine the run may end before the kill
            run, steps = f"run-{number}", 200 * 10 ** number
            command = self.commands(3, "torchrun")
            command[1:1] = ["--max-restarts", "2"]
            process = self.spawn([*command, *self.arguments("tiny-rl", steps, "--run-dir", run, "--checkpoint-every", "10 steps")],
                                 clean_environment(), run)
            self.wait_for_step(run, 40)
            supervisors = [pid for pid, (parent, line) in processes_of(process.pid).items() if parent == process.pid]
            self.assertEqual(len(supervisors), 3)
            os.kill(supervisors[1], signal.SIGKILL)
            self.end(process)
            self.assert_same(self.output(process), "tiny-rl", steps)

        self.again(attempt)

    def test_torchrun_stopped_and_resumed_on_one_process(self):
        process = self.spawn([*self.commands(3, "torchrun"), *self.arguments("tiny-rl", ENDLESS, "--run-dir", "run")], clean_environment())
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
            self.assert_same(self.output(first[0]), recipe, 40)

    def test_nothing_listens_while_it_trains(self):
        ranks = self.hosts("tiny", ENDLESS, more=("--run-dir", "run"))
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
                self.assert_same(self.output(ranks[0]), recipe, 40)

    def test_a_host_that_vanishes_is_noticed_within_15_seconds(self):
        link = ["ip", "-n", self.names[1], "link", "set", self.names[1][-10:]]
        self.addCleanup(subprocess.run, [*link, "up"])

        def attempt(number):
            subprocess.run([*link, "up"], check=True)
            ranks = self.hosts("tiny", ENDLESS, size=2, more=("--run-dir", f"run-{number}"))
            self.wait_for_step(f"run-{number}", 5)
            begin = time.monotonic()
            subprocess.run([*link, "down"], check=True)
            err = self.end(ranks[0], code=6)
            took = time.monotonic() - begin
            self.assertIn("the supervisor of rank 1", err)
            self.end(ranks[1], code=6)
            self.assertLess(took, 15)

        self.again(attempt)


if __name__ == "__main__":
    unittest.main(verbosity=2)

"""How `train web-test` shares out its agents among GPUs, on machines of the guides that are played by fake libraries.

    python3 set_plan_test.py <folder with tandem and tandem-worker> [unittest arguments]
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import unittest

from run_test import BIN, TANDEM, Case  # noqa: E402  (takes the folder from the command line)

FAKES = pathlib.Path(os.environ.get("TANDEM_TEST_FAKES", BIN.parent / "tests"))
MACHINES = {"3060ti+2x3070": 3, "6000ada+4090": 2, "4x2080ti": 4, "4xh100": 4, "8xh100": 8, "3xb200": 3}


class Played(Case):
    """A build for GPUs, as far as `tandem` itself goes: its CUDA library is there, and the GPUs are played."""

    def setUp(self):
        super().setUp()
        (self.dir / "bin").mkdir()
        shutil.copy(TANDEM, self.dir / "bin" / "tandem")
        (self.dir / "bin" / "libtandem_cuda.so").touch()

    def environment(self, machine):
        (self.dir / "machine.json").write_text(json.dumps(machine if isinstance(machine, dict) else {"preset": machine}))
        env = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
        return {**env, "NO_COLOR": "1", "XDG_CACHE_HOME": str(self.dir / "cache"), "FAKE_NVML_SCRIPT": str(self.dir / "machine.json"),
                "TANDEM_NVML": str(FAKES / "libfake_nvml.so"), "TANDEM_LIBCUDA": str(FAKES / "libfake_cuda.so")}

    def run_on(self, machine, *words, code=0):
        done = subprocess.run([self.dir / "bin" / "tandem", *map(str, words)], cwd=self.dir, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, env=self.environment(machine))
        self.assertEqual(done.returncode, code, f"{words}\n{done.stdout}\n{done.stderr}")
        return done

    def dry(self, machine, *words):
        return json.loads(self.run_on(machine, "train", "web-test", "--dry-run", "--json", *words).stdout)


class Choice(Played):
    def test_several_gpus_are_never_slower_than_some_of_them_and_no_other_way_is_faster(self):
        for machine, count in MACHINES.items():
            whole = self.dry(machine)["forecast_seconds"]
            for gpu in range(count):
                self.assertLess(whole, self.dry(machine, "--devices", f"cuda:{gpu}")["forecast_seconds"], f"{machine}: GPU {gpu} alone")
            for words in (["--gpus", "0,1"], ["--devices", f"cuda:{count - 2},cuda:{count - 1}"], ["--together", "on"], ["--together", "off"],
                          ["--assign", "analysis=0"], ["--assignment", "hierarchical"], ["--strategy", "ddp"]):
                self.assertLessEqual(whole, 1.01 * self.dry(machine, *words)["forecast_seconds"], f"{machine}: {words}")

    def test_unequal_gpus_have_a_batched_run_each_and_the_runner_up_is_told(self):
        output = self.dry("3060ti+2x3070")
        self.assertEqual(sorted(len(job["agent"].split(",")) for job in output["jobs"]), [2, 2, 2])
        self.assertEqual({part["device"] for part in output["plan"]}, {"cuda:0", "cuda:1", "cuda:2"})
        self.assertGreaterEqual(output["runner_up"]["seconds"], output["choice"]["seconds"])
        said = self.run_on("3060ti+2x3070", "train", "web-test", "--dry-run").stderr
        self.assertRegex(said, r"plan    2 agents on cuda:0, 2 on cuda:1, 2 on cuda:2: about \d+ s, by the GPUs' data sheets")
        self.assertRegex(said, r"next    .* on cuda:.*: about \d+ s")
        self.assertRegex(said, r"alone   6 agents on cuda:[12]: about \d+ s", "the faster of them")

    def test_the_card_is_known(self):
        alone = [self.dry(machine, "--devices", "cuda:0")["forecast_seconds"] for machine in ("3060ti+2x3070", "6000ada+4090", "3xb200")]
        self.assertEqual(alone, sorted(alone, reverse=True))
        self.assertGreater(alone[0], 1.2 * alone[2])

    def test_bits_are_promised_for_each_job_by_the_model_of_its_gpu(self):
        bits = self.dry("3060ti+2x3070")["bits"]
        self.assertTrue(any("RTX 3060 Ti" in line and "RTX 3070" not in line for line in bits), bits)
        self.assertTrue(any("RTX 3070" in line and "RTX 3060 Ti" not in line for line in bits), bits)
        self.assertFalse(any("not promised" in line for line in bits), bits)
        self.assertEqual(len(self.dry("4x2080ti")["bits"]), 1)
        shared = self.dry("3060ti+2x3070", "--strategy", "ddp")["bits"]
        self.assertTrue(any("as each run says" in line and "RTX 3060 Ti" in line and "RTX 3070" in line for line in shared), shared)

    def test_overrides_are_kept(self):
        machine = "3060ti+2x3070"
        self.assertEqual(len(self.dry(machine, "--together", "off")["jobs"]), 6)
        self.assertLessEqual(len(self.dry(machine, "--together", "on")["jobs"]), 3)
        parts = self.dry(machine, "--assign", "analysis=0,evolution=1")
        jobs = {job["name"]: job["agent"].split(",") for job in parts["jobs"]}
        where = {agent: part["device"] for part in parts["plan"] for agent in jobs[part["job"]]}
        self.assertEqual((where["analysis"], where["evolution"]), ("cuda:0", "cuda:1"))
        own = self.dry(machine, "--set", "analysis.steps=20000")
        self.assertIn("analysis", [job["agent"] for job in own["jobs"]], "settings of its own, a run of its own")
        self.assertEqual({part["device"] for part in self.dry(machine, "--gpus", "1,2")["plan"]}, {"cuda:1", "cuda:2"})

    def test_a_gpu_that_would_not_help_is_left_out_and_named(self):
        output = self.dry("8xh100")
        self.assertEqual(len(output["left_out"]) + len(output["devices"]), 8)
        self.assertGreaterEqual(len(output["left_out"]), 2)
        said = self.run_on("8xh100", "train", "web-test", "--dry-run").stderr
        self.assertRegex(said, r"free    .*cuda:7: nothing would be faster with them")

    def test_memory_is_what_the_driver_says_and_others_leave(self):
        def stranger(**more):  # no data sheet tells of it
            return {"preset": "4x2080ti", "every": {"name": "NVIDIA Something 12000", **more}}
        sizes = lambda output: sorted(len(job["agent"].split(",")) for job in output["jobs"])  # noqa: E731
        one = ["--devices", "cuda:0"]
        self.assertEqual(sizes(self.dry(stranger(memory_gb=24), *one)), [6])
        self.assertLessEqual(max(sizes(self.dry(stranger(memory_gb=4), *one))), 4, "six replays of 0.55 GB do not fit")
        said = self.run_on(stranger(memory_gb=4), "train", "web-test", "--dry-run", *one).stderr
        self.assertRegex(said, r"memory  room in one run for: cuda:0 [1-4] of 6 agents \(3\.[0-9] GB\)")
        used = self.dry(stranger(memory_gb=24, used_gb=20), *one)
        self.assertLess(max(sizes(used)), 6, "others use it")
        for machine in (stranger(memory_gb=1), stranger(memory_gb=24, used_gb=23.5)):
            refused = self.run_on(machine, "train", "web-test", "--dry-run", code=2)
            self.assert_explains(refused, "requirements does not fit on any of the GPUs")
            self.assertIn("cuda:3 has 0.", refused.stderr)
            self.assertIn("--devices cpu", refused.stderr)
        where = self.dry({"preset": "4x2080ti", "gpus": [{"memory_gb": 1}]})
        self.assertNotIn("cuda:0", {part["device"] for part in where["plan"]}, "nothing fits there")

    def test_an_agent_with_more_to_do_has_a_gpu_to_itself(self):
        output = self.dry("3060ti+2x3070", "--set", "analysis.batch_size=65536", "--devices", "cuda:0,cuda:1")
        jobs = {job["name"]: job["agent"].split(",") for job in output["jobs"]}
        where = {agent: part["device"] for part in output["plan"] for agent in jobs[part["job"]]}
        self.assertEqual({where[agent] for agent in where if agent != "analysis"} & {where["analysis"]}, set(), where)

    def test_what_an_earlier_run_measured_goes_before_the_data_sheet(self):
        before = self.dry("3060ti+2x3070")
        (self.dir / "runs").mkdir()
        (self.dir / "runs" / "speeds.json").write_text(json.dumps({"NVIDIA GeForce RTX 3060 Ti": 2e9, "NVIDIA GeForce RTX 3070": 2e12}))
        after = self.dry("3060ti+2x3070")
        self.assertEqual(after["left_out"], ["cuda:0"], "it was a thousand times slower than the others")
        self.assertIn("earlier runs", after["choice"]["by"])
        self.assertNotEqual(before["forecast_seconds"], after["forecast_seconds"])


class Execution(Played):
    """Real sets, jobs and launchers; the worker is the one that trains nothing."""

    def setUp(self):
        super().setUp()
        shutil.copy(FAKES / "tandem_stand_in_worker", self.dir / "bin" / "tandem-worker")

    def where(self, output):
        """run -> (its agents, its devices)"""
        runs = {}
        for agent, one in output["agents"].items():
            runs.setdefault(pathlib.Path(one["dir"]).name, (set(), set()))
            runs[pathlib.Path(one["dir"]).name][0].add(agent)
            runs[pathlib.Path(one["dir"]).name][1].update(one["devices"])
        return runs

    def test_each_gpu_trains_a_batched_run_of_its_own_unequal_ones_too(self):
        done = self.run_on("3060ti+2x3070", "train", "web-test", "--quick", "--run-dir", "set", "--json")
        runs = self.where(json.loads(done.stdout))
        self.assertEqual([len(agents) for agents, _ in runs.values()], [2, 2, 2], runs)
        self.assertEqual(sorted(min(devices) for _, devices in runs.values()), ["cuda:0", "cuda:1", "cuda:2"])
        self.assertTrue(all(len(devices) == 1 for _, devices in runs.values()), runs)

    def test_a_set_forecasts_what_its_dry_run_forecasts(self):
        for words in ([], ["--strategy", "ddp"]):
            planned = self.dry("3060ti+2x3070", "--quick", *words)["forecast_seconds"]
            done = self.run_on("3060ti+2x3070", "train", "web-test", "--quick", "--json", *words)
            forecast = json.loads(done.stdout)["forecast_seconds"]  # at its start: the stand-in ends before it is measured
            self.assertAlmostEqual(forecast, planned, delta=0.1 * planned, msg="saves and judging are part of both")
            shutil.rmtree(self.dir / "runs")

    def test_a_set_that_was_stopped_goes_on_with_its_runs_on_fewer_gpus(self):
        words = [self.dir / "bin" / "tandem", "train", "web-test", "--quick", "--run-dir", "set"]
        process = subprocess.Popen(words, cwd=self.dir, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                   env={**self.environment("3060ti+2x3070"), "TANDEM_STAND_IN": "endless"})
        self.addCleanup(process.stderr.close)
        begun, said = set(), ""
        while len(begun) < 3:
            said = self.wait_for(process, "begins on")
            begun.add(said.split()[0])
        process.terminate()
        process.wait()
        output = json.loads(self.run_on("3060ti+2x3070", "resume", "set", "--devices", "cuda:1", "--json").stdout)
        runs = self.where(output)
        self.assertEqual(set(runs), begun, "each goes on with its own agents")
        self.assertEqual({device for _, devices in runs.values() for device in devices}, {"cuda:1"})
        self.assertEqual(output["status"], "done")


class PlanSets(Played):
    def setUp(self):
        super().setUp()
        shutil.copy(BIN / "tandem-worker", self.dir / "bin" / "tandem-worker")

    def plan(self, hardware, *words):
        return self.run_on("none", "plan", "web-test", "--hardware", hardware, "--devices", "cpu:1", "--budget", 8, *words)

    def test_plan_has_a_best_line_is_never_slower_with_more_gpus_and_says_what_a_dry_run_there_says(self):
        for hardware, machine in (("3060ti+2x3070", "3060ti+2x3070"), ("6000ada+4090", "6000ada+4090")):
            output = json.loads(self.plan(hardware, "--json").stdout)
            seconds = [row["seconds"] for row in output["set"]]
            self.assertEqual(seconds, sorted(seconds, reverse=True))
            self.assertGreater(output["set"][-1]["speedup"], 1.3)
            self.assertEqual(len(output["best"]), MACHINES[machine])
            self.assertAlmostEqual(seconds[-1], self.dry(machine)["forecast_seconds"], delta=0.03 * seconds[-1], msg="one model")
        said = self.plan("3060ti+2x3070").stdout
        self.assertRegex(said, r"best      3 devices: RTX 3060 Ti, 2 x RTX 3070: 2 agents on RTX 3060 Ti, 2 on each of 2 x RTX 3070; \d+ s")
        self.assertTrue(re.search(r"next      .*; \d+ s", said), said)


if __name__ == "__main__":
    unittest.main()

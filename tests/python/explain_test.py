"""`tandem explain`: what recorded times mean, commands that work, planted slow-downs and live runs.

    python3 explain_test.py <folder with tandem and tandem-worker> [unittest arguments]

A busy machine must change no verdict here: times are written by the test (Recorded), or what is planted is many times what
the rest of a step takes (Planted). Where thresholds lie is decided in src/explain/*_test.cc; how often drawn plants are named
right is measured by bench/explain_score.py.
"""
import json
import os
import pathlib
import shlex
import subprocess
import sys
import unittest

from run_test import BIN, Case, QUICK  # noqa: E402  (takes the folder from the command line)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import explain_score as score  # noqa: E402

# In the order of ranks.jsonl (src/explain/rank_times.cc).
SUMS = ("steps", "step", "work", "load", "combine", "late", "update", "snapshot", "card", "operations", "counted_steps", "operation",
        "delay", "made", "asleep")
STEPS = 100


def worker(work, combine=0.0, load=0.0, shards=1, **more):
    """Seconds of one step."""
    update = 0.0002
    return {"shards": shards, "work": work, "combine": combine, "load": load, "update": update, "step": work + combine + load + update,
            "operations": 100, "operation": 2e-6, **more}


def line(workers, steps, t, **more):
    ranks = []
    for rank, one in enumerate(workers):
        times = [one.get(name, 0.0) * steps for name in SUMS]
        times[SUMS.index("steps")] = steps
        times[SUMS.index("counted_steps")] = steps
        times[SUMS.index("operation")] = one["operation"]
        ranks.append({"rank": rank, "device": f"cpu:{rank}", "shards": one["shards"], "times": times, **({"gpu": one["gpu"]} if "gpu" in one else {})})
    return {"t": t, "step": 3 + steps, "generation": 1, "ranks": ranks, **more}


class Recorded(Case):
    """Runs whose times the test has written: the same verdict on every machine."""

    def run_with(self, *args, name="a run"):
        self.tandem("train", "tiny", *QUICK, *args, "--steps", 4, "--run-dir", name)
        return self.dir / name

    def output(self, run, *workers, gpus=(), **more):
        (run / "ranks.jsonl").write_text("".join(json.dumps(line(workers, *at, **more)) + "\n" for at in ((0, 1000.0), (STEPS, 1010.0))))
        (run / "gpus.jsonl").write_text("".join(json.dumps({"t": t, **gpus}) + "\n" for t in range(1000, 1011)) if gpus else "")
        output = json.loads(self.tandem("explain", run.relative_to(self.dir), "--json").stdout)
        self.assertAlmostEqual(sum(output["shares"].values()), 1, delta=1e-3)
        self.assertTrue(output["enough"])
        return output

    def assert_named(self, output, cause, *words):
        self.assertEqual(score.named(output), cause, output)
        found = output["findings"][0]
        self.assertTrue(found["why"] and found["remedy"] and found["command"], found)
        for word in words:
            self.assertIn(word, found["command"])
        return found

    def assert_works(self, found):
        """The command as it stands, but without training."""
        words = shlex.split(found["command"])
        self.assertEqual(words[0], "tandem", found)
        self.tandem(*words[1:], "--dry-run")

    def test_every_cause_is_named_and_its_command_works(self):
        run = self.run_with("--set", "shards=2", "--devices", "cpu:2")
        found = self.assert_named(self.output(run, worker(0.01, 0.05), worker(0.06)), "imbalance", "'a run/recipe.toml'", "--devices cpu:1")
        self.assertEqual((found["rank"], found["text"]), (1, "worker 0 (cpu:0) waits for worker 1 (cpu:1) (up to 83 % of each step)"))
        self.assert_works(found)
        self.assert_works(self.assert_named(self.output(run, worker(0.01, 0.012), worker(0.022)), "imbalance", "--set shards=16"))
        self.assert_works(self.assert_named(self.output(run, worker(0.01, 0.03), worker(0.01, 0.03)), "communication", "--batch-size"))
        self.assert_works(self.assert_named(self.output(run, worker(0.01, 0.001), worker(0.01, 0.001), worker(0, shards=0)), "idle", "--set shards="))
        small = self.assert_named(self.output(run, worker(0.0003, 0.0001, 0.00001, operations=100), worker(0.0003, 0.0001, 0.00001, operations=100)),
                                  "small-batch", "--batch-size")
        self.assert_works(small)
        self.assert_works({"command": small["command"] + " " + " ".join(w for w in small["remedy"].split(")")[0].split() if "=" in w or w == "--set")})
        self.assertEqual(score.named(self.output(run, worker(0.02, 0.0005), worker(0.0195, 0.001))), "healthy")

        run = self.run_with("--devices", "cpu:1", name="alone")
        slow = {"made": 0.03, "asleep": 0.029}
        self.assert_works(self.assert_named(self.output(run, worker(0.005, load=0.03, **slow)), "loader", "--loader-threads 7"))
        self.assertEqual(score.named(self.output(run, worker(0.015, load=0.005, made=0.005), idle=0.0, cores=1)), "healthy")
        self.assert_works(self.assert_named(self.output(run, worker(0.001, operations=400, shards=24)), "launches", "--set shards=1"))
        others = [{"pid": 4711, "name": "cc1plus", "cores": 1.7}]
        found = self.assert_named(self.output(run, worker(0.02, delay=0.012), others=others), "crowded", "ps -eo")  # it is over: that process may be another by now
        self.assertIn("cc1plus (process 4711) took 1.7 cores", found["why"])

    def test_heat_and_idle_gpus_are_told_from_what_the_guard_wrote(self):
        run = self.run_with("--devices", "cpu:1")
        gpu = {"index": 0, "util": 97, "sm_mhz": 700, "sm_max_mhz": 1400}
        hot = {"gpus": [{**gpu, "throttle": ["thermal_hw"]}]}
        found = self.assert_named(self.output(run, worker(0.02, gpu=0), gpus=hot), "throttling", "--power 80%")
        self.assert_works(found)
        idle = {"gpus": [gpu], "others": [{"index": 1, "util": 0}]}
        found = self.assert_named(self.output(run, worker(0.02, gpu=0), gpus=idle), "idle", "cuda:1")
        self.assertEqual(found["text"], "only GPU 0 is busy; GPU 1 has nothing to do")

    def test_a_stopped_run_is_resumed_wherever_its_folder_lies(self):
        slow = {"made": 0.03, "asleep": 0.029}
        self.tandem("train", "tiny", *QUICK, "--steps", 1000000, "--max-time", "1s", "--devices", "cpu:1", "--run-dir", "there", code=75)
        (self.dir / "some where").mkdir()
        (self.dir / "there").rename(self.dir / "some where/else")
        found = self.assert_named(self.output(self.dir / "some where/else", worker(0.005, load=0.03, **slow)), "loader")
        self.assertEqual(found["command"], "tandem resume 'some where/else' --loader-threads 7")
        self.assert_works(found)


class Planted(unittest.TestCase):
    """Real runs, with plants that take many times as long as the rest of the step, whoever else uses the cores."""
    SHAPE = ["--set", "hidden=64", "--set", "shards=2", "--batch-size", "128"]

    @classmethod
    def setUpClass(cls):
        cls.scorer = score.Scorer(BIN)
        cls.addClassCleanup(cls.scorer.close)

    def assert_named(self, case, steps=60):
        for _ in range(3):  # a machine that stands still for a moment spoils one
            output = self.scorer.run_steps(case, case.kind, steps)
            # Which of several stands first depends on who else uses the cores; Recorded says it of given times.
            causes = [found["cause"] for found in output["findings"]]
            if case.kind in causes:
                break
        self.assertIn(case.kind, causes, output)

    def test_a_slow_loader(self):
        self.assert_named(score.Case("loader", "", [*self.SHAPE, "--loader-threads", "1"], "cpu:1", {"TANDEM_SLOW_LOADER": "40"}))

    def test_a_slow_link(self):
        self.assert_named(score.Case("communication", "", self.SHAPE, "cpu:2", {"TANDEM_SLOW_LINK": "0.5"}))

    def test_a_slower_slot_with_as_many_shards(self):
        self.assert_named(score.Case("imbalance", "", self.SHAPE, "cpu:2@0.5,0.01"))

    def test_a_throttled_gpu(self):
        machine = score.gpus(1, 1, [{"at": 0, "gpu": 0, "throttle": 64}])
        shape = ["--set", "hidden=384", "--set", "shards=1", "--batch-size", "96", "--guard", "watch"]
        self.assert_named(score.Case("throttling", "", shape, "cpu:1@0.05", machine=machine))

    def test_a_gpu_that_has_nothing_to_do(self):
        self.assert_named(score.Case("idle", "", self.SHAPE, "cpu:1@0.05", machine=score.gpus(2, 1)))


def waits_for_cores_are_told():
    try:
        return int(pathlib.Path("/proc/thread-self/schedstat").read_text().split()[0]) > 0
    except (OSError, ValueError, IndexError):
        return False


class Live(Case):
    def begin(self, *args, env):
        process = subprocess.Popen([BIN / "tandem", *map(str, args)], cwd=self.dir, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, "NO_COLOR": "1", **env}, stdin=subprocess.DEVNULL)
        self.addCleanup(process.stderr.close)
        self.addCleanup(lambda: process.poll() is None and (process.kill(), process.wait()))
        return process


class Crowd(Live):
    """Alone, for it takes all cores."""

    @unittest.skipUnless(waits_for_cores_are_told(), "the kernel does not tell how long a thread waited for a core")
    def test_programs_that_take_the_cores_are_named(self):
        for _ in range(3 * len(os.sched_getaffinity(0))):
            spinner = subprocess.Popen(["sh", "-c", "while :; do :; done"])
            self.addCleanup(spinner.wait)
            self.addCleanup(spinner.kill)
        args = ["--set", "hidden=256", "--set", "shards=1", "--batch-size", "96", "--devices", "cpu:1", "--steps", 10000000]
        process = self.begin("train", "tiny", *args, "--run-dir", "crowded", env={})
        found = {}
        while "(process" not in found.get("why", ""):  # it looks who it is once it has waited for cores for a second
            self.assertIsNone(process.poll())
            output = self.tandem("explain", "crowded", "--json", code=None)
            if output.returncode == 0:
                found = next((one for one in json.loads(output.stdout)["findings"] if one["cause"] == "crowded"), {})
        self.assertRegex(found["text"], r"other programs take the cores: \d\d % of each step waits for a core")
        self.assertRegex(found["why"], r"\w \(process \d+\) took \d+\.\d cores")
        self.assertRegex(found["command"], r"^renice -n 19 -p( \d+)+$")


class Program(Live):
    def test_a_live_run_says_once_who_waits_for_whom_and_keeps_its_bits(self):
        # Whatever the noise: the second slot plays a fiftieth of the first one's speed, by resting: its steps are so long that waiting for a core is nothing.
        env = {"TANDEM_EXPLAIN_SPEED": "3"}
        even = ["train", "tiny", *QUICK, "--steps", 200, "--json"]
        watched = json.loads(self.tandem(*even, "--devices", "cpu:2@1,0.2", env=env).stdout)
        self.assertEqual(watched["digest"], json.loads(self.tandem(*even, "--devices", "cpu:1").stdout)["digest"])
        args = ["--set", "hidden=64", "--set", "shards=2", "--batch-size", 128, "--devices", "cpu:2@0.5,0.01", "--steps", 10000000]
        process = self.begin("train", "tiny", *args, "--run-dir", "uneven", env=env)
        said = self.wait_for(process, "waits for worker 1")  # a crowd may be named before
        self.assertRegex(said, r"slow +worker 0 \(cpu:0\) waits for worker 1 \(cpu:1\) \(up to \d\d % of each step\); why: .+; do: .+: tandem ")
        while not (output := json.loads(self.tandem("explain", "uneven", "--json").stdout))["enough"]:  # its records come once a second
            self.assertIsNone(process.poll())
        found = next(one for one in output["findings"] if one["cause"] == "imbalance")
        self.assertEqual((output["live"], found["rank"]), (True, 1))
        self.assertIn(found["command"].split()[1], ("leave", "train"))
        if found["command"].startswith("tandem leave"):  # which of the two is decided in src/explain/remedies_test.cc
            self.tandem(*shlex.split(found["command"])[1:])
            self.wait_for(process, "rank 1 (cpu:1) has left")
        process.terminate()
        rest = process.stderr.read()
        process.wait()
        self.assertNotIn("waits for worker 1", rest)
        events = [json.loads(one) for one in (self.dir / "uneven" / "events.jsonl").read_text().splitlines()]
        self.assertEqual(len([one for one in events if one["kind"] == "slow" and "waits for worker 1" in one["text"]]), 1)

    def test_the_judgement_of_a_whole_run_is_in_its_report_and_in_runs_show(self):
        self.tandem("train", "tiny", "--set", "hidden=64", "--set", "shards=2", "--batch-size", 128, "--devices", "cpu:2@0.5,0.01", "--steps", 60,
                    "--run-dir", "uneven")
        judged = json.loads((self.dir / "uneven" / "explain.json").read_text())
        self.assertIn("imbalance", [found["cause"] for found in judged["findings"]])
        self.assertIn(judged["verdict"], self.tandem("runs", "show", "uneven").stdout)
        self.assertIn("waits for worker 1", (self.dir / "uneven" / "report.html").read_text())

    def test_bad_input_is_explained(self):
        self.assert_explains(self.tandem("explain", code=2), "run")
        run = self.train(*QUICK, "--steps", 1)
        self.assert_explains(self.tandem("explain", run["run"], code=2), "ranks.jsonl")
        (pathlib.Path(run["dir"]) / "ranks.jsonl").write_text('{"ranks": [{"rank": "x", "times": [1, null, "y"]}]}\nnot JSON\n{"t": 3}\n')
        self.assertIn("too few steps to judge", self.tandem("explain", run["run"]).stdout)


if __name__ == "__main__":
    unittest.main()

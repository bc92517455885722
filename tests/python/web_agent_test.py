"""The recipe web-agent through the real programs: one digest on any workers, through a kill, a stop and a resume.

    python3 web_agent_test.py <folder with tandem and tandem-worker> [unittest arguments]
"""
import json
import pathlib
import unittest

from run_test import Case  # noqa: E402  (takes the folder from the command line)

SMALL = ["--set", "net.hidden=[32,16]", "--set", "net.head=8", "--batch-size", "64", "--set", "environments=2",
         "--set", "capacity=4000", "--set", "learning_starts=400", "--seed", "5"]
WAYS = (["--devices", "cpu:2"], ["--devices", "cpu:3@1,0.5,0.5"])


class WebAgent(Case):
    def train(self, *args, **kwargs):
        return super().train(*SMALL, *args, recipe="web-agent", **kwargs)

    def metrics(self, run):
        return [json.loads(line) for line in (pathlib.Path(run["dir"]) / "metrics.jsonl").read_text().splitlines()]


class Digest(WebAgent):
    def test_each_agent_has_one_digest_on_any_workers(self):
        seen = set()
        for agent in ("requirements", "generation", "execution", "observation", "analysis", "evolution"):
            one = self.train("--steps", 40, "--set", f"agent={agent}", "--devices", "cpu:1")
            seen.add(one["digest"])
            for way in WAYS if agent == "analysis" else WAYS[1:]:
                self.assertEqual(self.train("--steps", 40, "--set", f"agent={agent}", *way)["digest"], one["digest"])
        self.assertEqual(len(seen), 6)

    def test_precision_accumulation_and_attention_keep_it(self):
        for more in (["--precision", "bf16"], ["--precision", "fp16"], ["--set", "accumulation=2"],
                     ["--set", "net.attention=true", "--set", "net.attention_heads=2"]):
            one = self.train("--steps", 20, *more, "--devices", "cpu:1")
            self.assertEqual(self.train("--steps", 20, *more, *WAYS[1])["digest"], one["digest"], more)


class Faults(WebAgent):
    def test_a_killed_worker_loses_no_bit(self):
        whole = self.train("--steps", 40, "--devices", "cpu:1")
        for way in WAYS:
            done = self.tandem("train", "web-agent", *SMALL, "--steps", 40, "--json", *way,
                               env={"TANDEM_FAULT": "in-phase rank=1 step=20 do=kill"})
            output = json.loads(done.stdout)
            self.assertEqual(output["digest"], whole["digest"], done.stderr)
            self.assertEqual([line["step"] for line in self.metrics(output)], list(range(1, 41)), "every step once")

    def test_stopped_and_resumed_on_other_workers_keeps_every_bit(self):
        whole = self.train("--steps", 40, "--devices", "cpu:1")
        for stop, way in ((1, WAYS[0]), (23, WAYS[1])):
            part = self.train("--steps", stop, "--devices", "cpu:1")
            rest = json.loads(self.tandem("resume", part["run"], "--steps", 40, *way, "--json").stdout)
            self.assertEqual(rest["digest"], whole["digest"], f"stopped at {stop}")


class Program(WebAgent):
    def test_its_metrics_are_told(self):
        last = self.metrics(self.train("--steps", 60, "--set", "agent=analysis"))[-1]
        for name in ("epsilon", "average_return", "mean_q"):
            self.assertIn(name, json.dumps(last))

    def test_quick_is_printed_as_such_and_flags_go_before_it(self):
        output = self.tandem("train", "web-agent", "--quick", "--steps", 3, "--dry-run").stdout
        self.assertRegex(output, r"batch_size\s*=\s*64.*--quick")
        self.assertRegex(output, r"steps\s*=\s*3\b.*--steps")

    def test_bad_input_is_explained(self):
        self.assert_explains(self.tandem("train", "web-agent", "--set", "agent=analyst", code=2), "analysis")
        self.assert_explains(self.tandem("train", "web-agent", "--set", "capacity=100", code=2), "capacity")
        self.assert_explains(self.tandem("train", "tiny", "--quick", code=2), "web-agent")


if __name__ == "__main__":
    unittest.main()

"""`tandem runs rm` and `runs prune`: what goes, what stays, and who is asked.

    python3 removal_test.py <folder with tandem and tandem-worker> [unittest arguments]
"""
import fcntl
import json
import os
import pty
import shutil
import signal
import subprocess
import time
import unittest

from run_test import TANDEM, Case, QUICK  # noqa: F401  (takes the folder from the command line)

DAY = 86400


class Removal(Case):
    def make(self, name, recipe="tiny", loss=1.0, status="done", days=0, **extra):
        """A run folder as a finished training leaves it, as far as these commands look."""
        run = self.dir / "runs" / name
        (run / "checkpoints/step-00000010").mkdir(parents=True)
        (run / "checkpoints/step-00000010/state.safetensors").write_bytes(b"x" * 100_000)
        (run / "run.json").write_text(json.dumps({"id": name, "recipe": recipe, "status": status, "loss": loss, "step": 10,
                                                  "started": "2026-01-01T00:00:00Z", "extra": extra}))
        then = time.time() - days * DAY
        os.utime(run / "run.json", (then, then))
        return run

    def names(self):
        return sorted(entry.name for entry in (self.dir / "runs").iterdir() if not entry.name.startswith("index.sqlite"))

    def answer(self, text, *args):
        """Answers the question in a terminal; returns exit code and what was shown."""
        master, slave = pty.openpty()
        process = subprocess.Popen([TANDEM, *args], cwd=self.dir, stdin=slave, stdout=slave, stderr=slave, env={**os.environ, "NO_COLOR": "1"})
        os.close(slave)
        shown = b""
        try:
            while b"[y/N]" not in shown:
                shown += os.read(master, 4096)
            os.write(master, text.encode())
            while True:
                shown += os.read(master, 4096)
        except OSError:  # the other end is closed
            pass
        os.close(master)
        return process.wait(timeout=600), shown.decode()

    def test_rm_asks_and_takes_the_named_runs_alone(self):
        for name in ("tiny-a", "tiny-b", "tiny-c"):
            self.make(name)
        code, shown = self.answer("n\n", "runs", "rm", "tiny-a", "tiny-b")
        self.assertEqual((code, self.names()), (0, ["tiny-a", "tiny-b", "tiny-c"]), shown)
        self.assertRegex(shown, r"remove 2 runs, 2\d\d kB\?")
        code, shown = self.answer("y\n", "runs", "rm", "tiny-a", "tiny-b")
        self.assertEqual((code, self.names()), (0, ["tiny-c"]), shown)
        self.assertEqual(json.loads(self.tandem("runs", "--json").stdout)["runs"][0]["id"], "tiny-c")

    def test_where_nobody_can_be_asked_it_needs_yes(self):
        self.make("tiny-a")
        err = self.tandem("runs", "rm", "tiny-a", code=2).stderr
        for words in ("nothing was removed", "nobody can be asked", "--yes"):
            self.assertIn(words, err)
        out = json.loads(self.tandem("runs", "rm", "tiny-a", "--dry-run", "--json").stdout)
        self.assertEqual([run["run"] for run in out["would_remove"]], ["tiny-a"])
        self.assertGreaterEqual(out["bytes"], 100_000)
        self.assertEqual(self.names(), ["tiny-a"])
        self.tandem("runs", "rm", "tiny-a", "--yes")
        self.assertEqual(self.names(), [])

    def test_a_name_that_fits_none_or_two_removes_nothing(self):
        for name in ("tiny-a1", "tiny-a2"):
            self.make(name)
        self.assertIn("names 2 runs", self.tandem("runs", "rm", "tiny-a", "--yes", code=2).stderr)
        self.assertIn("no run named", self.tandem("runs", "rm", "tiny-a1", "other", "--yes", code=2).stderr)
        self.assertEqual(self.names(), ["tiny-a1", "tiny-a2"])

    def test_links_are_never_followed(self):
        elsewhere = self.make("tiny-elsewhere").rename(self.dir / "elsewhere")
        (self.dir / "runs/tiny-link").symlink_to(elsewhere)
        for name in ("tiny-link", "runs/tiny-link", "tiny-elsewhere"):
            self.assertIn("links are not followed", self.tandem("runs", "rm", name, "--yes", code=2).stderr, name)
        self.tandem("runs", "prune", "--older-than", "0s", "--yes")
        self.assertTrue((elsewhere / "run.json").exists())
        run = self.make("tiny-a")
        kept = self.dir / "kept"
        kept.mkdir()
        (kept / "thesis.txt").write_text("mine")
        (run / "checkpoints/link").symlink_to(kept)
        self.tandem("runs", "rm", "tiny-a", "--yes")
        self.assertEqual((kept / "thesis.txt").read_text(), "mine")
        self.assertEqual(self.names(), ["tiny-link"])
        self.tandem("runs", "rm", elsewhere, "--yes")   # by its own name it goes, and so does the way to it
        self.assertEqual((elsewhere.exists(), self.names()), (False, []))

    def test_a_run_whose_checkpoints_are_a_link_stays_and_so_does_what_is_behind(self):
        others = self.dir / "others"
        (others / "step-00000010").mkdir(parents=True)
        (others / "step-00000010/model.safetensors").write_text("theirs")
        whole, one = self.make("tiny-whole", days=30), self.make("tiny-one", days=30)
        job = self.make("web-test-a", recipe="web-test", days=30) / "agents/analysis"
        job.mkdir(parents=True)
        shutil.rmtree(whole / "checkpoints")
        links = {"tiny-whole": whole / "checkpoints", "tiny-one": one / "checkpoints/step-00000020", "web-test-a": job / "checkpoints"}
        for link in links.values():
            link.symlink_to(others if link.name == "checkpoints" else others / "step-00000010")
        for name, link in links.items():
            err = self.tandem("runs", "rm", name, "--yes", code=2).stderr
            self.assertIn(f"{link} is a symbolic link", err)
        self.assertEqual(self.tandem("runs", "prune", "--older-than", "7d", "--yes").stderr.count("is a symbolic link"), 3)
        self.assertEqual(self.names(), ["tiny-one", "tiny-whole", "web-test-a"])
        self.assertEqual((others / "step-00000010/model.safetensors").read_text(), "theirs")

    def test_left_overs_of_a_removal_go_in_the_folder_of_runs_alone_and_never_what_is_no_such_left_over(self):
        runs, kept = self.dir / "runs", self.dir / "kept"
        for folder in (runs / ".removed-old/run", runs / ".removed-empty", runs / ".removed-photos/2026", runs / ".removed-run/run",
                       self.dir / ".removed-outside/run", kept):
            folder.mkdir(parents=True)
            (folder / "file").write_text("text") if folder.name != ".removed-empty" else None
        (runs / ".removed-run/mine.txt").write_text("mine")
        (runs / ".removed-link").symlink_to(kept)
        (runs / ".removed-inner").mkdir()
        (runs / ".removed-inner/run").symlink_to(kept)
        self.make("tiny-a")
        self.tandem("runs", "rm", "tiny-a", "--yes")
        self.assertEqual(self.names(), [".removed-inner", ".removed-link", ".removed-photos", ".removed-run"])
        self.assertTrue((self.dir / ".removed-outside/run/file").exists())
        self.assertTrue((kept / "file").exists())
        self.make("photos")
        self.assertIn(".removed-photos is in the way", self.tandem("runs", "rm", "photos", "--yes", code=2).stderr)
        self.assertTrue((runs / "photos/run.json").exists() and (runs / ".removed-photos/2026/file").exists())

    def test_a_run_in_use_is_never_removed(self):
        process = self.start("train", "tiny", *QUICK, "--steps", "1000000", "--devices", "cpu:1", "--run-dir", "runs/tiny-live")
        self.make("tiny-old", days=9)
        self.assertIn("is running", self.tandem("runs", "rm", "tiny-live", "--yes", code=2).stderr)
        run_json = self.dir / "runs/tiny-live/run.json"
        done = self.tandem("runs", "prune", "--older-than", "0s", "--yes")
        self.assertRegex(done.stderr, r"stays: .*is running")
        self.assertTrue(run_json.exists())
        self.assertFalse((self.dir / "runs/tiny-old").exists())
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=600)
        self.assertEqual(process.returncode, 143)
        self.tandem("runs", "rm", "runs/tiny-live", "--yes")
        self.assertFalse(run_json.exists())

    def test_a_lock_that_is_held_keeps_a_run_and_those_of_its_set(self):
        run = self.make("web-test-a", recipe="web-test")
        job = run / "agents/analysis"
        job.mkdir(parents=True)
        (job / "run.json").write_text('{"id": "web-agent-x", "status": "done"}')
        (run / "agents.json").write_text(json.dumps({"schema": 1, "strategy": "agents", "agents": {
            "analysis": {"runs": ["agents/analysis"], "best": "agents/analysis"}},
            "jobs": [{"name": "analysis", "agent": "analysis", "run": "agents/analysis"}]}))
        for place in (run, job):
            with open(place / ".lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                self.assertIn("in use", self.tandem("runs", "rm", "web-test-a", "--yes", code=2).stderr, place)
        self.tandem("runs", "rm", "web-test-a", "--yes")
        self.assertEqual(self.names(), [])

    def test_a_job_of_a_set_that_goes_on_is_not_removed_before_or_after_its_training(self):
        run = self.make("web-test-a", recipe="web-test")
        job = run / "agents/analysis"
        job.mkdir(parents=True)
        (job / "run.json").write_text('{"id": "web-agent-x", "status": "created"}')
        (run / "agents.json").write_text(json.dumps({"schema": 1, "agents": {"analysis": {"runs": ["agents/analysis"]}}}))
        with open(run / ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.assertIn("in use", self.tandem("runs", "rm", job, "--yes", code=2).stderr)
        self.assertTrue(job.exists())
        self.tandem("runs", "rm", job, "--yes")
        self.assertFalse(job.exists())

    def test_prune_keeps_the_best_of_each_recipe_and_what_is_young(self):
        self.make("tiny-best", loss=0.1, days=30)
        self.make("tiny-worse", loss=0.9, days=30)
        self.make("tiny-young", loss=0.9, days=1)
        self.make("web-test-best", recipe="web-test", days=30, **{"analysis/score": 0.9, "evolution/score": 0.8})
        self.make("web-test-worse", recipe="web-test", days=30, **{"analysis/score": 0.95, "evolution/score": 0.1})
        self.tandem("runs", "prune", "--keep-best", "--older-than", "7d", "--dry-run")
        self.assertEqual(len(self.names()), 5)
        out = json.loads(self.tandem("runs", "prune", "--keep-best", "--older-than", "7d", "--yes", "--json").stdout)
        self.assertEqual(sorted(run["run"] for run in out["removed"]), ["tiny-worse", "web-test-worse"])
        self.assertEqual(sorted(run["run"] for run in out["kept"]), ["tiny-best", "web-test-best"])
        self.assertEqual(self.names(), ["tiny-best", "tiny-young", "web-test-best"])

    def test_prune_compares_only_finished_runs_of_one_recipe_agent_and_environment(self):
        self.make("tiny-done", loss=0.5, days=30)
        self.make("tiny-failed", loss=0.1, status="failed", days=30)
        for name, agent, score in (("web-agent-a", "analysis", 0.9), ("web-agent-e", "evolution", 0.5), ("web-agent-f", "evolution", 0.4)):
            run = self.make(name, recipe="web-agent", days=30, score=score)
            (run / "recipe.toml").write_text(f'recipe = "web-agent"\nagent = "{agent}"\n')
        self.make("web-test-six", recipe="web-test", days=30, **{"analysis/score": 0.8, "evolution/score": 0.8})
        self.make("web-test-one", recipe="web-test", days=30, **{"analysis/score": 0.95})
        self.make("own-without-a-figure", recipe="own", loss=None, days=30)
        out = json.loads(self.tandem("runs", "prune", "--keep-best", "--yes", "--json").stdout)
        self.assertEqual(sorted(run["run"] for run in out["removed"]), ["tiny-failed", "web-agent-f"])

    def test_prune_by_a_metric_that_no_run_has_removes_nothing(self):
        self.make("tiny-a", days=30)
        self.make("web-test-a", recipe="web-test", days=30, **{"analysis/score": 0.8})
        self.assertIn("has the metric", self.tandem("runs", "prune", "--keep-best", "--metric", "scoer", "--yes", code=2).stderr)
        self.tandem("runs", "prune", "--keep-best", "--metric", "score", "--yes")
        self.assertEqual(self.names(), ["tiny-a", "web-test-a"])

    def test_a_run_stays_that_a_run_in_use_took_an_agent_from(self):
        old = self.make("web-test-a", recipe="web-test", days=30)
        self.make("web-agent-b", recipe="web-agent", days=30)
        (old / "current.json").write_text(json.dumps({"schema": 1, "agents": {"analysis": {"run": "../web-agent-b"}}}))
        with open(old / ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.tandem("runs", "prune", "--older-than", "7d", "--yes")
        self.assertEqual(self.names(), ["web-agent-b", "web-test-a"])
        self.tandem("runs", "prune", "--older-than", "7d", "--yes")
        self.assertEqual(self.names(), [])

    def test_a_set_whose_agents_share_a_run_can_be_removed(self):
        run = self.make("web-test-a", recipe="web-test")
        (run / "agents/both").mkdir(parents=True)
        (run / "agents/both/run.json").write_text('{"id": "web-agent-x", "status": "done"}')
        (run / "agents.json").write_text(json.dumps({"schema": 1, "strategy": "agents", "agents": {
            name: {"runs": ["agents/both"], "best": "agents/both"} for name in ("analysis", "evolution")},
            "jobs": [{"name": name, "agent": name, "run": "agents/both"} for name in ("analysis", "evolution")]}))
        self.tandem("runs", "rm", "web-test-a", "--yes")
        self.assertEqual(self.names(), [])

    def test_of_two_copies_of_a_run_the_folder_says_which(self):
        for folder in ("tiny-a", "tiny-copy"):
            run_json = self.make(folder) / "run.json"
            run_json.write_text(run_json.read_text().replace('"tiny-copy"', '"tiny-a"').replace('"tiny-a"', '"tiny-q1w2e3"'))
        err = self.tandem("runs", "rm", "tiny-q1w2e3", "--yes", code=2).stderr
        self.assertIn("tiny-copy", err)
        self.tandem("runs", "rm", "runs/tiny-copy", "--yes")
        self.assertEqual(self.names(), ["tiny-a"])

    def test_prune_wants_a_rule_and_a_duration(self):
        self.make("tiny-a", days=30)
        for words, line in (("needs to know what may go", []), ("is no duration", ["--older-than", "soon"])):
            err = self.tandem("runs", "prune", "--yes", *line, code=2).stderr
            self.assertIn(words, err)
            self.assertIn("--older-than 7d", err)
        self.assertEqual(self.names(), ["tiny-a"])

    def test_a_run_that_serves_another_stays_unless_both_go(self):
        old = self.make("web-test-a", recipe="web-test", days=1)
        self.make("web-agent-b", recipe="web-agent", days=30)
        (old / "current.json").write_text(json.dumps({"schema": 1, "agents": {"analysis": {"run": "../web-agent-b"}}}))
        self.assertIn("in use by web-test-a", self.tandem("runs", "rm", "web-agent-b", "--yes", code=2).stderr)
        self.assertIn("took an agent from it", self.tandem("runs", "prune", "--older-than", "7d", "--yes").stderr)
        self.assertEqual(self.names(), ["web-agent-b", "web-test-a"])
        self.tandem("runs", "rm", "web-agent-b", "web-test-a", "--yes")
        self.assertEqual(self.names(), [])

    def test_a_kill_in_the_middle_leaves_no_half_a_run_and_the_next_removal_ends_it(self):
        run = self.make("tiny-a")
        for i in range(3000):
            (run / f"logs-{i}").touch()
        process = subprocess.Popen([TANDEM, "runs", "rm", "tiny-a", "--yes"], cwd=self.dir, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        while run.exists() and process.poll() is None:
            pass
        process.kill()
        process.wait()
        self.assertNotIn("tiny-a", self.names())
        self.assertEqual(json.loads(self.tandem("runs", "--json").stdout)["runs"], [])
        self.make("tiny-b")
        self.tandem("runs", "rm", "tiny-b", "--yes")
        self.assertEqual(self.names(), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)

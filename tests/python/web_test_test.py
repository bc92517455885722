"""The recipe web-test through the real programs: six agents as jobs, each with the digest of a run of its own.

    python3 web_test_test.py <folder with tandem and tandem-worker> [unittest arguments]
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time
import unittest

import chromium
from run_test import QUICK, TANDEM, Case  # noqa: E402  (takes the folder from the command line)

AGENTS = ("requirements", "generation", "execution", "observation", "analysis", "evolution")
SMALL = ["--set", "net.hidden=[32,16]", "--set", "net.head=8", "--batch-size", "64", "--set", "environments=2",
         "--set", "capacity=4000", "--set", "learning_starts=400", "--seed", "5", "--set", "shards=4"]
STEPS = 40


class WebTest(Case):
    _single = {}

    def single(self, agent, steps=STEPS):
        """The digest of a run of web-agent alone."""
        if (agent, steps) not in WebTest._single:
            run = self.train(*SMALL, "--steps", steps, "--set", f"agent={agent}", "--devices", "cpu:1", recipe="web-agent")
            WebTest._single[agent, steps] = run["digest"]
        return WebTest._single[agent, steps]

    def assert_same(self, output, agents=AGENTS, steps=STEPS):
        self.assertEqual(set(output["agents"]), set(agents))
        for agent in agents:
            one = output["agents"][agent]
            self.assert_bits(one["digest"], self.single(agent, steps), f"{agent} {one}")
            lines = (pathlib.Path(one["dir"]) / "metrics.jsonl").read_text().splitlines()
            self.assertEqual([json.loads(line)["step"] for line in lines], list(range(1, steps + 1)), "every step once")

    def begin(self, *args, env=None):
        process = subprocess.Popen([TANDEM, *map(str, args)], cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, env={**os.environ, "NO_COLOR": "1", **(env or {})}, start_new_session=True)
        self.addCleanup(lambda: (process.poll() is None and process.kill(), process.communicate()))
        return process

    def wait_until(self, what, seconds=600):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = what()
            if found:
                return found
            time.sleep(0.02)  # lint: allow(sleep) between two looks at a condition that has its own end
        self.fail("it never happened")

    def kill(self, run, kind, agent):
        pid = self.processes(run).get(kind, {}).get(agent)
        self.assertIsNotNone(pid, f"{agent} has ended")
        os.kill(pid, signal.SIGKILL)

    def processes(self, run):
        """"resume" (launchers) and "work" (workers) -> agent -> pid."""
        found = {}
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes().decode().split("\0")
                here = pathlib.Path(os.readlink(entry / "cwd")) == self.dir.resolve()
            except (OSError, UnicodeDecodeError):
                continue
            if here and len(words) > 2 and words[1] in ("resume", "work") and words[2].startswith(f"{run}/agents/"):
                found.setdefault(words[1], {})[pathlib.Path(words[2]).name] = int(entry.name)
        return found

    def steps_of(self, run, agent):
        try:
            return len((self.dir / run / "agents" / agent / "metrics.jsonl").read_bytes().splitlines())
        except OSError:
            return 0


class Digest(WebTest):
    def test_each_agent_has_the_digest_of_its_own_run_on_any_devices(self):
        for devices in ("cpu:1", "cpu:2", "cpu:3@1,0.5,0.5"):
            output = self.train(*SMALL, "--steps", STEPS, "--devices", devices, recipe="web-test")
            self.assert_same(output)
            self.assertEqual(output["status"], "done")

    def test_ddp_and_an_idle_device_that_joins_keep_it(self):
        output = self.train(*SMALL, "--steps", STEPS, "--devices", "cpu:2", "--strategy", "ddp", "--agents", "analysis,evolution",
                          recipe="web-test")
        self.assert_same(output, ("analysis", "evolution"))
        self.assertEqual(output["agents"]["analysis"]["devices"], ["cpu:0", "cpu:1"])
        # One short, one long, on slow slots: joining pays, and the device of the short one joins the other.
        output = self.train(*SMALL, "--steps", STEPS, "--set", "analysis.steps=2500", "--devices", "cpu:2@0.04,0.04", "--agents",
                          "evolution,analysis", recipe="web-test")
        self.assertGreaterEqual(output["joins"], 1)
        self.assertEqual(sorted(output["agents"]["analysis"]["devices"]), ["cpu:0", "cpu:1"])
        self.assert_bits(output["agents"]["analysis"]["digest"], self.single("analysis", 2500))
        self.assert_bits(output["agents"]["evolution"]["digest"], self.single("evolution"))

    def test_digest_prints_all_and_one_over_them(self):
        output = self.train(*SMALL, "--steps", 5, "--devices", "cpu:2", recipe="web-test")
        lines = self.tandem("digest", output["run"]).stdout.splitlines()
        self.assertEqual([line.split()[0] for line in lines], [output["agents"][a]["digest"] for a in AGENTS] + [output["digest"]])
        again = json.loads(self.tandem("digest", output["dir"], "--json").stdout)
        self.assertEqual(again["digest"], output["digest"])


class Together(WebTest):
    """Agents side by side in one run: everything is told of each, as if it had a run of its own."""

    def folder_of(self, output, agents):
        folders = {output["agents"][agent]["dir"] for agent in agents}
        self.assertEqual(len(folders), 1, folders)
        return pathlib.Path(folders.pop())

    def test_agents_side_by_side_have_the_digests_that_they_have_apart(self):
        for devices in ("cpu:1", "cpu:2"):
            output = self.train(*SMALL, "--steps", STEPS, "--devices", devices, "--together", "on", recipe="web-test")
            self.assert_same(output)
            self.assertEqual(self.folder_of(output, AGENTS).name, "requirements+5")
            for agent in AGENTS:
                self.assertIsNotNone(output["agents"][agent]["score"], agent)
        apart = self.train(*SMALL, "--steps", STEPS, "--devices", "cpu:2", recipe="web-test")
        self.assert_bits(output["digest"], apart["digest"], "of the whole set too")

    def test_agents_grouped_otherwise_keep_their_own_digests(self):
        # As GPUs of a machine would have them: a batched run for each device, of equal and of unequal sizes.
        for groups in ((3, 3), (4, 2), (1, 5)):
            device = [0] * groups[0] + [1] * groups[1]
            output = self.train(*SMALL, "--steps", STEPS, "--devices", "cpu:2@1,0.5", "--together", "on", "--assign",
                                ",".join(f"{agent}={d}" for agent, d in zip(AGENTS, device)), recipe="web-test")
            self.assert_same(output)
            folders = [pathlib.Path(output["agents"][agent]["dir"]).name for agent in AGENTS]
            self.assertEqual([folders.count(name) for name in dict.fromkeys(folders)], list(groups))
            for agent, d in zip(AGENTS, device):
                self.assertIn(f"cpu:{d}", output["agents"][agent]["devices"], agent)

    def test_a_setting_of_its_own_gives_an_agent_a_run_of_its_own(self):
        output = self.train(*SMALL, "--steps", STEPS, "--devices", "cpu:2", "--together", "on", "--agents",
                          "analysis,evolution,execution", "--set", "evolution.steps=60", recipe="web-test")
        self.assertEqual(self.folder_of(output, ("analysis", "execution")).name, "analysis+1")
        self.assertEqual(pathlib.Path(output["agents"]["evolution"]["dir"]).name, "evolution")
        self.assert_bits(output["agents"]["evolution"]["digest"], self.single("evolution", 60))
        self.assert_bits(output["agents"]["analysis"]["digest"], self.single("analysis"))

    def test_killed_stopped_and_resumed_on_other_devices_they_keep_every_bit(self):
        agents = ("analysis", "evolution")

        def attempt(number):
            run, long = f"set-{number}", Faults.LONG * 10 ** number
            process = self.begin("train", "web-test", *SMALL, "--steps", long, "--devices", "cpu:2", "--run-dir", run, "--agents",
                                 ",".join(agents), "--together", "on", "--checkpoint-every", "50 steps")
            for kind, steps in (("work", 30), ("resume", 120)):
                self.wait_until(lambda: self.steps_of(run, "analysis+1") > steps)
                self.kill(run, kind, "analysis+1")
            self.wait_until(lambda: self.steps_of(run, "analysis+1") > 160)
            process.send_signal(signal.SIGTERM)
            err = process.communicate()[1]
            self.assertEqual(process.returncode, 143, err)
            # They stay one run, whatever is asked now; settings for one of them can't be had any more.
            refused = self.tandem("resume", run, "--set", "analysis.steps=900", code=2)
            self.assertIn("they learn side by side in one run", refused.stderr)
            rest = self.tandem("resume", run, "--devices", "cpu:1", "--together", "off", "--agents", "analysis", "--json")
            self.assert_same(json.loads(rest.stdout), agents, long)

        self.again(attempt)

    def test_every_command_knows_them_apart(self):
        agents = ("analysis", "evolution")
        output = self.train(*SMALL, "--steps", 5, "--devices", "cpu:2", "--together", "on", "--agents", ",".join(agents), recipe="web-test")
        run = output["run"]
        lines = self.tandem("digest", run).stdout.splitlines()
        self.assertEqual([line.split()[0] for line in lines], [self.single(a, 5) for a in agents] + [output["digest"]])
        self.assertEqual(self.tandem("digest", run, "--agent", "evolution").stdout.split()[0], self.single("evolution", 5))
        judged = json.loads(self.tandem("eval", run, "--episodes", 20, "--json").stdout)
        for agent in agents:
            self.assertEqual(judged["agents"][agent]["digest"], self.single(agent, 5))
            self.tandem("export", run, "--agent", agent, "--output", f"{agent}.safetensors")
            self.assertEqual(self.tandem("digest", f"{agent}.safetensors").stdout.split()[0], self.single(agent, 5))
            state = json.dumps([0.1] * 128) + "\n"
            answer = subprocess.run([TANDEM, "act", run, "--agent", agent], cwd=self.dir, input=state, capture_output=True, text=True)
            self.assertIn("action", json.loads(answer.stdout), answer.stderr)
        self.tandem("report", run)
        page = (self.dir / "runs" / run / "report.html").read_text()
        for agent in agents:
            self.assertIn(f"analysis+1/report.html\">{agent}</a>", page)
        # An increment of one of them learns from its own weights, in a run of its own.
        self.tandem("eval", run, "--agent", "evolution", "--episodes", 40, "--record", "new.jsonl")
        more = self.tandem("train", "web-test", "--from", run, "--experience", "new.jsonl", "--steps", 3, "--json", code=None)
        self.assertIn(more.returncode, (0, 3), more.stderr)
        self.assertEqual(json.loads(more.stdout)["agents"]["evolution"]["old_digest"], self.single("evolution", 5))


class Names(WebTest):
    def test_agents_have_their_names_and_devices_wherever_they_are_shown(self):
        agents = ["analysis", "evolution"]

        def attempt(number):  # on a busy machine they may end before anybody looked
            shutil.rmtree(self.dir / "six", ignore_errors=True)
            process = self.begin("train", "web-test", *SMALL, "--steps", 3000 * 4 ** number, "--devices", "cpu:2", "--together", "off", "--agents",
                                 ",".join(agents), "--assign", "analysis=0,evolution=1", "--run-dir", "six")
            devices = {}   # by agent, over all looks: one may end before the other begins

            def look():
                for run in json.loads(self.tandem("monitor", "--json", "--no-history", "--runs-root", "runs").stdout)["runs"]:
                    if run["name"] in agents and run["ranks"]:
                        devices[run["name"]] = [rank["device"] for rank in run["ranks"]]
                return len(devices) == 2 or process.poll() is not None

            self.wait_until(look)
            err = process.communicate()[1]
            self.assertEqual(devices, {"analysis": ["cpu:0"], "evolution": ["cpu:1"]}, err)
            self.assertEqual(process.returncode, 0, err)
            return err

        err = self.again(attempt)
        explained = self.tandem("explain", "six").stdout
        for agent in agents:
            self.assertRegex(explained, rf"(?m)^{agent}: \d+ steps")
            folder = self.dir / "six" / "agents" / agent
            self.assertIn(f"<title>{agent}: tandem report</title>", (folder / "report.html").read_text())
            self.assertNotIn("resumed", (folder / "events.jsonl").read_text())
        self.assertNotIn("web-agent-2", explained)
        # Found by its name, also from elsewhere by the folder of all runs; and `runs` lists it.
        self.assertRegex(self.tandem("runs").stdout, r"(?m)^six +web-test +done .* 0\.\d+|^six +web-test +done .* -0\.\d+")
        self.assertIn("analysis", self.tandem("eval", "six", "--episodes", 20).stdout)
        # The end of a training says what it took and what to type next.
        for words in (r"disk +[\d.]+ [kM]B in six", r"tandem eval six ", r"tandem act six --agent analysis < states.jsonl", r"tandem report six "):
            self.assertRegex(err, words)
        judged = (self.dir / "six" / "evaluation.html").read_text()
        self.assertIn("<title>web-test: evaluation: tandem report</title>", judged)
        self.assertNotIn('["steps",', judged)
        self.assertIn('["evaluation","evaluation.html"]', (self.dir / "six" / "report.html").read_text())
        if chromium.path():
            for page in ("report.html", "evaluation.html", "agents/analysis/report.html"):
                self.assert_fits_a_phone(self.dir / "six" / page)
        else:
            print("chromium is not installed: the pages are not looked at in a browser", flush=True)

    def assert_fits_a_phone(self, page):
        """Nothing is wider than 390 pixels in either theme, but for tables that scroll in themselves; no script fails."""
        browser = chromium.Chromium()
        self.addCleanup(browser.close)
        for theme, dark in (("light", False), ("dark", True)):
            browser.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
            browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
            browser.open(page.as_uri())
            seen = json.loads(browser.call("Runtime.evaluate", expression="""JSON.stringify({
                wide: [...document.querySelectorAll('*')].filter((e) => !e.closest('.across, .scroll, svg') && e.getBoundingClientRect().right > 391).map((e) => e.tagName),
                tiles: document.querySelectorAll('.facts dt').length, back: getComputedStyle(document.body).backgroundColor})""")["result"]["value"])
            self.assertEqual(seen["wide"], [], page)
            self.assertGreaterEqual(seen["tiles"], 5)
            self.assertEqual(sum(map(int, seen["back"][4:-1].split(","))) < 200, dark, seen["back"])
        self.assertEqual(browser.errors, [])


class Faults(WebTest):
    LONG = 400

    def test_killed_workers_and_killed_launchers_of_agents_lose_no_bit(self):
        def attempt(number):
            run, long = f"set-{number}", self.LONG * 10 ** number
            process = self.begin("train", "web-test", *SMALL, "--steps", long, "--devices", "cpu:2", "--run-dir", run, "--json",
                                 "--agents", "analysis,evolution", "--checkpoint-every", "50 steps")
            for agent, kind in (("analysis", "resume"), ("evolution", "work")):
                self.wait_until(lambda: self.steps_of(run, agent) > 60)
                self.kill(run, kind, agent)
            out, err = process.communicate()
            self.assertEqual(process.returncode, 0, err)
            output = json.loads(out)
            self.assert_same(output, ("analysis", "evolution"), long)
            self.assertEqual(output["agents"]["analysis"]["restarts"], 1)
            self.assertIn("analysis: its process was killed (SIGKILL)", err)

        self.again(attempt)

    def test_stopped_and_resumed_on_other_devices_keeps_every_bit(self):
        def attempt(number):
            run, long = f"set-{number}", self.LONG * 10 ** number
            process = self.begin("train", "web-test", *SMALL, "--steps", long, "--devices", "cpu:2", "--run-dir", run,
                                 "--agents", "analysis,evolution,execution")
            self.wait_until(lambda: self.steps_of(run, "analysis") > 20 or self.steps_of(run, "evolution") > 20)
            process.send_signal(signal.SIGTERM)
            err = process.communicate()[1]
            self.assertEqual(process.returncode, 143, err)
            self.assertEqual(self.processes(run), {})
            self.assertEqual(json.loads((self.dir / f"{run}/run.json").read_text())["status"], "stopped")
            output = json.loads(self.tandem("resume", run, "--devices", "cpu:3@1,0.5,0.5", "--json").stdout)
            self.assert_same(output, ("analysis", "evolution", "execution"), long)

        self.again(attempt)

    def test_a_killed_set_takes_its_agents_with_it_and_goes_on(self):
        def attempt(number):
            run, long = f"set-{number}", self.LONG * 10 ** number
            process = self.begin("train", "web-test", *SMALL, "--steps", long, "--devices", "cpu:2", "--run-dir", run,
                                 "--agents", "analysis,evolution")
            self.wait_until(lambda: self.steps_of(run, "analysis") > 20 and self.steps_of(run, "evolution") > 20)
            process.kill()
            self.assertEqual(process.wait(), -signal.SIGKILL)
            output = json.loads(self.tandem("resume", run, "--json").stdout)  # at once: agents that still save are waited for
            self.assert_same(output, ("analysis", "evolution"), long)
            self.wait_until(lambda: self.processes(run) == {})

        self.again(attempt)


class Recipes(WebTest):
    """What the jobs of a set train is fixed when the set begins."""
    AGENTS = ("analysis", "evolution")

    def edit(self, agent):
        recipe = self.dir / f"set/agents/{agent}/recipe.toml"
        right = recipe.read_text()
        wrong = re.sub(r"(?m)^seed = .*$", "seed = 99", right)
        self.assertNotEqual(wrong, right)
        recipe.write_text(wrong)
        return wrong

    def held_at_the_first(self):
        """A set on one slot whose first agent stops after five steps: (set, first, second)."""
        process = self.begin("train", "web-test", *SMALL, "--steps", STEPS, "--devices", "cpu:1", "--run-dir", "set", "--json", "--agents",
                             ",".join(self.AGENTS), env={"TANDEM_FAULT": "at-boundary rank=0 step=5 do=stop", "TANDEM_FROZEN_SECONDS": "100000"})
        first = self.wait_until(lambda: next((agent for agent, pid in self.processes("set").get("work", {}).items() if self.stands(pid)), None))
        self.addCleanup(self.let_go)
        return process, first, next(agent for agent in self.AGENTS if agent != first)

    def stands(self, pid):
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
        except OSError:
            return False

    def let_go(self):
        for pid in self.processes("set").get("work", {}).values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def test_one_that_is_edited_while_its_job_waits_changes_no_bit(self):
        process, first, second = self.held_at_the_first()
        wrong = self.edit(second)
        self.wait_until(lambda: self.let_go() or process.poll() is not None, 800)
        out, err = process.communicate()
        self.assertEqual(process.returncode, 0, err)
        self.assert_same(json.loads(out), self.AGENTS)
        self.assertIn(f"{second}: recipe.toml was changed while the set went on", err)
        self.assertEqual((self.dir / f"set/agents/{second}/recipe.changed.toml").read_text(), wrong, "nobody's work is lost")

    def test_one_that_is_edited_while_the_set_is_stopped_changes_no_bit_of_a_job_that_has_not_begun(self):
        process, first, second = self.held_at_the_first()
        process.kill()
        process.wait()
        self.wait_until(lambda: self.let_go() or self.processes("set") == {})
        wrong = self.edit(second)
        resumed = self.tandem("resume", "set", "--json")
        self.assert_same(json.loads(resumed.stdout), self.AGENTS)
        self.assertIn(f"{second}: recipe.toml was changed while the set went on", resumed.stderr)
        self.assertEqual((self.dir / f"set/agents/{second}/recipe.changed.toml").read_text(), wrong)

    def test_that_of_the_set_tells_what_was_trained(self):
        process, _, _ = self.held_at_the_first()
        recipe = self.dir / "set/recipe.toml"
        right = recipe.read_text()
        recipe.write_text("mine")
        self.wait_until(lambda: self.let_go() or process.poll() is not None, 800)
        _, err = process.communicate()
        self.assertEqual((process.returncode, recipe.read_text()), (0, right), err)
        self.assertEqual((self.dir / "set/recipe.changed.toml").read_text(), "mine")


class Early(WebTest):
    """On one slot: the next agent is started before the slot is free."""
    LONG = 400
    AGENTS = ("analysis", "evolution")
    # Six seconds pass at each: on any machine there is time to see how fast a job is, and that it will soon be done.
    SLOW = "; ".join(f"at-boundary rank=0 step={step} do=slow" for step in (5, 150, 390, 395))
    # The same, but five steps before its end each agent stops until it is let go: whatever is to happen first, does.
    HELD = {"TANDEM_FAULT": "; ".join([f"at-boundary rank=0 step={step} do=slow" for step in (5, 150, 390)] +
                                      ["at-boundary rank=0 step=395 do=stop", "before-rename rank=-1 step=400 do=stop"]),
            "TANDEM_FROZEN_SECONDS": "100000"}

    def setUp(self):
        super().setUp()
        if not pathlib.Path(f"/proc/self/task/{os.getpid()}/children").exists():
            self.skipTest("the kernel does not tell a process's children, so that what an agent takes is not known: none is started early")

    def held(self, *args):
        """A set on cpu:0 whose first agent is held before its end and whose second one gets ready: (set, first, second)."""
        for trial in range(4):  # a busy moment before it is held may put its end a minute off for good
            process = self.begin("train", "web-test", *SMALL, "--steps", self.LONG, "--run-dir", "set", "--json", "--agents",
                                 ",".join(self.AGENTS), *args, env=self.HELD)
            limit = 120 if trial < 3 else 800
            end = threading.Timer(limit, process.kill)  # whoever waits for a word of it sees its end then
            end.start()
            said = self.ready_line(process)
            if not isinstance(said, list):
                break
            end.cancel()
            self.let_go(number=signal.SIGKILL)
            process.communicate()
            if trial == 3:
                self.fail(f"nobody got ready; the set said:\n{''.join(said)}")
            shutil.rmtree(self.dir / "set")
        end.cancel()
        end = threading.Timer(800, process.kill)
        end.start()
        self.addCleanup(lambda: (end.cancel(), self.let_go(number=signal.SIGKILL)))
        return process, next(agent for agent in self.AGENTS if agent != said), said

    def ready_line(self, process):
        """Who gets ready; or all that was said, if nobody does."""
        said = []
        for line in process.stderr:
            if "gets ready" in line:
                return line.split()[0]
            said.append(line)
        return said

    def until_ready(self, process):
        said = self.ready_line(process)
        logs = "".join(path.read_text() for path in (self.dir / "set/logs").glob("*.log"))
        self.assertIsInstance(said, str, f"nobody got ready; the set said:\n{''.join(said)}\nand its agents:\n{logs}")
        return said

    def let_go(self, kinds=("resume", "work"), agents=AGENTS, number=signal.SIGCONT):
        for kind in kinds:
            for agent, pid in self.processes("set").get(kind, {}).items():
                if agent in agents:
                    self.send(pid, number)

    def send(self, pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    def is_held(self, pid):
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
        except OSError:
            return False

    def to_the_end(self, process, same=True):
        """Everybody is let go; what the set tells at its end, and what it said since."""
        self.wait_until(lambda: self.let_go() or process.poll() is not None, 800)
        out, err = process.communicate()
        self.assertEqual(process.returncode, 0, err)
        output = json.loads(out)
        if same:
            self.assert_same(output, self.AGENTS, self.LONG)
        return output["agents"], err

    def test_an_agent_that_died_while_it_saved_is_started_early_and_makes_its_steps_again(self):
        process, first, second = self.held("--devices", "cpu:1")
        self.wait_until(lambda: self.let_go(["work"], [first]) or self.steps_of("set", second) > 0)
        launcher = self.processes("set")["resume"][first]
        self.wait_until(lambda: self.is_held(launcher))  # before its last checkpoint has its name
        os.kill(launcher, signal.SIGKILL)
        self.assertEqual(self.until_ready(process), first)
        agents, err = self.to_the_end(process)
        self.assertEqual((agents[first]["restarts"], agents[second]["restarts"]), (1, 0), err)

    def test_an_early_start_that_fails_is_no_failure_of_the_agent(self):
        process, _, second = self.held("--devices", "cpu:1")
        launcher = self.wait_until(lambda: self.processes("set").get("resume", {}).get(second))
        os.kill(launcher, signal.SIGKILL)
        self.assertIn(f"{second} could not get ready early", next((line for line in process.stderr if second in line), ""))
        agents, err = self.to_the_end(process)
        self.assertEqual(agents[second]["restarts"], 0)
        self.assertNotIn(f"{second} gets ready", err, "not tried again")

    def test_an_agent_that_is_assigned_waits_for_its_slot_beside_an_idle_one(self):
        # With one shard nobody can join: the other slot stays idle.
        process, _, second = self.held("--devices", "cpu:2", "--assign", "analysis=0,evolution=0", "--set", "shards=1")
        self.wait_until(lambda: (self.dir / f"set/agents/{second}/logs/run.log").exists())  # it may stay that long
        _, err = self.to_the_end(process, same=False)
        self.assertNotIn(f"{second} gets ready", err, "it was")

    def test_the_next_agent_is_up_and_waiting_before_its_slot_is_free(self):
        for _ in range(4):  # as below
            process = self.begin("train", "web-test", *SMALL, "--steps", self.LONG, "--devices", "cpu:1", "--json", "--agents",
                                 "analysis,evolution", env={"TANDEM_FAULT": self.SLOW})
            out, err = process.communicate()
            self.assertEqual(process.returncode, 0, err)
            if "gets ready" in err:
                break
        self.assertRegex(err, "(analysis|evolution) gets ready for cpu:0")
        self.assert_same(json.loads(out), ("analysis", "evolution"), self.LONG)

    def test_a_set_that_is_stopped_while_an_agent_waits_for_its_slot_leaves_nothing_behind(self):
        for _ in range(4):  # a busy moment may put the first one's end a minute off for good
            process = self.begin("train", "web-test", *SMALL, "--steps", self.LONG, "--devices", "cpu:1", "--run-dir", "set", "--agents",
                                 "analysis,evolution", env={"TANDEM_FAULT": self.SLOW})
            if isinstance(self.ready_line(process), str):
                break
            process.communicate()
            shutil.rmtree(self.dir / "set")
        process.send_signal(signal.SIGTERM)
        err = process.communicate()[1]
        self.assertEqual(process.returncode, 143, err)
        self.assertEqual(self.processes("set"), {})
        output = json.loads(self.tandem("resume", "set", "--devices", "cpu:2", "--json").stdout)
        self.assert_same(output, ("analysis", "evolution"), self.LONG)


class Gate(WebTest):
    def early(self, *args):
        """A run of tiny that waits for the word, its end of the pipe, and its folder; returned once its worker is up."""
        read, write = os.pipe()
        words = ["train", "tiny", *QUICK, "--steps", "20", "--devices", "cpu:1", "--run-dir", "early", *args]
        process = subprocess.Popen([TANDEM, *words], cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, pass_fds=[read],
                                   env={**os.environ, "NO_COLOR": "1", "TANDEM_START_FD": str(read)})
        self.addCleanup(lambda: (process.poll() is None and process.kill(), process.communicate()))
        os.close(read)
        self.wait_until(lambda: (self.dir / "early/logs/run.log").exists())
        return process, write

    def test_a_run_that_is_started_early_loads_and_begins_at_the_word_with_the_same_bits(self):
        whole = self.train(*QUICK, "--steps", 20)
        process, write = self.early("--json")
        output = self.tandem("join", "early", "--devices", "cpu:1", code=None)
        self.assertIn("still starting", output.stderr)
        os.write(write, b"1")
        os.close(write)
        out, err = process.communicate()
        self.assertEqual(process.returncode, 0, err)
        self.assert_bits(json.loads(out)["digest"], whole["digest"])

    def test_one_that_is_stopped_while_it_waits_ends_at_once_and_can_be_gone_on_with(self):
        process, write = self.early()
        process.send_signal(signal.SIGTERM)
        err = process.communicate()[1]
        self.assertEqual(process.returncode, 143, err)
        os.close(write)
        self.assertEqual(list((self.dir / "early/checkpoints").glob("step-*")), [])
        rest = json.loads(self.tandem("resume", "early", "--json").stdout)
        self.assert_bits(rest["digest"], self.train(*QUICK, "--steps", 20)["digest"])

    def test_one_whose_set_has_died_makes_no_step(self):
        process, write = self.early()
        os.close(write)  # without the word
        err = process.communicate()[1]
        self.assertEqual(process.returncode, 143, err)
        self.assertEqual(self.steps_in("early"), 0)

    def steps_in(self, run):
        path = self.dir / run / "metrics.jsonl"
        return len(path.read_bytes().splitlines()) if path.exists() else 0


if __name__ == "__main__":
    unittest.main()

"""Trained agents through the real programs: eval, act, learning from history, the gates, the benchmark.

    python3 agents_test.py <folder with tandem and tandem-worker> [unittest arguments]

Judged from outside: PyPI's numpy computes the net again from the exported weights; the worlds' frozen scale
(src/world/scale.h) says what random play and the rule of thumb are worth.
"""
import csv
import fcntl
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

from run_test import TANDEM, Case  # noqa: E402  (takes the folder from the command line)

AGENTS = ("requirements", "generation", "execution", "observation", "analysis", "evolution")
SMALL = ["--set", "net.hidden=[32,16]", "--set", "net.head=8", "--batch-size", "64", "--set", "environments=2",
         "--set", "capacity=8000", "--set", "learning_starts=400", "--set", "shards=4", "--seed", "5", "--devices", "cpu:1"]
SCALE = (pathlib.Path(__file__).resolve().parents[2] / "src/world/scale.h").read_text()


def frozen(agent):
    """Return of random play, of the rule, and of the solver, as the header has them."""
    rows = re.findall(r"// (\w+)\s*\{\{([-\d.]+), ([\d.]+)\},\s*\{([-\d.]+), [\d.]+\},\s*\{([-\d.]+), ([\d.]+)\},"
                      r"\s*\{([-\d.]+), ([\d.]+)\}", SCALE)
    for name, rand, _, rule, tuned, _, planned, error in rows:
        if name == agent:
            one = float(planned) if float(planned) - float(error) > float(tuned) else float(tuned)
            return float(rand), float(rule), one
    raise KeyError(agent)


def lines_of(agent, count, seed=1, follow=True, size=128, actions=10, right=3):
    """Transitions that a learner can use: episodes of ten, the reward is what action `right` brings."""
    rng, out = random.Random(seed), []
    state = [rng.uniform(-1, 1) for _ in range(size)]
    for i in range(count):
        after = [rng.uniform(-1, 1) for _ in range(size)]
        action = rng.randrange(actions)
        done = i % 10 == 9
        named = {"agent": agent} if agent else {}
        out.append(json.dumps({**named, "state": state, "action": action, "reward": 1.0 if action == right else 0.0,
                               "next_state": after, "done": done}))
        state = after if follow and not done else [rng.uniform(-1, 1) for _ in range(size)]
    return "\n".join(out) + "\n"


class Agents(Case):
    made = {}   # runs that several tests only read: trained once

    def run_of(self, agent="analysis", *more, steps=60):
        return self.copy_of(agent, *SMALL, "--steps", steps, "--set", f"agent={agent}", "-q", *more)

    def copy_of(self, name, *args):
        if args not in Agents.made:
            home = pathlib.Path(tempfile.mkdtemp(prefix="tandem-run-test-agents-"))
            unittest.addModuleCleanup(shutil.rmtree, home, ignore_errors=True)
            self.tandem("train", "web-agent", *args, "--run-dir", home / "run")
            Agents.made[args] = home / "run"
        copy = self.dir / f"run-{name}-{len(list(self.dir.iterdir()))}"
        shutil.copytree(Agents.made[args], copy)
        return copy

    def web_test(self, *agents, **runs):
        """A folder as `train web-test` leaves it."""
        top = self.dir / "web-test"
        (top / "agents").mkdir(parents=True)
        table = {}
        for agent in agents:
            self.run_of(agent).rename(top / "agents" / agent)
            table[agent] = {"runs": [f"agents/{agent}"], "best": f"agents/{agent}"}
        for agent, seeds in runs.items():
            names = [f"agents/{agent}-{word}" for word in ("conservative", "aggressive", "balanced")][:len(seeds)]
            for name, seed in zip(names, seeds):
                self.run_of(agent, "--seed", seed).rename(top / name)
            table[agent] = {"runs": names, "best": names[-1]}
        (top / "agents.json").write_text(json.dumps({"schema": 1, "strategy": "agents", "agents": table}))
        (top / "run.json").write_text(json.dumps({"id": "web-test-1", "recipe": "web-test", "status": "done"}))
        return top

    def act(self, run, text, *args, code=0):
        done = subprocess.run([TANDEM, "act", run, *map(str, args)], cwd=self.dir, input=text, capture_output=True, text=True,
                              env={**os.environ, "NO_COLOR": "1"})
        self.assertEqual(done.returncode, code, done.stdout[-500:] + done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()], done


class Eval(Agents):
    def test_random_play_and_the_rule_of_thumb_score_what_the_frozen_scale_says(self):
        run = self.web_test(*AGENTS)
        output = json.loads(self.tandem("eval", run, "--episodes", 1500, "--json").stdout)
        self.assertEqual(output["schema"], 1)
        self.assertEqual(sorted(output["agents"]), sorted(AGENTS))
        for agent, figures in output["agents"].items():
            rand, rule, one = frozen(agent)
            for name, worth in (("random", 0), ("rule", (rule - rand) / (one - rand))):
                line = figures["lines"][name]
                half = (line["high"] - line["low"]) / 2   # of 95 %; twice that, for twelve lines are looked at
                self.assertLess(abs(line["score"] - worth), 2 * half, (agent, name))
                self.assertAlmostEqual(line["score"], (line["return"] - rand) / (one - rand), places=6)
            self.assertEqual(figures["solver"], 1)
            self.assertLess(figures["low"], figures["score"])
            self.assertLess(figures["score"], figures["high"])
            self.assertEqual(len(figures["terms"]), 4)
        page = (run / "evaluation.html").read_text()
        self.assertIn('"evaluation":[{', page)
        self.assertNotIn("holds no record", page)

    def test_agents_that_learned_side_by_side_are_judged_each_as_if_alone(self):
        both, alone = self.run_of("generation,analysis"), self.run_of("analysis")
        output, single = (json.loads(self.tandem("eval", run, "--episodes", 100, "--json").stdout)["agents"] for run in (both, alone))
        self.assertEqual(sorted(output), ["analysis", "generation"])
        for key in ("score", "return", "terms", "digest"):
            self.assertEqual(output["analysis"][key], single["analysis"][key], key)
        state = json.dumps([0.1] * 128) + "\n"
        self.assertEqual(self.act(both, state, "--agent", "analysis")[0], self.act(alone, state)[0])

    def test_one_agent_judged_again_leaves_the_figures_of_the_others(self):
        run = self.run_of("generation,analysis")
        self.tandem("eval", run, "--episodes", 60, "--seed", 1)
        before = json.loads((run / "evaluation.json").read_text())["agents"]
        said = json.loads(self.tandem("eval", run, "--agent", "analysis", "--episodes", 80, "--seed", 2, "--json").stdout)
        after = json.loads((run / "evaluation.json").read_text())["agents"]
        self.assertEqual(sorted(said["agents"]), ["analysis"])
        self.assertEqual(after["generation"], before["generation"])
        self.assertEqual((after["analysis"]["episodes"], before["analysis"]["episodes"]), (80, 60))
        self.assertIn("generation", (run / "report.html").read_text())
        page = (run / "report.html").read_text()
        self.assertRegex(page, r'"episodes":80\b')
        self.assertRegex(page, r'"episodes":60\b')

    def test_a_run_of_tiny_rl_is_judged_in_its_own_game(self):
        run = self.train("--steps", 400, "--devices", "cpu:1", recipe="tiny-rl")
        agent = json.loads(self.tandem("eval", run["run"], "--json").stdout)["agents"]["catch"]
        self.assertEqual(agent["digest"], run["digest"])
        self.assertEqual(agent["length"], 7)
        self.assertGreater(agent["score"], 0.9)   # the ball can always be caught; random play scores about 0
        self.assertLess(abs(agent["lines"]["random"]["score"]), 0.1)

    def test_equal_seeds_give_equal_figures_and_the_table_names_every_line(self):
        run = self.run_of()
        first, again, other = (json.loads(self.tandem("eval", run, "--episodes", 200, "--seed", seed, "--json").stdout)
                               for seed in (1, 1, 2))
        self.assertEqual(first["agents"], again["agents"])
        self.assertNotEqual(first["agents"], other["agents"])
        output = self.tandem("eval", run, "--episodes", 50)
        for word in ("analysis", "rule of thumb", "random", "solver", "oracle", "rca"):
            self.assertIn(word, output.stdout)

    def test_an_ensemble_shows_its_members_and_itself(self):
        run = self.web_test(analysis=(5, 6))
        agent = json.loads(self.tandem("eval", run, "--episodes", 100, "--json").stdout)["agents"]["analysis"]
        self.assertEqual(sorted(agent["members"]), ["analysis-aggressive", "analysis-conservative"])
        self.assertIn(agent["best"], agent["members"])
        self.assertEqual(agent["score"], agent["members"]["analysis-aggressive"]["score"], "the chosen one is the agent's")
        self.assertIn("score", agent["ensemble"])

    def test_bad_input_is_explained(self):
        run = self.run_of()
        self.assert_explains(self.tandem("eval", run, "--agent", "analyst", code=2), "analysis")
        self.assert_explains(self.tandem("eval", run, "--episodes", 1, code=2), "1000")
        self.assert_explains(self.tandem("eval", "nobody", code=2), "nobody")
        tiny = self.train("--steps", 3)
        self.assert_explains(self.tandem("eval", tiny["dir"], "--agent", "analysis", code=2), "has no flag --agent")
        shutil.rmtree(run / "checkpoints")
        self.assert_explains(self.tandem("eval", run, code=2), "no checkpoint")


class Act(Agents):
    def states(self, count, seed=3):
        rng = random.Random(seed)
        return [[rng.uniform(-2, 2) for _ in range(128)] for _ in range(count)]

    def numpy_q(self, run, states, attention_heads=1):
        import numpy
        from safetensors.numpy import load_file
        out = self.dir / "weights.safetensors"
        self.tandem("export", run, "--output", out, "--force")
        w = {name: value.astype(numpy.float64) for name, value in load_file(out).items()}

        def norm(x, name):
            x = (x - x.mean(-1, keepdims=True)) / numpy.sqrt(x.var(-1, keepdims=True) + 1e-5)
            return x * w[name + ".weight"] + w[name + ".bias"]

        def linear(x, name):
            return x @ w[name + ".weight"].T + w[name + ".bias"]
        x = numpy.array(states)
        for i in (1, 2):
            x = numpy.maximum(norm(linear(x, f"hidden{i}"), f"norm{i}"), 0)
        if "query_key_value.weight" in w:
            token = w["attended.weight"].shape[0]
            rows, tokens, part = len(x), x.shape[1] // token, token // attention_heads
            t = x.reshape(rows, tokens, token)
            q, k, v = (linear(t, "query_key_value").reshape(rows, tokens, 3, attention_heads, part)
                       .transpose(2, 0, 3, 1, 4))
            looks = numpy.exp(q @ k.transpose(0, 1, 3, 2) / part ** 0.5)
            mixed = (looks / looks.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(rows, tokens, token)
            x = norm(t + linear(mixed, "attended"), "attention_norm").reshape(rows, -1)
        both = numpy.maximum(linear(x, "heads"), 0)
        half = both.shape[1] // 2
        better = linear(both[:, half:], "advantage")
        return linear(both[:, :half], "value") + better - better.mean(1, keepdims=True)

    def test_values_are_those_of_numpy_from_the_exported_weights(self):
        states = self.states(40)
        text = "".join(json.dumps(s if i % 2 else {"state": s, "id": i}) + "\n" for i, s in enumerate(states))
        for more, heads in (((), 1), (("--set", "net.attention=true", "--set", "net.tokens=4", "--set", "net.attention_heads=2"), 2)):
            run = self.run_of("analysis", *more)
            answers, _ = self.act(run, text)
            expected = self.numpy_q(run, states, heads)
            self.assertEqual(len(answers), 40)
            for answer, q in zip(answers, expected):
                self.assertLess(max(abs(a - b) for a, b in zip(answer["q"], q)), 2e-5)
                self.assertEqual(answer["action"], max(range(10), key=lambda a: answer["q"][a]))
                words = ("defect", "flaky", "environment", "data", "configuration")
                self.assertEqual(answer["name"], ("conclude " if answer["action"] % 2 else "probe ") + words[answer["action"] // 2])

    def test_every_line_is_answered_before_the_next_is_asked(self):
        run, states = self.run_of(), self.states(5)
        process = subprocess.Popen([TANDEM, "act", run, "-q"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        one_by_one = []
        for state in states:
            process.stdin.write(json.dumps(state) + "\n")
            process.stdin.flush()
            one_by_one.append(process.stdout.readline())
        process.stdin.close()
        self.assertEqual(process.wait(), 0)
        self.assertEqual(process.stdout.read(), "")
        process.stdout.close()
        _, at_once = self.act(run, "\n".join(map(json.dumps, states)))
        self.assertEqual("".join(one_by_one), at_once.stdout, "the same bits, whoever else asks")

    def test_bad_lines_are_named_and_answered_as_such(self):
        run, good = self.run_of(), json.dumps(self.states(1)[0])
        text = "\n".join([good, "[1,2]", "", good.replace("[", "[NaN,", 1), good]) + "\n"
        answers, done = self.act(run, text, code=2)
        self.assertEqual([("error" in a) for a in answers], [False, True, True, False])
        self.assertEqual([a["line"] for a in answers if "error" in a], [2, 4])
        self.assert_explains(done, "2 of 4 lines", "line 2 has 2 numbers, not 128", "line 4 has NaN")
        answers, done = self.act(run, text, "--strict", code=2)
        self.assertEqual(len(answers), 1)
        self.assert_explains(done, "line 2")
        self.assert_explains(self.act(run, "", "--devices", "cpu:2", code=2)[1], "one")
        self.assert_explains(self.act(run, "", "--agent", "evolution", code=2)[1], "analysis")
        answers, _ = self.act(run, "")
        self.assertEqual(answers, [])

    def test_an_ensemble_is_the_mean_of_its_members_brought_to_one_scale(self):
        run, states = self.web_test("evolution", analysis=(5, 6)), self.states(20)
        text = "\n".join(map(json.dumps, states))
        self.assert_explains(self.act(run, "", code=2)[1], "--agent", "evolution")
        together, _ = self.act(run, text, "--agent", "analysis", "--ensemble")
        members = [self.act(run / "agents" / f"analysis-{word}", text)[0] for word in ("conservative", "aggressive")]
        best, _ = self.act(run, text, "--agent", "analysis")
        self.assertEqual(best, members[1])
        for answer, *own in zip(together, *members):
            expected = [0.0] * 10
            for one in own:
                mean = sum(one["q"]) / 10
                spread = (sum((q - mean) ** 2 for q in one["q"]) / 10) ** 0.5
                expected = [e + (q - mean) / spread / 2 for e, q in zip(expected, one["q"])]
            self.assertLess(max(abs(a - b) for a, b in zip(answer["q"], expected)), 1e-4)

    def test_libtorch_gives_the_same_where_a_gpu_would_answer(self):
        run, text = self.run_of(), "\n".join(map(json.dumps, self.states(30)))
        plain, _ = self.act(run, text)
        # What `--devices cuda:0` starts, on the only device that is here.
        done = subprocess.run([TANDEM.parent / "tandem-worker", "act", run], input=text, capture_output=True, text=True,
                              env={**os.environ, "TANDEM_ACT_DEVICE": "cpu:0"})
        for answer, other in zip(map(json.loads, done.stdout.splitlines()), plain, strict=True):
            self.assertLess(max(abs(a - b) for a, b in zip(answer["q"], other["q"])), 2e-5)

    def test_a_reader_that_leaves_is_no_error(self):
        run, state = self.run_of(), json.dumps(self.states(1)[0])
        done = subprocess.run(["bash", "-c", f"yes '{state}' | head -2000 | {TANDEM} act {run} -q | head -1; echo ${{PIPESTATUS[2]}}"],
                              capture_output=True, text=True)
        self.assertEqual(done.stdout.splitlines()[-1], "0", done.stderr)


class History(Agents):
    """web-agent that learns from JSON lines instead of playing."""

    def train(self, *args, **kwargs):
        return super().train(*SMALL, "--set", "agent=analysis", *args, recipe="web-agent", **kwargs)

    def write(self, name, text):
        (self.dir / name).write_text(text)
        return self.dir / name

    def test_one_digest_on_any_workers_through_a_kill_and_a_resume(self):
        file = self.write("h.jsonl", lines_of("analysis", 300) + lines_of("evolution", 20))
        for share in ("1", "0.5"):
            base = ["--experience", file, "--set", f"experience.share={share}"]
            whole = self.train(*base, "--steps", 40)
            for way in (["--devices", "cpu:2"], ["--devices", "cpu:3@1,0.5,0.5"]):
                self.assertEqual(self.train(*base, "--steps", 40, *way)["digest"], whole["digest"], (share, way))
            killed = self.tandem("train", "web-agent", *SMALL, "--set", "agent=analysis", *base, "--steps", 40, "--json",
                                 "--devices", "cpu:2", env={"TANDEM_FAULT": "in-phase rank=1 step=20 do=kill"})
            self.assertEqual(json.loads(killed.stdout)["digest"], whole["digest"], killed.stderr)
        part = self.train(*base, "--steps", 15)
        file.rename(self.dir / "moved.jsonl")   # what was read is in the checkpoint
        rest = json.loads(self.tandem("resume", part["run"], "--steps", 40, "--devices", "cpu:2", "--json").stdout)
        self.assertEqual(rest["digest"], whole["digest"])

    def test_it_learns_what_the_lines_say(self):
        file = self.write("h.jsonl", lines_of("analysis", 600))
        run = self.train("--experience", file, "--steps", 300, "--set", "net.dropout=0", "--set", "gamma=0", "--set", "n_step=1", "--lr", "0.003")
        rng = random.Random(9)
        states = [[rng.uniform(-1, 1) for _ in range(128)] for _ in range(50)]
        answers, _ = self.act(run["dir"], "\n".join(map(json.dumps, states)))
        right = sum(answer["action"] == 3 for answer in answers)
        self.assertGreater(right, 30, "action 3 is the one that was rewarded; by chance it would be 5")

    def test_other_lines_give_other_weights_and_the_digest_is_noted(self):
        a, b = self.write("a.jsonl", lines_of("analysis", 60)), self.write("b.jsonl", lines_of("analysis", 60, seed=2))
        runs = [self.train("--experience", files, "--steps", 5) for files in (a, b, f"{a},{b}")]
        self.assertEqual(len({run["digest"] for run in runs}), 3)
        recipe = (pathlib.Path(runs[0]["dir"]) / "recipe.toml").read_text()
        self.assertRegex(recipe, r'digest = "[0-9a-f]{64}"')

    def test_bad_lines_are_counted_and_named_and_bad_files_are_refused(self):
        good = lines_of("analysis", 40)
        short = json.loads(good.splitlines()[0])
        short["state"] = short["state"][:-1]
        file = self.write("h.jsonl", json.dumps(short) + "\n" + good + good.splitlines()[0].replace("[", "[NaN,", 1) + "\n")
        done = self.tandem("train", "web-agent", *SMALL, "--set", "agent=analysis", "--experience", file, "--steps", 2)
        for words in ("2 of 42 lines", "line 1 \"state\" has 127 numbers, not 128", "line 42 has NaN", "40 transitions of analysis"):
            self.assertIn(words, done.stderr)
        refused = lambda *args: self.tandem("train", "web-agent", *SMALL, "--set", "agent=analysis", *args, code=2)
        self.assert_explains(refused("--experience", self.dir / "none.jsonl"), "none.jsonl")
        self.assert_explains(refused("--experience", self.dir), str(self.dir))
        self.assert_explains(refused("--experience", self.write("e.jsonl", "")), "empty")
        self.assert_explains(refused("--experience", self.write("x.jsonl", lines_of("evolution", 4))), "4 of evolution")
        self.assert_explains(refused("--experience", file, "--episodes", 4), "episodes")
        self.assertEqual([d.name for d in (self.dir / "runs").iterdir() if d.is_dir()], [p.name for p in (self.dir / "runs").glob("web-agent-*")])
        self.assert_explains(self.tandem("train", "tiny", "--experience", file, code=2), "experience")

    def test_dqn_learns_offline_from_states_and_actions_of_any_size_and_starts_no_environment(self):
        file = self.write("h.jsonl", lines_of("", 600, size=6, actions=4, right=2))
        args = ("--experience", file, "--set", "env.python=/nowhere/python", "--set", "env.id=gym:NoSuch-v0", "--steps", 200,
                "--set", "gamma=0", "--set", "n_step=1", "--seed", 3)
        runs = [Case.train(self, *args, "--devices", devices, recipe="dqn") for devices in ("cpu:1", "cpu:2")]
        self.assertEqual(runs[0]["digest"], runs[1]["digest"])
        recipe = (pathlib.Path(runs[0]["dir"]) / "recipe.toml").read_text()
        self.assertRegex(recipe, r"state_size = 6\b")
        self.assertRegex(recipe, r"actions = 4\b")
        rng = random.Random(9)
        answers, _ = self.act(runs[0]["dir"], "\n".join(json.dumps([rng.uniform(-1, 1) for _ in range(6)]) for _ in range(50)))
        self.assertEqual({len(answer["q"]) for answer in answers}, {4})
        self.assertGreater(sum(answer["action"] == 2 for answer in answers), 35, "by chance it would be 12")
        for key, value in (("split", "segments"), ("state_size", 7), ("actions", 5)):
            self.assert_explains(self.tandem("resume", runs[0]["run"], "--steps", 220, "--set", f"experience.{key}={value}", code=2),
                                 f"experience.{key}", "another experiment")
        more = json.loads(self.tandem("resume", runs[0]["run"], "--steps", 220, "--json").stdout)
        self.assertEqual(more["exit_code"] if "exit_code" in more else 0, 0)

    def test_a_dqn_that_learned_offline_is_judged_by_its_held_out_episodes_and_never_in_cartpole(self):
        file = self.write("h.jsonl", lines_of("", 1500, size=4, actions=2, right=1))   # CartPole's own sizes
        run = Case.train(self, "--experience", file, "--steps", 150, "--set", "gamma=0.5", "--set", "n_step=1", "--seed", 3, "--devices", "cpu:1",
                         "--set", "env.python=/nowhere/python", recipe="dqn")
        output = json.loads(self.tandem("eval", run["run"], "--json").stdout)
        self.assertEqual((output["environment"], output["method"]), ("experience", "fitted Q evaluation"))
        agent = output["agents"]["dqn"]
        self.assertEqual(agent["digest"], run["digest"])
        self.assertGreater(agent["change"]["low"], 0, "half of the recorded actions were right, nearly all of its own are")
        self.assertAlmostEqual(agent["lines"]["recorded"]["value"], 1, delta=0.2)
        self.assertGreater(agent["value"], 1.5)
        table = self.tandem("eval", run["run"])
        for word in ("greedy", "as recorded", "95 % interval"):
            self.assertIn(word, table.stdout)
        self.assertIn("held out", table.stderr)
        self.assert_explains(self.tandem("eval", run["run"], "--render", "film.mp4", code=2), "--render")
        file.write_text(lines_of("", 20, size=4, actions=2))
        self.assert_explains(self.tandem("eval", run["run"], code=2), "can't be judged", "h.jsonl")

    def test_dqn_says_what_is_wrong_with_a_history(self):
        refused = lambda *args: self.tandem("train", "dqn", "--steps", 2, *args, code=2)
        one = self.write("one.jsonl", lines_of("", 40, size=2, actions=1))
        self.assert_explains(refused("--experience", one), "one action only", "experience.actions")
        mixed = self.write("mixed.jsonl", lines_of("", 20, size=2, actions=3) + lines_of("", 5, size=3, actions=3))
        done = self.tandem("train", "dqn", "--steps", 2, "--experience", mixed, "--devices", "cpu:1")
        self.assertIn('5 of 25 lines are bad: line 21 "state" has more than 2 numbers', done.stderr)
        self.assert_explains(refused("--experience", ","), "names no file")
        os.mkfifo(self.dir / "pipe")
        for odd in (self.dir / "pipe", "/dev/zero"):
            self.assert_explains(refused("--experience", odd), "no regular file")

    def test_a_file_that_changes_before_the_first_checkpoint_is_refused(self):
        file = self.write("h.jsonl", lines_of("analysis", 40))
        process = self.start("train", "web-agent", *SMALL, "--set", "agent=analysis", "--experience", file, "--steps", 100000,
                             "--checkpoint-every", "never", "--run-dir", self.dir / "run")
        process.kill()
        process.wait()
        file.write_text(lines_of("analysis", 41))
        self.assert_explains(self.tandem("resume", self.dir / "run", "--steps", 5, code=2), "changed")


class GoingOn(Agents):
    FAIR = ("--quick", "--steps", 400, "--set", "agent=evolution", "--devices", "cpu:1", "-q")

    def fair(self):
        """An agent that has learned something, so that there is something to lose."""
        return self.copy_of("fair", *self.FAIR)

    def digest(self, run):
        return json.loads(self.tandem("digest", run, "--json").stdout)["digest"]

    def go_on(self, run, *args, code=0, recipe="web-agent"):
        done = self.tandem("train", recipe, "--from", run, "--json", *args, code=code)
        return json.loads(done.stdout), done

    def experience(self, *agents, count=1200):
        file = self.dir / "new.jsonl"
        file.write_text("".join(lines_of(agent, count) for agent in agents))
        return file


class Continue(GoingOn):
    """`train --from`: increments, full trainings, and the gates."""

    def test_a_model_that_is_not_worse_takes_the_old_ones_place_for_act_and_eval(self):
        run = self.fair()
        before, state = self.digest(run), json.dumps([0.1] * 128)
        old_answer, _ = self.act(run, state)
        output, done = self.go_on(run, "--experience", self.experience("evolution"), "--steps", 30, "--lr", "1e-5")
        self.assertTrue(output["accepted"], done.stderr)
        gates = {gate["name"]: gate for gate in output["agents"]["evolution"]["gates"]}
        self.assertEqual(sorted(gates), ["new", "old"])
        self.assertTrue(all(gate["passed"] and gate["judged"] for gate in gates.values()))
        self.assertEqual(self.digest(run), before, "the old run is untouched")
        new = output["agents"]["evolution"]["run"]
        self.assertNotEqual(self.act(run, state)[0], old_answer)
        self.assertEqual(self.act(run, state)[0], self.act(new, state)[0])
        evaluated = json.loads(self.tandem("eval", run, "--episodes", 50, "--json").stdout)["agents"]["evolution"]
        self.assertEqual(evaluated["digest"], output["agents"]["evolution"]["digest"])
        # The next day begins where this one ended, and is held against the first as well.
        again, _ = self.go_on(run, "--experience", self.experience("evolution"), "--steps", 20, "--lr", "1e-5")
        self.assertEqual(again["agents"]["evolution"]["old_digest"], output["agents"]["evolution"]["digest"])
        self.assertEqual(sorted(g["name"] for g in again["agents"]["evolution"]["gates"]), ["first", "new", "old", "old data"])

    def test_a_model_that_is_worse_is_refused_and_the_old_one_stays(self):
        run = self.fair()
        state = json.dumps([0.1] * 128)
        old_answer, _ = self.act(run, state)
        output, done = self.go_on(run, "--experience", self.experience("evolution"), "--steps", 60, "--lr", "0.3", code=3)
        self.assertFalse(output["accepted"])
        self.assertIn("does not replace", done.stderr)
        self.assertFalse((run / "current.json").exists())
        self.assertEqual(self.act(run, state)[0], old_answer)
        self.assertTrue((pathlib.Path(output["dir"]) / "gate.json").exists())
        table = self.tandem("train", "web-agent", "--from", run, "--experience", self.dir / "new.jsonl", "--steps", 60, "--lr", "0.3", code=3)
        self.assertRegex(table.stdout, r"evolution +old +score .* failed")
        self.assert_explains(table, "answers as before")

    def test_an_increment_has_one_digest_on_any_workers(self):
        run = self.run_of("analysis", steps=60)
        file = self.experience("analysis")
        digests = set()
        for way in ("cpu:1", "cpu:2"):
            shutil.rmtree(self.dir / "again", ignore_errors=True)
            (run / "current.json").unlink(missing_ok=True)
            done = subprocess.run([TANDEM, "train", "web-agent", "--from", run, "--experience", file, "--steps", "20", "--devices", way,
                                   "--run-dir", self.dir / "again", "--json"], cwd=self.dir, capture_output=True, text=True)
            self.assertIn(done.returncode, (0, 3), done.stderr)
            digests.add(json.loads(done.stdout)["agents"]["analysis"]["digest"])
        self.assertEqual(len(digests), 1)

    def held(self, run, agent="analysis"):
        """A `train --from` that is held in its training."""
        process = subprocess.Popen([TANDEM, "train", "web-agent", "--from", run, "--experience", self.experience(agent), "--steps", "20",
                                    "--run-dir", self.dir / "new", "--devices", "cpu:1"], cwd=self.dir, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, "NO_COLOR": "1", "TANDEM_FROZEN_SECONDS": "100000",
                                        "TANDEM_FAULT": "launcher-order rank=-1 do=stop"})
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        return process

    def test_a_run_that_is_gone_on_from_is_not_trained_or_removed_meanwhile(self):
        run = self.run_of("analysis", steps=60)
        process = self.held(run)
        for words in (["resume", run, "--steps", 70], ["runs", "rm", run, "--yes"]):
            self.assert_explains(self.tandem(*words, code=2), "is in use")
        self.tandem("runs", "rm", self.dir / "new", "--yes", code=2)
        self.assertTrue((run / "run.json").exists() and (self.dir / "new/run.json").exists())
        process.send_signal(signal.SIGCONT)
        err = process.communicate()[1]
        self.assertIn(process.returncode, (0, 3), err)
        self.tandem("resume", run, "--steps", 70)  # it is free again

    def test_a_run_that_is_being_trained_is_not_gone_on_from(self):
        run = self.run_of("analysis", steps=60)
        with open(run / ".lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = self.tandem("train", "web-agent", "--from", run, "--experience", self.experience("analysis"), "--steps", 20,
                               "--run-dir", self.dir / "new", code=2)
        self.assert_explains(done, "is in use", "still being trained")
        self.assertFalse((self.dir / "new").exists())

    def test_a_run_whose_name_is_no_utf8_is_gone_on_from_and_a_new_one_is_refused_before_it_trains(self):
        old = pathlib.Path(os.fsdecode(bytes(self.dir) + b"/old-\xff"))
        self.run_of("analysis", steps=60).rename(old)
        args = ["--experience", self.experience("analysis"), "--steps", 20, "--lr", "1e-6"]
        output, done = self.go_on(old, *args, "--run-dir", self.dir / "new", code=None)
        self.assertIn(done.returncode, (0, 3), done.stderr)
        self.assertEqual((old / "current.json").exists(), output["accepted"])
        other = pathlib.Path(os.fsdecode(bytes(self.dir) + b"/new-\xfe"))
        refused = self.tandem("train", "web-agent", "--from", old, *args, "--run-dir", other, code=2)
        self.assert_explains(refused, "no UTF-8", "--run-dir")
        self.assertFalse(other.exists())

    def test_a_run_of_several_goes_on_with_those_that_have_something_new(self):
        run = self.web_test("analysis", "evolution")
        output, done = self.go_on(run, "--experience", self.experience("analysis"), "--steps", 20, "--lr", "1e-6", recipe="web-test")
        self.assertEqual(list(output["agents"]), ["analysis"], done.stderr)
        self.assertIn("evolution: nothing new", done.stderr)
        current = json.loads((run / "current.json").read_text())
        self.assertEqual(list(current["agents"]), ["analysis"])
        self.assertEqual(json.loads((pathlib.Path(output["dir"]) / "agents.json").read_text())["agents"]["analysis"]["best"], "agents/analysis")
        full, _ = self.go_on(run, "--full", "--set", "agent=evolution", "--steps", 60, recipe="web-test", code=None)
        self.assertEqual(list(full["agents"]), ["evolution"])
        self.assertEqual(full["mode"], "full")

    def test_one_that_was_killed_resumes_to_the_same_bits_wherever_its_folder_is(self):
        run = self.run_of("analysis", steps=60)
        args = ["train", "web-agent", "--from", run, "--experience", self.experience("analysis"), "--steps", 150]
        self.tandem(*args, "--run-dir", self.dir / "whole", code=None)
        (run / "current.json").unlink(missing_ok=True)
        slowly = ["--devices", "cpu:1@0.02"]  # so that it is killed long before its end
        process = self.start(*args, *slowly, "--checkpoint-every", "1 steps", "--run-dir", self.dir / "part")
        process.kill()
        process.wait()
        self.assertFalse((run / "current.json").exists())
        (self.dir / "part").rename(self.dir / "moved")
        self.tandem("resume", self.dir / "moved", "--devices", "cpu:1")
        self.assertEqual(self.digest(self.dir / "moved"), self.digest(self.dir / "whole"))

    def test_it_prints_timers_and_explains_bad_input(self):
        run = self.run_of("analysis", steps=60)
        output = self.tandem("train", "web-test", "--from", run, "--print-timer", "--experience", "new.jsonl").stdout
        for words in ("OnCalendar=*-*-* 03:00:00", "OnCalendar=Sun", "ExecStart=", "0 3 * * * cd ", "--full", str(run)):
            self.assertIn(words, output)
        self.assert_explains(self.tandem("train", "web-agent", "--from", run, code=2), "--experience")
        self.assert_explains(self.tandem("train", "tiny", "--from", run, code=2), "web-test")
        self.assert_explains(self.tandem("train", "web-agent", "--full", code=2), "--from")
        tiny = self.train("--steps", 3)
        self.assert_explains(self.tandem("train", "web-agent", "--from", tiny["dir"], "--full", code=5), "dueling")


class Gates(GoingOn):
    """Who judges a model that learned from real history."""

    def gates(self, output):
        (agent,) = output["agents"].values()
        return {gate["name"]: gate for gate in agent["gates"]}

    def test_a_history_of_another_product_is_refused_warned_of_or_taken_as_gate_old_says(self):
        # Nothing there is as in the simulator: action 3 pays, whatever is seen.
        learn = ("--experience", self.experience("evolution"), "--set", "experience.share=1", "--set", "experience.holdout=0.2", "--steps", 120,
                 "--lr", "0.002", "--set", "gamma=0.5", "--set", "schedule.kind=constant")
        run = self.fair()
        output, done = self.go_on(run, *learn, code=3)
        gates = self.gates(output)
        self.assertEqual([(gates[name]["measure"], gates[name]["passed"]) for name in ("old", "new")], [("score", False), ("value", True)])
        self.assertEqual(gates["new"]["method"], "fitted Q evaluation")
        self.assertGreater(gates["new"]["low"], 0, "better beyond chance on that product")
        self.assertIn("--gate old=warn", done.stderr)
        self.assertFalse((run / "current.json").exists())
        same, _ = self.go_on(run, *learn, "--gate", "old=refuse", code=3)
        self.assertEqual(self.gates(same), gates, "the same training is judged the same")
        warned, done = self.go_on(run, *learn, "--gate", "old=warn")
        self.assertTrue(warned["accepted"])
        self.assertEqual((self.gates(warned)["old"]["passed"], self.gates(warned)["old"]["rule"]), (False, "warn"))
        self.assertIn("gate old is not passed", done.stderr)
        self.assertTrue((run / "current.json").exists())
        off, _ = self.go_on(self.fair(), *learn, "--gate", "old=off")
        self.assertEqual(list(self.gates(off)), ["new"])

    def test_an_agent_that_never_saw_the_simulator_is_judged_by_its_own_history_alone(self):
        first, second = self.dir / "first.jsonl", self.dir / "second.jsonl"
        first.write_text(lines_of("analysis", 1200))
        second.write_text(lines_of("analysis", 1200, seed=2))
        learn = ("--set", "experience.holdout=0.2", "--set", "gamma=0.5", "--set", "n_step=1", "--set", "schedule.kind=constant")
        run = self.dir / "offline"
        self.tandem("train", "web-agent", *SMALL, "--set", "agent=analysis", *learn, "--experience", first, "--steps", 100, "--lr", "0.003",
                    "--set", "net.dropout=0", "--run-dir", run)
        output, done = self.go_on(run, *learn, "--experience", second, "--steps", 60, "--lr", "0.001")
        gates = self.gates(output)
        self.assertEqual(sorted(gates), ["new", "old data"], done.stderr)
        self.assertTrue(all(gate["judged"] and gate["passed"] and gate["measure"] == "value" for gate in gates.values()), gates)
        new = pathlib.Path(output["agents"]["analysis"]["run"])
        self.assertRegex((new / "recipe.toml").read_text(), r"share = 1\b")
        # What is right is turned round: it learns that and is worse on what it knew.
        third = self.dir / "third.jsonl"
        third.write_text(lines_of("analysis", 1200, seed=3, right=5))
        worse, _ = self.go_on(run, *learn, "--experience", third, "--steps", 200, "--lr", "0.003", code=3)
        gates = self.gates(worse)
        self.assertEqual({name: gate["passed"] for name, gate in gates.items()}, {"new": True, "old data": False, "first": False}, gates)
        broken, _ = self.go_on(run, *learn, "--experience", second, "--steps", 40, "--lr", "0.5", "--gate", "old=off", code=None)
        self.assertEqual(broken["accepted"], self.gates(broken)["new"]["passed"])

    def test_a_file_that_is_gone_judges_nobody_and_is_named(self):
        run, file = self.dir / "offline", self.dir / "first.jsonl"
        file.write_text(lines_of("analysis", 600))
        self.tandem("train", "web-agent", *SMALL, "--set", "agent=analysis", "--experience", file, "--steps", 5, "--run-dir", run)
        file.unlink()
        (self.dir / "second.jsonl").write_text(lines_of("analysis", 1200, seed=2))
        output, done = self.go_on(run, "--experience", self.dir / "second.jsonl", "--steps", 3, "--lr", "1e-6", "--set", "experience.holdout=0.2",
                                  code=None)
        self.assertEqual(list(self.gates(output)), ["new"])
        self.assertIn("not judged by", done.stderr)
        self.assertIn("first.jsonl", done.stderr)

    def test_bad_rules_are_explained_and_timers_keep_good_ones(self):
        run, file = self.run_of("analysis", steps=60), self.experience("analysis", count=40)
        for rule in ("old=maybe", "warn", "older=off", "old=warn,old=off"):
            self.assert_explains(self.tandem("train", "web-agent", "--from", run, "--experience", file, "--gate", rule, code=2), "gate")
        self.assert_explains(self.tandem("train", "web-agent", *SMALL, "--steps", 2, "--gate", "old=warn", code=2), "--from")
        output = self.tandem("train", "web-test", "--from", run, "--experience", file, "--gate", "old=warn", "--print-timer").stdout
        self.assertEqual(output.count("--gate old=warn"), 4, "a service and a cron line for each of two")

    def test_what_cannot_be_judged_is_told_before_training_and_is_never_called_worse(self):
        run, few = self.run_of("analysis", steps=60), self.experience("analysis", count=30)
        runs = lambda: sorted(path.name for path in (self.dir / "runs").glob("web-agent-*"))
        before = runs()
        done = self.tandem("train", "web-agent", "--from", run, "--experience", few, "--steps", 3, "--lr", "1e-6", code=2)
        self.assert_explains(done, "5 are needed", "--gate new=warn", "experience.holdout")
        self.assertNotIn("worse", done.stderr)
        self.assertEqual(runs(), before, "nothing was trained")
        output, done = self.go_on(run, "--experience", few, "--steps", 3, "--lr", "1e-6", "--gate", "new=warn")
        new = self.gates(output)["new"]
        self.assertEqual((new["judged"], new["passed"], new["outcome"]), (False, False, "not judged"))
        self.assertIn("gate new could not judge", done.stderr)

    def test_copies_of_an_episode_judge_once_and_what_was_learned_before_not_at_all(self):
        first, copy, run = self.dir / "first.jsonl", self.dir / "copy.jsonl", self.dir / "offline"
        first.write_text(lines_of("analysis", 800))
        copy.write_text(first.read_text())
        self.tandem("train", "web-agent", *SMALL, "--set", "agent=analysis", "--experience", first, "--steps", 5, "--run-dir", run,
                    "--set", "experience.holdout=0.2")
        new = self.dir / "new.jsonl"
        new.write_text(lines_of("analysis", 800, seed=2))
        quick = ("--steps", 3, "--lr", "1e-7", "--gate", "old=warn,new=warn")
        episodes = lambda files, share, *more: {name: gate.get("episodes") for name, gate in self.gates(self.go_on(
            self.as_it_was(run), "--experience", files, "--set", f"experience.holdout={share}", *quick, *more)[0]).items()}
        once = episodes(new, 0.2)
        self.assertEqual(episodes(f"{new},{new}", 0.2), once)
        both = episodes(f"{new},{first},{copy}", 0.2)
        self.assertEqual((both["old data"], both["new"]), (once["old data"], once["new"] + once["old data"]))
        # The first run held out a fifth; of a larger share the rest was learned from.
        self.assertEqual(episodes(copy, 0.6)["new"], once["old data"])

    def as_it_was(self, run):
        (run / "current.json").unlink(missing_ok=True)
        return run

    def test_a_run_that_was_removed_takes_no_judge_with_it_or_is_named(self):
        run = self.dir / "offline"
        files = [self.dir / f"{n}.jsonl" for n in range(4)]
        for n, file in enumerate(files):
            file.write_text(lines_of("analysis", 300, seed=n + 1))
        share = ("--set", "experience.holdout=0.3")
        self.tandem("train", "web-agent", *SMALL, "--set", "agent=analysis", "--experience", files[0], "--steps", 3, "--run-dir", run, *share)
        day = lambda file: self.go_on(run, "--experience", file, "--steps", 3, "--lr", "1e-7", "--gate", "old=warn,new=warn", *share)
        second, third = day(files[1])[0], day(files[2])[0]
        current = (run / "current.json").read_text()
        whole, done_whole = day(files[3])
        third_run, old = (pathlib.Path(one["agents"]["analysis"]["run"]) for one in (third, second))
        shutil.rmtree(old)
        self.assertNotIn("is gone", done_whole.stderr)
        def once_more():
            (run / "current.json").write_text(current)
            return day(files[3])
        output, done = once_more()
        self.assertEqual(self.gates(output)["old data"]["episodes"], self.gates(whole)["old data"]["episodes"])
        self.assertNotIn("is gone", done.stderr)
        gate = json.loads((third_run / "gate.json").read_text())   # as earlier versions wrote it
        del gate["learned"]
        (third_run / "gate.json").write_text(json.dumps(gate))
        output, done = once_more()
        self.assertIn(f"{old} is gone", done.stderr)
        self.assertLess(self.gates(output).get("old data", {}).get("episodes", 0), self.gates(whole)["old data"]["episodes"])

    def test_the_printed_timer_gives_each_collection_a_name_of_its_own(self):
        run, file = self.run_of("analysis", steps=60), self.experience("analysis", count=300)
        timers = json.loads(self.tandem("train", "web-agent", "--from", run, "--experience", file, "--gate", "old=warn,new=warn",
                                        "--print-timer", "--json").stdout)
        line = lambda name: timers[name]["cron"].split(" ", 5)[5].replace("\\%", "%")   # as cron reads it
        collected = file.read_text()
        for _ in range(2):   # on the second day nothing was collected
            done = subprocess.run(["/bin/sh", "-c", line("tandem-daily")], capture_output=True, text=True)
            log = (self.dir / "tandem-daily.log").read_text()
            self.assertEqual(done.returncode, 0, log)
        self.assertFalse(file.exists())
        (kept,) = self.dir.glob("new-*.jsonl")
        self.assertRegex(kept.name, r"^new-\d{8}-\d{6}\.jsonl$")
        self.assertEqual(kept.read_text(), collected)
        self.assertEqual(log.splitlines()[-1], "nothing new")
        self.assertTrue((run / "current.json").exists(), log)
        subprocess.run(["/bin/sh", "-c", line("tandem-weekly").replace(" --full", " --full --dry-run")], capture_output=True)
        self.assertIn("experience: 300 transitions", (self.dir / "tandem-weekly.log").read_text())


class Bench(Agents):
    def test_the_table_as_text_json_and_csv_leaves_no_folder(self):
        scratch = self.dir / "tmp"
        scratch.mkdir()
        done = self.tandem("bench", "web-test", "--devices", "cpu:2", "--quick", "--repeat", 1, "--json", "--csv", self.dir / "t.csv",
                           env={"TMPDIR": str(scratch)})
        rows = json.loads(done.stdout)["rows"]
        self.assertEqual([(row["devices"], row["batch_size"]) for row in rows], [(n, b) for n in (1, 2) for b in (128, 256, 512)])
        self.assertTrue(all(row["samples_per_s"] > 0 for row in rows))
        self.assertTrue(all(row["speedup"] == 1 for row in rows if row["devices"] == 1))
        with open(self.dir / "t.csv", newline="") as file:
            table = list(csv.DictReader(file))
        self.assertEqual([int(line["batch_size"]) for line in table], [128, 256, 512] * 2)
        self.assertEqual(list(scratch.iterdir()), [])
        self.assertFalse((self.dir / "runs").exists())
        self.assert_explains(self.tandem("bench", "chess", code=2), "web-test")


if __name__ == "__main__":
    unittest.main()

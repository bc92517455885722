"""The recipes dqn and ppo on Gymnasium environments, through the real programs: one digest on any workers and through
kills of worker and environment; failures are named; what can't be learned is refused.

    python3 gym_test.py <folder with tandem and tandem-worker> [unittest arguments]
"""
import json
import os
import pathlib
import select
import sys
import unittest

from run_test import Case  # noqa: E402  (takes the folder from the command line)

HERE = pathlib.Path(__file__).parent
SMALL = ["--set", "net.hidden=[16,16]", "--set", "net.head=8", "--batch-size", "32", "--set", "capacity=4000",
         "--set", "learning_starts=80", "--set", "schedule.kind=constant", "--num-envs", 8, "--seed", 5, "--set", f"env.python={sys.executable}"]


class Gym(Case):
    def tandem(self, *args, env=None, **kwargs):
        return super().tandem(*args, env={"PYTHONPATH": str(HERE), **(env or {})}, **kwargs)

    def train(self, *args, **kwargs):
        return super().train(*SMALL, *args, recipe="dqn", **kwargs)

    def log(self, output):
        return "".join(path.read_text() for path in sorted((pathlib.Path(output["dir"]) / "logs").glob("rank-*.log")))


class Digest(Gym):
    def test_cartpole_has_one_digest_on_any_workers_and_through_a_kill_and_a_resume(self):
        one = self.train("--steps", 60, "--env", "gym:CartPole-v1", "--devices", "cpu:1")
        for way in (["--devices", "cpu:2"], ["--devices", "cpu:3@1,0.5,0.5"]):
            self.assertEqual(self.train("--steps", 60, *way)["digest"], one["digest"])
        done = self.tandem("train", "dqn", *SMALL, "--steps", 60, "--json", "--devices", "cpu:2",
                           env={"TANDEM_FAULT": "in-phase rank=1 step=30 do=kill"})
        self.assertEqual(json.loads(done.stdout)["digest"], one["digest"], done.stderr)
        self.assertNotIn("does not repeat", done.stderr)
        part = self.train("--steps", 23, "--devices", "cpu:2")
        rest = json.loads(self.tandem("resume", part["run"], "--steps", 60, "--devices", "cpu:1", "--json").stdout)
        self.assertEqual(rest["digest"], one["digest"])

    def test_environments_of_a_users_own_are_found_in_the_folder_on_the_path_and_in_a_package(self):
        one = self.train("--steps", 5, "--env", "gym_environments:Walk")["digest"]
        package = self.dir / "my_package"
        package.mkdir()
        (package / "__init__.py").write_text(
            "import gymnasium\nfrom gym_environments import Walk\ngymnasium.register('my_package/Walk-v0', Walk)\n")
        self.assertEqual(self.train("--steps", 5, "--env", "gym:my_package/Walk-v0", "--set", "env.max_steps=1000")["digest"],
                         one)
        (self.dir / "here.py").write_text("from gym_environments import Walk\ndef make(far=False):\n    return Walk()\n")
        self.assertEqual(self.train("--steps", 5, "--env", "here:make", "--set", 'env.arguments={"far": true}')["digest"], one)
        table = self.train("--steps", 5, "--env", "gym:Taxi-v4")  # 500 places: one-hot
        self.assertEqual(len(table["digest"]), 64)


class Faults(Gym):
    def failing(self, how, *more, code=0, devices="cpu:1", always=False):
        arguments = json.dumps({"flag": str(self.dir / f"flag-{how}"), "how": how, "always": always})
        return self.tandem("train", "dqn", *SMALL, "--steps", 40, "--json", "--env", "gym_environments:Once", "--set",
                           f"env.arguments={arguments}", "--devices", devices, *more, code=code)

    def test_an_exception_a_crash_and_a_hang_are_named_started_again_and_cost_no_bit(self):
        whole = None
        for how, word in (("none", ""), ("raise", "ZeroDivisionError: the walk fell down"), ("segfault", "signal 11"),
                          ("hang", "did nothing for 1 s")):
            if how == "none":
                (self.dir / "flag-none").touch()  # as if it had happened
            done = self.failing(how, *(["--set", "env.timeout=1"] if how == "hang" else []),
                                devices="cpu:2" if how == "segfault" else "cpu:1")
            output = json.loads(done.stdout)
            whole = whole or output["digest"]
            self.assertEqual(output["digest"], whole, how)
            if word:
                self.assertIn(word, done.stderr)
                self.assertIn("gym_environments:Once", done.stderr)
                self.assertIn("restart 1 of 3", done.stderr)
        self.assertIn("the walk fell down", self.log_of_run("ZeroDivisionError"))

    def log_of_run(self, word):
        texts = [path.read_text() for path in self.dir.glob("runs/*/logs/*.log")]
        return next(text for text in texts if word in text and "Traceback" in text)

    def pythons(self):
        """A descriptor for each of the environments' processes of this test's runs."""
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if b"\0-u\0-\0" in (entry / "cmdline").read_bytes() and (entry / "cwd").resolve() == self.dir.resolve():
                    found.append(os.pidfd_open(int(entry.name)))
            except OSError:  # it has ended, or is somebody else's
                continue
        return found

    def test_no_environment_outlives_a_killed_launcher(self):
        run = self.start("train", "dqn", *SMALL, "--steps", 1000000, "--devices", "cpu:2")
        alive = self.pythons()
        self.assertEqual(len(alive), 2)
        run.kill()
        run.wait()
        for process in alive:
            self.assertTrue(select.select([process], [], [], 600)[0], "it is still there")
            os.close(process)

    def test_one_that_fails_again_and_again_stops_the_run_with_its_last_words(self):
        done = self.failing("raise", "--set", "env.restarts=2", always=True, code=1)
        error = json.loads(done.stdout)["error"]
        self.assertIn("again and again", error["what"])
        self.assertIn("the walk fell down", error["why"])
        self.assertIn("env.restarts", error["do"])

    def test_one_that_does_not_repeat_itself_is_named_or_refused(self):
        done = self.tandem("train", "dqn", *SMALL, "--steps", 3, "--env", "gym_environments:Whim")
        self.assertIn("gym_environments:Whim does not repeat itself", done.stderr)
        self.assertIn("equal bits are not promised", done.stderr)
        self.assert_explains(self.tandem("train", "dqn", *SMALL, "--steps", 3, "--env", "gym_environments:Whim", "--exact", code=2),
                             "np_random")
        part = self.train("--steps", 5, "--env", "gym_environments:Moody")  # only the resume's replay can tell
        done = self.tandem("resume", part["run"], "--steps", 9)
        self.assertIn("shows another observation", done.stderr)
        part = self.train("--steps", 5, "--env", "gym_environments:Moody")
        self.assert_explains(self.tandem("resume", part["run"], "--steps", 9, "--exact", code=1), "another observation")


class Eval(Gym):
    def run_of(self, environment, *args):
        return self.train("--steps", 12, "--env", environment, *args)

    def eval(self, run, *args, code=0, env=None):
        return self.tandem("eval", run["run"], "--episodes", 10, *args, code=code, env=env)

    def test_tells_return_and_length_of_whole_episodes_beside_random_play(self):
        seven = self.run_of("gym_environments:Seven")
        output = json.loads(self.eval(seven, "--json").stdout)
        agent = output["agents"]["gym_environments:Seven"]
        for figures in (agent, agent["lines"]["random"]):   # seven steps of reward 1, whatever is done
            self.assertEqual([figures[key] for key in ("return", "error", "return_low", "return_high", "least", "most", "length")],
                             [7, 0, 7, 7, 7, 7, 7])
        self.assertEqual(agent["digest"], seven["digest"])
        self.assertEqual(agent["episodes"], 10)
        walk = self.run_of("gym_environments:Walk")
        first, again, other = (json.loads(self.tandem("eval", walk["run"], "--episodes", 100, "--seed", seed, "--json").stdout)["agents"]
                               for seed in (1, 1, 2))
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)
        figures = first["gym_environments:Walk"]
        self.assertLess(figures["return_low"], figures["return"])
        self.assertLess(figures["return"], figures["return_high"])
        self.assertIn('"evaluation":[{', (pathlib.Path(walk["dir"]) / "report.html").read_text())
        table = self.eval(walk)
        for word in ("gym_environments:Walk", "random play", "95 % interval"):
            self.assertIn(word, table.stdout)
        self.assertIn("10 greedy episodes, seed 1, weights of step 12", table.stderr)

    def test_films_the_first_episodes_of_an_environment_that_draws(self):
        run = self.run_of("gym_environments:Drawn")
        (self.dir / "bin").mkdir()
        ffmpeg = self.dir / "bin" / "ffmpeg"   # counts what it is given, into the file that it shall make
        ffmpeg.write_text('#!/bin/sh\necho "$@" > words\nfor last; do :; done\nwc -c > "$last"\n')
        ffmpeg.chmod(0o755)
        path = {"PATH": f"{self.dir / 'bin'}:{os.environ['PATH']}"}
        done = self.eval(run, "--render", "film.mp4", env=path)
        # Three episodes of seven steps: eight pictures each, of 5 x 4 pixels of 3 bytes.
        self.assertEqual(int((self.dir / "film.mp4").read_text()), 3 * 8 * 5 * 4 * 3)
        self.assertIn("video  film.mp4: 3 episodes, 24 frames of 5 x 4", done.stderr)
        words = (self.dir / "words").read_text()
        self.assertIn("-s 5x4 -r 15", words)
        self.eval(run, "--render", os.fsdecode(b"film-\xff.mp4"), env=path)  # a name that is no UTF-8
        self.assertEqual(int(pathlib.Path(os.fsdecode(bytes(self.dir) + b"/film-\xff.mp4")).read_text()), 3 * 8 * 5 * 4 * 3)
        ffmpeg.write_text('#!/bin/sh\necho "no such codec" >&2\nexit 1\n')
        failed = self.eval(run, "--render", "other.mp4", env=path, code=2)
        self.assert_explains(failed, "no such codec")
        self.assertIn("random play", failed.stdout, "the figures are printed though the film failed")
        failed = json.loads(self.eval(run, "--render", "other.mp4", "--json", env=path, code=2).stdout)
        self.assertEqual((failed["video"], failed["agents"]["gym_environments:Drawn"]["return"]), (None, 7))
        self.assertEqual([p.name for p in self.dir.glob("*other*")] + [p.name for p in self.dir.glob(".*.mp4")], [])

    def test_says_what_to_install_or_why_there_is_no_picture(self):
        run = self.run_of("gym_environments:Drawn")
        (self.dir / "imageio_ffmpeg.py").write_text("raise ImportError('none')\n")
        (self.dir / "empty").mkdir()
        done = self.eval(run, "--render", "film.mp4", env={"PATH": str(self.dir / "empty")}, code=2)
        self.assert_explains(done, "there is no ffmpeg", "apt install ffmpeg", "-m pip install imageio-ffmpeg")
        self.assertFalse((pathlib.Path(run["dir"]) / "evaluation.json").exists(), "refused before any episode")
        (self.dir / "imageio_ffmpeg.py").write_text("def get_ffmpeg_exe():\n    return '/bin/true'\n")
        plain = self.run_of("gym_environments:Walk")
        self.assert_explains(self.eval(plain, "--render", "film.mp4", env={"PATH": str(self.dir / "empty")}, code=2),
                             "gym_environments:Walk draws no pictures", "rgb_array")
        self.assert_explains(self.eval(plain, "--render", "film.txt", code=2), "no kind of video")
        self.assert_explains(self.eval(plain, "--render", "nowhere/film.mp4", code=2), "nowhere")

    def test_return_is_in_the_last_line_in_runs_and_in_the_monitor(self):
        done = self.tandem("train", "dqn", *SMALL, "--steps", 12, "--env", "gym_environments:Seven", "--run-dir", "seven")
        self.assertRegex(done.stderr, r"done at step 12 after \S+  return 7  loss")
        listed = self.tandem("runs").stdout.splitlines()
        self.assertIn("RETURN", listed[0])
        self.assertRegex(listed[1], r"^seven +dqn +done +12/12 +7 ")
        self.assertEqual(json.loads((self.dir / "seven/run.json").read_text())["extra"]["average_return"], 7)
        look = self.tandem("monitor", "seven", "--snapshot", "--no-history").stdout
        self.assertIn("return 7", look)


class PolicyGradient(Gym):
    SMALL = ["--set", "shards=2", "--num-envs", 2, "--set", "ppo.horizon=32", "--batch-size", 16, "--set", "ppo.epochs=2",
             "--set", "net.hidden=[16]", "--seed", 5, "--set", f"env.python={sys.executable}"]

    def test_ppo_on_cartpole_and_pendulum_has_one_digest_on_one_and_two_workers_and_is_judged(self):
        for environment in ("gym:CartPole-v1", "gym:Pendulum-v1"):  # discrete and continuous actions
            runs = [json.loads(self.tandem("train", "ppo", *self.SMALL, "--steps", 20, "--env", environment, "--devices", devices,
                                           "--json").stdout) for devices in ("cpu:1", "cpu:2")]
            self.assert_bits(runs[1]["digest"], runs[0]["digest"], environment)
            found = json.loads(self.tandem("eval", runs[0]["run"], "--episodes", 4, "--json").stdout)["agents"][environment]
            self.assertEqual((found["episodes"], found["digest"]), (4, runs[0]["digest"]))
            self.assertGreater(found["length"], 1)


class BadInput(Gym):
    def refused(self, *args, words, code=2):
        done = self.tandem("train", "dqn", *SMALL, "--steps", 3, *args, code=code)
        self.assert_explains(done, *words)
        self.assertEqual(list(self.dir.glob("runs/dqn-*")), [], "nothing is left behind")

    def test_what_cannot_be_learned_is_refused_with_what_to_do(self):
        self.refused("--env", "gym:CartPol-v1", words=["CartPol", "CartPole"])
        self.refused("--env", "CartPole-v1", words=["gym:CartPole-v1"])
        self.refused("--env", "gym:Pendulum-v1", words=["continuous actions"])
        self.refused("--env", "gym:Blackjack-v1", words=["observation", "FlattenObservation"])
        self.refused("--env", "gym_environments:Pair", words=["Dict", "FlattenObservation"])
        self.refused("--env", "gym_environments:Wolk", words=["Wolk"])
        self.refused("--env", "gym_environments:broken", words=["no engine"])
        self.refused("--env", "gym:nowhere/Walk-v0", words=["nowhere"])
        self.refused("--env", "gym_environments:Nan", words=["nan"])
        self.refused("--set", "env.arguments=[1]", words=["JSON"])
        self.refused("--num-envs", 6, words=["4 or 8"])
        self.refused("--set", "env.python=/nowhere/python3", words=["/nowhere/python3", "env.python"])

    def test_an_environment_beside_a_history_must_be_the_one_that_was_recorded(self):
        line = '{"state": [1, 2, 3], "action": %d, "reward": 1, "next_state": [1, 2, 3], "done": true}\n'
        (self.dir / "h.jsonl").write_text("".join(line % (i % 3) for i in range(40)))
        self.refused("--env", "gym:CartPole-v1", "--experience", "h.jsonl", "--set", "experience.share=0.5",
                     words=["does not fit the experience", "4 numbers and it knows 2 actions, the experience has 3 and 3"])

    def test_a_crash_text_of_odd_characters_tells_the_cause_and_steers_no_terminal(self):
        done = self.tandem("train", "dqn", *SMALL, "--steps", 3, "--env", "gym_environments:Odd", code=2)
        self.assertIn("the cause", done.stderr)
        self.assertIn("Own", done.stderr)
        for character in "\x1b\x07\x9b":
            self.assertNotIn(character, done.stderr)

    def test_a_reward_beyond_float32_is_refused(self):
        self.refused("--env", "gym_environments:Huge", words=["1e+300", "float32"])

    def test_one_that_dies_at_its_start_leaves_the_log_that_the_message_names(self):
        done = self.tandem("train", "dqn", *SMALL, "--steps", 3, "--env", "gym_environments:Dies", code=1)
        self.assertIn("signal 11", done.stderr)
        self.assertIn("logs/rank-*.log", done.stderr)
        logs = list(self.dir.glob("runs/dqn-*/logs/rank-*.log"))
        self.assertTrue(any("last words of a library" in log.read_text() for log in logs), logs)

    def test_a_python_without_gymnasium_is_told_how_to_get_it(self):
        bare = self.dir / "python3"
        bare.write_text(f"#!/bin/sh\nexec {sys.executable} -S -E \"$@\"\n")  # without its packages
        bare.chmod(0o755)
        self.refused("--set", f"env.python={bare}", words=["gymnasium is not installed", "-m pip install gymnasium"])

    def test_no_time_limit_is_told(self):
        done = self.tandem("train", "dqn", *SMALL, "--steps", 3, "--env", "gym_environments:Endless")
        self.assertIn("env.max_steps", done.stderr)

    def test_another_recipe_has_no_environment_to_choose(self):
        self.assert_explains(self.tandem("train", "tiny", "--env", "gym:CartPole-v1", code=2), "env.id")


if __name__ == "__main__":
    unittest.main()

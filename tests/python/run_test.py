"""Whole runs through the real programs: digests, stop and resume, signals, kills, damaged files, bad input.

    python3 run_test.py <folder with tandem and tandem-worker> [unittest arguments]

Waiting is done on what a program prints or on its end, never on time.
"""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
TANDEM = BIN / "tandem"
QUICK = ["--set", "samples=400", "--set", "hidden=16", "--batch-size", "48"]  # tiny, smaller
QUICK_RL = ["--set", "ring=64", "--set", "hidden=8", "--batch-size", "48"]
EVERY_STEP = ["--checkpoint-every", "1 steps"]


class WrongBits(Exception):
    """No busy moment explains it: again() does not try it again."""


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="tandem-run-test-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def tandem(self, *args, code=0, env=None):
        done = subprocess.run([TANDEM, *map(str, args)], cwd=self.dir, capture_output=True, text=True,
                              env={**os.environ, "NO_COLOR": "1", **(env or {})}, stdin=subprocess.DEVNULL)
        if code is not None:
            self.assertEqual(done.returncode, code, f"{args}\n{done.stdout}\n{done.stderr}")
        return done

    def train(self, *args, code=0, recipe="tiny"):
        return json.loads(self.tandem("train", recipe, "--json", *args, code=code).stdout)

    def start(self, *args, may_be_done=False):
        """A run in the background, returned once it has said that it began (or that nothing is left to do)."""
        process = subprocess.Popen([TANDEM, *map(str, args)], cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, env={**os.environ, "NO_COLOR": "1"})
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.wait_for(process, "exact ", may_be_done)
        return process

    def wait_for(self, process, word, may_be_done=False):
        for line in process.stderr:
            if word in line:
                return line
        if may_be_done and process.wait() == 0:
            return ""
        self.fail(f"the program ended before it said '{word}'")

    def again(self, attempt, tries=3):
        """What a moment without a core may spoil is tried again; what is broken fails every time. Gets the try's number."""
        for number in range(tries):
            try:
                return attempt(number)
            except AssertionError:
                if number + 1 == tries:
                    raise

    def assert_bits(self, found, expected, why=""):
        if found != expected:
            raise WrongBits(f"{found} is not {expected}\n{why}")

    def assert_explains(self, done, *words):
        for word in ("error: ", "why ", "do ", *words):
            self.assertIn(word, done.stderr)


# Of docs/results/h200.json, table "digests": kind of the machine, and the digest there.
RECORDED = {"tiny": ("cpu-x86_64-avx512-45c7ab02125e", "8206d4a9d7ecf03c"),
            "tiny-rl": ("cpu-x86_64-avx512-45c7ab02125e", "af2f08cb9d134b93")}


class Digest(Case):
    def assert_recorded(self, run, recipe):
        kind, digest = RECORDED[recipe]
        if run["kind"] == kind:  # another kind may give other bits
            self.assert_bits(run["digest"][:16], digest, f"{recipe} on {kind}")

    def test_two_hundred_steps_of_tiny_give_one_digest_on_repetition_and_any_plan(self):
        first = self.train("--steps", 200, "--seed", 7)
        self.assertEqual(len(first["digest"]), 64)
        self.assertTrue(first["kind"].startswith("cpu-"))
        for more in (["--devices", "cpu:3"], ["--devices", "cpu:5@1,1,0.5,0.25,1", "--loader-threads", "0"]):
            self.assertEqual(self.train("--steps", 200, "--seed", 7, *more)["digest"], first["digest"])
        self.assert_recorded(first, "tiny")

    def test_tiny_rl_gives_one_digest_and_another_seed_another(self):
        first = self.train("--steps", 60, "--seed", 7, recipe="tiny-rl")
        self.assert_recorded(first, "tiny-rl")
        self.assertEqual(self.train("--steps", 60, "--seed", 7, recipe="tiny-rl")["digest"], first["digest"])
        self.assertNotEqual(self.train("--steps", 60, "--seed", 8, recipe="tiny-rl")["digest"], first["digest"])

    def test_recipe_and_data_change_the_digest(self):
        digests = {self.train(*QUICK, "--steps", 10, *more)["digest"]
                   for more in ([], ["--seed", 2], ["--lr", "0.001"], ["--set", "data_seed=5"], ["--precision", "bf16"])}
        self.assertEqual(len(digests), 5)

    def test_digest_and_export_tell_the_same_weights(self):
        run = self.train(*QUICK, "--steps", 5)
        output = json.loads(self.tandem("digest", run["dir"], "--json").stdout)
        self.assertEqual(output["digest"], run["digest"])
        self.tandem("export", run["dir"], "--output", "weights.safetensors")
        again = json.loads(self.tandem("digest", "weights.safetensors", "--json").stdout)
        self.assertEqual(again["digest"], run["digest"])
        try:
            from safetensors.numpy import load_file
        except ImportError:
            self.skipTest("PyPI's safetensors is not installed")
        weights = load_file(self.dir / "weights.safetensors")
        self.assertEqual(weights["fc1.weight"].shape, (16, 32))
        self.assertIn("bn1.running_mean", weights)


class Kind(Case):
    def test_libraries_told_to_calculate_otherwise_are_another_kind(self):
        wide = ["--set", "samples=400", "--set", "hidden=640", "--batch-size", 48, "--steps", 3, "--json"]  # by a library
        plain = json.loads(self.tandem("train", "tiny", *wide).stdout)
        for told in ({"MKL_CBWR": "COMPATIBLE"}, {"ATEN_CPU_CAPABILITY": "default"}):
            other = json.loads(self.tandem("train", "tiny", *wide, env=told).stdout)
            if other["digest"] != plain["digest"]:  # on some CPUs they give the same bits all the same
                self.assertNotEqual(other["kind"], plain["kind"], told)
        if "-default-" not in plain["kind"]:
            self.assertNotEqual(other["kind"], plain["kind"], "its vector kernels are others")


class Devices(Case):
    def test_shards_from_devices_are_frozen_and_a_resume_on_fewer_keeps_the_bits(self):
        args = ["--set", 'shards="devices"', "--set", "samples=400", "--set", "hidden=16", "--batch-size", "16"]
        whole = self.train(*args, "--devices", "cpu:3", "--steps", 20)
        part = self.train(*args, "--devices", "cpu:3", "--steps", 10)
        rest = json.loads(self.tandem("resume", part["run"], "--devices", "cpu:2", "--steps", 20, "--json").stdout)
        self.assertEqual(rest["digest"], whole["digest"])


class Resume(Case):
    def test_stopped_by_steps_and_resumed_keeps_every_bit(self):
        for recipe, quick in (("tiny", QUICK), ("tiny-rl", QUICK_RL)):
            whole = self.train(*quick, "--steps", 40, recipe=recipe)
            for stop in (1, 17, 39):
                part = self.train(*quick, "--steps", stop, recipe=recipe)
                rest = json.loads(self.tandem("resume", part["run"], "--steps", 40, "--json").stdout)
                self.assertEqual(rest["digest"], whole["digest"], f"{recipe} stopped at {stop}")
                lines = (pathlib.Path(rest["dir"]) / "metrics.jsonl").read_text().splitlines()
                steps = [json.loads(line)["step"] for line in lines]
                self.assertEqual(steps, list(range(1, 41)), "every step once")

    def test_ctrl_c_saves_and_resume_ends_with_the_bits_of_a_quiet_run(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            process = self.start("train", "tiny", *QUICK, "--steps", 10000000, "--run-dir", f"run-{code}")
            process.send_signal(number)
            process.communicate()
            self.assertEqual(process.returncode, code)
            run = json.loads((self.dir / f"run-{code}/run.json").read_text())
            self.assertEqual(run["status"], "stopped")
            steps = run["step"] + 300
            rest = json.loads(self.tandem("resume", f"run-{code}", "--steps", steps, "--json").stdout)
            self.assertEqual(rest["digest"], self.train(*QUICK, "--steps", steps)["digest"])

    def test_sigusr1_saves_and_goes_on(self):
        process = self.start("train", "tiny", *QUICK, "--steps", 100000, "--run-dir", "run", "--checkpoint-every", "never")
        process.send_signal(signal.SIGUSR1)
        self.wait_for(process, "as asked; going on")
        self.assertTrue((self.dir / "run/checkpoints/latest").exists())
        process.send_signal(signal.SIGINT)
        process.communicate()
        self.assertEqual(process.returncode, 130)

    def test_the_second_ctrl_c_ends_at_once_and_the_run_is_resumable(self):
        process = self.start("train", "tiny", "--steps", 1000000, "--run-dir", "run", *EVERY_STEP)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.communicate()
        self.assertEqual(process.returncode, 130)

    def test_max_time_stops_with_the_requeue_code(self):
        def attempt(number):  # a busy machine may need longer to begin
            part = self.train(*QUICK, "--steps", 10000000, "--max-time", f"{10 ** number}s", code=75)
            self.assertEqual(part["status"], "stopped")
            self.assertGreater(part["step"], 0)

        self.again(attempt)

    def test_a_killed_run_resumes_to_the_same_bits(self):
        for recipe, quick in (("tiny", QUICK), ("tiny-rl", QUICK_RL)):
            whole = self.train(*quick, "--steps", 300, recipe=recipe)
            process = self.start("train", recipe, *quick, "--steps", 300, "--run-dir", f"run-{recipe}", *EVERY_STEP)
            process.kill()  # the launcher; its worker goes with it
            process.communicate()
            rest = json.loads(self.tandem("resume", f"run-{recipe}", "--json").stdout)
            self.assertEqual(rest["digest"], whole["digest"])

    def test_a_damaged_checkpoint_is_refused_by_name_and_the_one_before_is_used(self):
        whole = self.train(*QUICK, "--steps", 30)
        part = self.train(*QUICK, "--steps", 20, "--checkpoint-every", "5 steps")
        newest = pathlib.Path(part["dir"]) / "checkpoints/step-00000020/model.safetensors"
        data = bytearray(newest.read_bytes())
        data[-3] ^= 1
        newest.write_bytes(data)
        done = self.tandem("resume", part["run"], "--steps", 30, "--json")
        self.assertEqual(json.loads(done.stdout)["digest"], whole["digest"])
        self.assertIn("refused checkpoint step-00000020: model.safetensors", done.stderr)

    def damage(self, file):
        data = bytearray(file.read_bytes())
        data[-3] ^= 1
        file.write_bytes(data)

    def test_a_finished_run_whose_newest_checkpoint_is_damaged_is_trained_to_its_end_again(self):
        for devices, name in (("cpu:1", "model.safetensors"), ("cpu:2", "state.safetensors.zst")):
            run = self.train(*QUICK, "--steps", 20, "--checkpoint-every", "5 steps", "--devices", devices)
            self.damage(pathlib.Path(run["dir"]) / f"checkpoints/step-00000020/{name}")
            done = self.tandem("resume", run["run"], "--json")
            again = json.loads(done.stdout)
            self.assertEqual((again["step"], again["digest"]), (20, run["digest"]), done.stderr)
            self.assertIn(f"refused checkpoint step-00000020: {name}", done.stderr)
            self.assertNotIn("nothing to do", done.stderr)
            self.assertIn("nothing to do", self.tandem("resume", run["run"]).stderr, "now it is whole")
            self.assertEqual(json.loads(self.tandem("digest", run["run"], "--json").stdout)["digest"], run["digest"])

    def test_when_all_checkpoints_are_damaged_the_code_is_5_for_several_workers_and_nothing_is_removed(self):
        run = self.train(*QUICK, "--steps", 10, "--checkpoint-every", "5 steps")
        folder = pathlib.Path(run["dir"])
        for file in folder.glob("checkpoints/step-*/model.safetensors"):
            self.damage(file)
        kept = {path: path.read_bytes() for path in [*folder.glob("checkpoints/**/*"), folder / "recipe.toml"] if path.is_file()}
        for args in (["resume", run["run"]], ["resume", run["run"], "--steps", 20], ["train", "tiny", f"--resume={run['run']}", "--steps", 20]):
            done = self.tandem(*args, "--devices", "cpu:3", code=5)
            self.assert_explains(done, "is whole", "step-00000010: model.safetensors", "step-00000005")
            self.assertNotIn("another process", done.stderr)
            self.assertEqual({path: path.read_bytes() for path in kept if path.exists()}, kept)

    def test_when_no_checkpoint_is_whole_it_says_so_with_code_5(self):
        part = self.train(*QUICK, "--steps", 4)
        for manifest in (pathlib.Path(part["dir"]) / "checkpoints").glob("step-*/manifest.json"):
            manifest.write_text(manifest.read_text()[:-20])
        self.assert_explains(self.tandem("resume", part["run"], "--steps", 8, code=5), "manifest.json")

    def test_a_checkpoint_of_a_newer_format_is_told_apart(self):
        part = self.train(*QUICK, "--steps", 4)
        for path in (pathlib.Path(part["dir"]) / "checkpoints").glob("step-*/manifest.json"):
            manifest = json.loads(path.read_text())
            manifest["format"] = 99
            path.write_text(json.dumps(manifest))
        done = self.tandem("resume", part["run"], "--steps", 8, code=5)
        self.assertIn("newer", done.stderr)

    def test_what_a_resume_refuses_leaves_the_run_as_it_was(self):
        part = self.train(*QUICK, "--steps", 4)
        before = (pathlib.Path(part["dir"]) / "recipe.toml").read_text()
        self.tandem("resume", part["run"], "--episodes", 5, code=2)
        self.assertEqual((pathlib.Path(part["dir"]) / "recipe.toml").read_text(), before)
        self.assertEqual(json.loads(self.tandem("resume", part["run"], "--steps", 6, "--json").stdout)["step"], 6)

    def test_a_stop_rule_given_again_replaces_the_recorded_one(self):
        part = self.train(*QUICK, "--steps", 4)
        rest = json.loads(self.tandem("resume", part["run"], "--epochs", 2, "--json").stdout)
        self.assertEqual(rest["step"], 18)

    def test_a_goal_already_reached_changes_nothing(self):
        part = self.train(*QUICK, "--steps", 6)
        again = json.loads(self.tandem("resume", part["run"], "--steps", 3, "--json").stdout)
        self.assertEqual((again["step"], again["digest"]), (6, part["digest"]))

    def test_an_older_checkpoint_can_be_named(self):
        whole = self.train(*QUICK, "--steps", 8)
        part = self.train(*QUICK, "--steps", 6, "--checkpoint-every", "2 steps")
        older = pathlib.Path(part["dir"]) / "checkpoints/step-00000004"
        rest = json.loads(self.tandem("train", "tiny", "--checkpoint", older, "--steps", 8, "--json").stdout)
        self.assertEqual(rest["digest"], whole["digest"])

    def test_train_resume_checks_the_recipe_and_the_folder(self):
        part = self.train(*QUICK, "--steps", 4)
        self.assert_explains(self.tandem("train", "tiny-rl", f"--resume={part['run']}", code=2), "tiny-rl")
        self.assert_explains(self.tandem("train", "tiny", f"--resume={part['run']}", "--run-dir", "other", code=2))
        rest = json.loads(self.tandem("train", f"--resume={part['run']}", "--steps", 5, "--json").stdout)
        self.assertEqual(rest["step"], 5)

    def test_another_shard_count_or_recipe_key_is_refused(self):
        part = self.train(*QUICK, "--steps", 4)
        self.assert_explains(self.tandem("resume", part["run"], "--set", "shards=12", code=2), "24", "12", "shard")
        self.assert_explains(self.tandem("resume", part["run"], "--set", "dropout=0.3", code=2), "dropout")


class Disk(Case):
    def test_a_full_disk_is_told_and_the_run_goes_on_with_the_old_checkpoint_intact(self):
        room = self.dir / "small"
        room.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", room], capture_output=True).returncode:
            self.skipTest("mounting a small file system needs root")
        self.addCleanup(subprocess.run, ["umount", "-l", room])
        whole = self.train(*QUICK, "--steps", 60)
        first = self.train(*QUICK, "--steps", 20, "--run-dir", "small/run")
        self.assertEqual(first["status"], "done")
        free = os.statvfs(room).f_bavail * os.statvfs(room).f_frsize
        (room / "filler").write_bytes(b"x" * max(0, free - 40_000))
        done = self.tandem("resume", "small/run", "--steps", 60, *EVERY_STEP, code=1)
        self.assertIn("NOT saved", done.stderr)
        self.assertIn("the last checkpoint, of step 60, could not be saved", done.stderr)
        (room / "filler").unlink()
        rest = json.loads(self.tandem("resume", "small/run", "--steps", 60, "--json").stdout)
        self.assertEqual(rest["digest"], whole["digest"])


    def test_a_disk_that_is_full_at_the_start_is_told_and_the_folder_stays(self):
        room = self.dir / "small"
        room.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", room], capture_output=True).returncode:
            self.skipTest("mounting a small file system needs root")
        self.addCleanup(subprocess.run, ["umount", "-l", room])
        for kilobytes in (12, 20):  # room for the folder and its recipe, not for what follows the first worker
            free = os.statvfs(room).f_bavail * os.statvfs(room).f_frsize
            (room / f"filler-{kilobytes}").write_bytes(b"x" * max(0, free - 1024 * kilobytes))
            done = self.tandem("train", "tiny", *QUICK, "--steps", 5, "--devices", "cpu:2", "--run-dir", f"small/{kilobytes}", code=1)
            self.assert_explains(done, "No space left on device")
            self.assertNotIn("another process", done.stderr)
            self.assertTrue((room / f"{kilobytes}/recipe.toml").exists())
            shutil.rmtree(room / f"{kilobytes}")
            (room / f"filler-{kilobytes}").unlink()


class BadInput(Case):
    def test_each_is_told_with_what_why_what_to_do_and_code_2(self):
        (self.dir / "typo.toml").write_text('recipe = "tiny"\n\n[optimizer]\nlerning_rate = 0.1\n')
        (self.dir / "type.toml").write_text('recipe = "tiny"\nsteps = "many"\n')
        (self.dir / "broken.toml").write_text('recipe = "tiny"\nsteps = = 3\n')
        for args, words in (
                (["tinny"], ["tiny"]),
                (["tiny", "--devices", "cuda:0"], ["cuda:0"]),
                (["tiny", "--devices", "tpu"], ["tpu"]),
                (["tiny", "--devices", "cpu:25"], ["25", "24"]),
                (["typo.toml"], ["typo.toml:4", "learning_rate"]),
                (["type.toml"], ["type.toml:2", "steps"]),
                (["broken.toml"], ["broken.toml"]),
                (["tiny", "--set", "hiden=3"], ["hidden"]),
                (["tiny", "--set", "dropout=1.5"], ["dropout"]),
                (["tiny", "--set", "optimizer.learning_rate=-1"], ["learning_rate"]),
                (["tiny", "--batch-size", "100"], ["96", "120"]),
                (["tiny", "--batch-size", "24000"], ["5100 samples", "5112"]),
                (["tiny", "--steps", "x"], ["steps"]),
                (["tiny", "--run-dir", "/proc/none"], ["/proc/none"]),
        ):
            self.assert_explains(self.tandem("train", *args, code=2), *words)
        self.assertFalse((self.dir / "runs").exists() and any((self.dir / "runs").glob("*/metrics.jsonl")))

    def test_the_wrong_unit_is_told(self):
        self.assert_explains(self.tandem("train", "tiny", "--episodes", 5, "--run-dir", "refused", code=2), "episodes")
        self.assertFalse((self.dir / "refused").exists(), "a start that is refused leaves nothing behind")

    def test_batch_norm_over_one_row_is_told_before_it_makes_nan(self):
        self.assert_explains(self.tandem("train", "tiny", "--batch-size", 24, "--steps", 3, code=2), "sync_bn")

    def test_an_error_is_an_object_with_json(self):
        done = self.tandem("train", "tiny", *QUICK, "--set", "optimizer.kind=sgd", "--lr", "1e38", "--steps", 200, "--json", code=7)
        self.assertEqual(json.loads(done.stdout)["error"]["code"], 7)

    def test_resuming_what_is_not_there_is_told(self):
        self.assert_explains(self.tandem("resume", "nothing-here", code=2), "nothing-here")


class Nan(Case):
    def test_a_diverging_run_stops_with_code_7_and_says_where(self):
        done = self.tandem("train", "tiny", *QUICK, "--set", "optimizer.kind=sgd", "--lr", "1e38", "--steps", 200, code=7)
        self.assert_explains(done, "NaN or Inf")
        self.assertIn("rolled back", done.stderr)


class RunFolder(Case):
    def test_everything_a_run_promises_is_in_its_folder(self):
        run = self.train(*QUICK, "--epochs", 2)
        folder = pathlib.Path(run["dir"])
        self.assertEqual(run["step"], 18)  # ceil(400 / 48) updates an epoch
        for name in ("recipe.toml", "env.json", "metrics.jsonl", "training_stats.json", "logs/rank-0.log", "report.html",
                     "run.json", "checkpoints/latest"):
            self.assertTrue((folder / name).exists(), name)
        self.assertTrue(list(folder.glob("events.out.tfevents.*")))
        self.assertIn("# --set", (folder / "recipe.toml").read_text())
        page = (folder / "report.html").read_text()
        self.assertIsNone(re.search(r"""(src|href)\s*=\s*["']?https?:|@import|fetch\(""", page), "the report needs no network")
        listed = json.loads(self.tandem("runs", "list", "--json").stdout)
        self.assertIn(run["run"], json.dumps(listed))


class Kills(Case):
    """kill -9 around checkpoint writes: TANDEM_KILLS of them (a few in CI)."""

    def test_after_every_kill_a_whole_checkpoint_loads_and_the_bits_are_kept(self):
        kills, chooser = int(os.environ.get("TANDEM_KILLS", "8")), random.Random(5)
        whole = self.train(*QUICK, "--steps", 400)
        process, run, done = None, 0, 0
        saved = -1
        while done < kills:
            folder = self.dir / f"run-{run}"
            args = ["resume", folder] if folder.exists() else ["train", "tiny", *QUICK, "--run-dir", folder]
            # killed after its last checkpoint, a run has nothing left to do
            process = self.start(*args, "--steps", 400, *EVERY_STEP, may_be_done=args[0] == "resume")
            # kill after a random number of further bytes of its log, so that the moment falls anywhere around a write
            wait = chooser.random() * 0.15
            try:
                process.wait(timeout=wait)
            except subprocess.TimeoutExpired:
                process.kill()
            process.communicate()
            done += 1
            output = self.tandem("digest", folder, "--json", code=0) if (folder / "checkpoints/latest").exists() else None
            if output:
                step = json.loads(output.stdout).get("step", 0)
                self.assertGreaterEqual(step, saved, "never behind an earlier checkpoint")
                saved = step
            if process.returncode == 0:
                rest = json.loads(self.tandem("digest", folder, "--json").stdout)
                self.assertEqual(rest["digest"], whole["digest"])
                run, saved = run + 1, -1
        rest = json.loads(self.tandem("resume", self.dir / f"run-{run}", "--steps", 400, "--json").stdout) \
            if (self.dir / f"run-{run}").exists() else whole
        self.assertEqual(rest["digest"], whole["digest"])
        print(f"{done} kills, {run} whole runs in between", file=sys.stderr)


if __name__ == "__main__":
    unittest.main()

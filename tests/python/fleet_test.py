"""Many workers through the real programs: any plan, any failure, the same bits.

    python3 fleet_test.py <folder with tandem and tandem-worker> [unittest arguments]

Faults are planted at named points (base/fault_points.h) or sent as real signals to real processes. Waiting is done on
what a program prints or on its end, never on time.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import unittest

from run_test import BIN, TANDEM, Case, QUICK, QUICK_RL  # noqa: E402  (takes the folder from the command line)

JOBS = (("tiny", QUICK), ("tiny-rl", QUICK_RL))
ENDLESS = 10000000  # steps of a run that the test stops: however busy the machine, the run does not end first
FROZEN = {"TANDEM_FROZEN_SECONDS": "2"}  # only where a worker stops: a busy machine may hold up others for as long


def children(pid):
    try:
        return [int(p) for p in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Fleet(Case):
    _quiet = {}

    def quiet(self, recipe, steps):
        """The digest of one worker that nobody disturbs."""
        key = (recipe, steps)
        if key not in Fleet._quiet:
            Fleet._quiet[key] = self.train(*dict(JOBS)[recipe], "--steps", steps, "--devices", "cpu:1", recipe=recipe)["digest"]
        return Fleet._quiet[key]

    def faulty(self, recipe, faults, *args, steps=40, code=0, env=None):
        return self.tandem("train", recipe, *dict(JOBS)[recipe], "--steps", steps, "--json", *args, code=code,
                           env={"TANDEM_FAULT": faults, **(env or {})})

    def assert_same(self, done, recipe, steps=40):
        output = json.loads(done.stdout)
        self.assert_bits(output["digest"], self.quiet(recipe, steps), done.stderr)
        lines = (pathlib.Path(output["dir"]) / "metrics.jsonl").read_text().splitlines()
        self.assertEqual([json.loads(line)["step"] for line in lines], list(range(1, steps + 1)), "every step once")
        return output


    def lines_until(self, process, word):
        """What the program says before it says this."""
        before = ""
        for line in process.stderr:
            if word in line:
                return before
            before += line
        self.fail(f"the program ended before it said '{word}':\n{before}")

    def wait_until(self, what, seconds=600):
        end = time.monotonic() + seconds
        while not what():
            self.assertLess(time.monotonic(), end, "it never happened")
            time.sleep(0.005)  # lint: allow(sleep) between two looks at a condition that has its own end

    def set_environment(self, **names):
        for name, value in names.items():
            os.environ[name] = value
            self.addCleanup(os.environ.pop, name, None)

    def assert_stops_as(self, process, recipe, code=130, **figures):
        """A run without an end, stopped now: it has the digest of one worker after as many steps, and these figures."""
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
        self.assertEqual(process.returncode, code, err)
        output = json.loads(out)
        self.assert_bits(output["digest"], self.quiet(recipe, output["step"]), err)
        self.assertEqual({name: output[name] for name in figures}, figures, err)
        return err

    def assert_ends_as(self, process, recipe, steps, **figures):
        """It ends by itself, with the digest of one worker and these figures."""
        out, err = process.communicate()
        self.assertEqual(process.returncode, 0, err)
        output = json.loads(out)
        self.assert_bits(output["digest"], self.quiet(recipe, steps), err)
        self.assertEqual({name: output[name] for name in figures}, figures, err)
        return err


class Plans(Fleet):
    def test_one_to_five_workers_and_unequal_slots_give_one_digest(self):
        for recipe, _ in JOBS:
            for devices in ("cpu:2", "cpu:3", "cpu:4", "cpu:5", "cpu:3@1,0.5,0.5", "cpu:4@0.2,1,0.4,0.7"):
                output = self.assert_same(self.faulty(recipe, "", "--devices", devices), recipe)
                self.assertEqual(output["deaths"], 0)

    def test_options_that_change_the_arithmetic_are_exact_over_processes_too(self):
        for more in (["--precision", "bf16"], ["--accumulation", "2", "--batch-size", "96"], ["--set", "sync_bn=true"]):
            alone = self.train(*QUICK, *more, "--steps", 12, "--devices", "cpu:1")
            self.assertEqual(self.train(*QUICK, *more, "--steps", 12, "--devices", "cpu:3")["digest"], alone["digest"], more)

    def test_stopped_on_three_and_resumed_on_two(self):
        for recipe, quick in JOBS:
            part = self.train(*quick, "--steps", 15, "--devices", "cpu:3", recipe=recipe)
            rest = json.loads(self.tandem("resume", part["run"], "--steps", 40, "--devices", "cpu:2", "--json").stdout)
            self.assert_bits(rest["digest"], self.quiet(recipe, 40))

    def test_a_slowed_worker_gets_fewer_shards_and_the_plan_is_told(self):
        # Without an end: on a busy machine it takes as many steps as it takes until speeds are known well enough.
        self.set_environment(TANDEM_SLOW="1:20:0.03")
        process = self.start("train", "tiny", *QUICK, "--steps", ENDLESS, "--devices", "cpu:2", "--run-dir", "run", "--json")
        line = ""
        while not (shards := re.search(r"24 shards on 2 workers: (\d+) (\d+)", line)) or int(shards[2]) > 8:  # 1 would be fair
            line = self.wait_for(process, "24 shards on 2 workers")
        self.assert_stops_as(process, "tiny")
        first = int(shards[1])
        self.assertRegex((self.dir / "run/events.jsonl").read_text(), rf"rank 0: 0-{first - 1}, rank 1: {first}(-23)?\)")


class Faults(Fleet):
    POINTS = ("start", "before-phase step=17", "in-phase step=17", "before-combine step=17", "after-combine step=17",
              "before-apply step=17", "after-apply step=17", "at-boundary step=17", "in-snapshot", "after-snapshot",
              "in-hold", "before-adopt")

    def test_a_kill_at_every_named_point_changes_no_bit(self):
        for recipe, _ in JOBS:
            for point in self.POINTS:
                word, _, step = point.partition(" ")
                done = self.faulty(recipe, f"{word} rank=1 {step} do=kill", "--devices", "cpu:3", "--checkpoint-every", "5 steps")
                with self.subTest(recipe=recipe, point=point):
                    self.assert_same(done, recipe)

    def test_exit_crash_abort_and_refused_memory_are_named_and_survived(self):
        for act, words in (("exit", "exited with code 9"), ("segv", "SIGSEGV"), ("abort", "SIGABRT"), ("oom", "out of memory"),
                           ("kill", "SIGKILL")):
            for recipe, _ in JOBS:
                done = self.faulty(recipe, f"in-phase rank=1 step=12 do={act}", "--devices", "cpu:3")
                self.assert_same(done, recipe)
                line = next(line for line in done.stderr.splitlines() if "rank 1 (cpu:1)" in line)
                for word in (words, "phase '", "of step 13", "replacement"):
                    self.assertIn(word, line)

    def test_two_at_once_and_one_in_the_recovery_of_another(self):
        for recipe, _ in JOBS:
            for faults in ("in-phase rank=0 step=9 do=kill;in-phase rank=2 step=9 do=kill",
                           "before-combine rank=1 step=9 do=kill;before-adopt rank=2 do=kill",
                           "after-combine rank=0 step=9 do=kill;after-restore rank=1 do=kill",
                           "in-snapshot rank=1 do=kill;in-hold rank=0 do=kill"):
                self.assert_same(self.faulty(recipe, faults, "--devices", "cpu:4", "--checkpoint-every", "5 steps"), recipe)

    def test_the_only_worker_is_replaced_from_the_last_snapshot(self):
        for recipe, _ in JOBS:
            done = self.faulty(recipe, "in-phase rank=0 step=31 do=kill", "--devices", "cpu:1", "--checkpoint-every", "5 steps")
            self.assertEqual(self.assert_same(done, recipe)["deaths"], 1)
            self.assertIn("from step 30 on", done.stderr)

    def test_a_frozen_worker_is_named_with_its_phase_and_taken_out(self):
        for recipe, _ in JOBS:
            for point in ("in-phase", "after-combine", "before-combine"):
                done = self.faulty(recipe, f"{point} rank=1 step=14 do=stop", "--devices", "cpu:3", env=FROZEN)
                self.assertGreaterEqual(self.assert_same(done, recipe)["frozen"], 1)
                self.assertRegex(done.stderr, r"rank 1 \(cpu:1\) was taken out: no progress for \d+ s \(the process is stopped\) in phase '\w+' of step 15")

    def test_a_flipped_weight_is_found_by_its_hash_and_the_rank_is_named(self):
        done = self.faulty("tiny", "at-boundary rank=2 step=30 do=flip", "--devices", "cpu:3", "--set",
                           "validation.every=never", steps=120)
        self.assert_same(done, "tiny", 120)
        self.assertRegex(done.stderr, r"rank 2 \(cpu:2\) was taken out: its state differs from that of 2 others after step 50")

    def test_what_kills_every_worker_ends_the_run_with_its_name(self):
        faults = ";".join(f"in-phase rank={rank} step=12 do=segv" for rank in range(4))
        done = self.faulty("tiny", faults, "--devices", "cpu:4", code=1)
        self.assertIn("step 13 kills every worker that runs it", done.stderr)

    def test_half_of_the_workers_killed_from_outside_is_no_fault_of_the_step(self):
        faults = ";".join(f"in-phase rank={rank} step=12 do=kill" for rank in range(4))
        self.assertEqual(self.assert_same(self.faulty("tiny", faults, "--devices", "cpu:6"), "tiny")["deaths"], 4)

    def test_a_run_that_fails_saves_what_it_has(self):
        faults = ";".join(f"in-phase rank={rank} step=32 do=segv" for rank in range(4))
        done = self.faulty("tiny", faults, "--devices", "cpu:4", "--checkpoint-every", "10 steps", "--run-dir", "run", code=1)
        self.assertIn("kills every worker", done.stderr)
        rest = json.loads(self.tandem("resume", "run", "--json").stdout)
        self.assert_bits(rest["digest"], self.quiet("tiny", 40))

    def test_nan_in_one_shard_is_named_and_all_skip_alike(self):
        args = [*QUICK, "--set", "optimizer.kind=sgd", "--lr", "1e38", "--steps", 200]
        notes = []
        for devices in ("cpu:1", "cpu:3"):
            done = self.tandem("train", "tiny", *args, "--devices", devices, code=7)
            notes.append([line for line in done.stderr.splitlines() if "NaN or Inf" in line])
        self.assertTrue(notes[0])
        self.assertEqual(notes[0][:3], notes[1][:3])


class Members(Fleet):
    def test_workers_join_and_leave_without_changing_a_bit(self):
        for recipe, quick in JOBS:
            process = self.start("train", recipe, *quick, "--steps", ENDLESS, "--devices", "cpu:2", "--run-dir", recipe, "--json")
            self.assertIn("rank 2", self.tandem("join", recipe, "--devices", "cpu:1").stderr)
            before = self.lines_until(process, "rank 2 (cpu:2) joins")
            self.assertIn("24 shards on 3 workers", before, "it joins when it works, not when it starts")
            self.tandem("leave", recipe, "--rank", 0)
            self.wait_for(process, "rank 0 (cpu:0) has left")
            self.assert_stops_as(process, recipe, deaths=0)

    def test_a_joiner_that_dies_at_once_costs_nothing(self):
        for recipe, quick in JOBS:
            process = self.start("train", recipe, *quick, "--steps", ENDLESS, "--devices", "cpu:2", "--run-dir", recipe, "--json")
            before = children(process.pid)
            self.tandem("join", recipe, "--devices", "cpu:1")
            for pid in set(children(process.pid)) - set(before):
                os.kill(pid, signal.SIGKILL)
            self.assertNotIn("joins", self.lines_until(process, "rank 2 (cpu:2) was killed"))
            self.assert_stops_as(process, recipe)

    def test_one_that_left_gives_its_page_and_its_channel_back(self):
        process = self.start("train", "tiny", *QUICK, "--steps", ENDLESS, "--devices", "cpu:2", "--run-dir", "run")
        self.addCleanup(process.kill)

        def held():
            names = []
            for fd in pathlib.Path(f"/proc/{process.pid}/fd").iterdir():
                try:
                    names.append(os.readlink(fd))
                except OSError:
                    pass
            return [len([n for n in names if n.startswith(word)]) for word in ("/memfd:tandem-page", "socket:")]

        before = held()
        self.assertEqual(before[0], 2)
        for rank in (2, 3):
            self.tandem("join", "run", "--devices", "cpu:1")
            self.wait_for(process, f"rank {rank} (cpu:{rank}) joins")
            self.tandem("leave", "run", "--rank", rank)
            self.wait_for(process, f"rank {rank} (cpu:{rank}) has left")
            self.wait_until(lambda: held() == before)
        process.send_signal(signal.SIGINT)
        process.communicate()

    def test_who_is_alone_since_the_other_left_ends_the_run_when_it_fails(self):
        def attempt(number):  # the other may leave too late on a busy machine
            step, run = 1500 * 10 ** number, f"run-{number}"
            self.set_environment(TANDEM_FAULT=f"in-phase rank=1 step={step} do=throw")
            process = self.start("train", "tiny", *QUICK, "--steps", 2 * step, "--devices", "cpu:2", "--run-dir", run)
            self.tandem("leave", run, "--rank", 0, code=None)
            _, err = process.communicate()
            self.assertIn("rank 0 (cpu:0) has left", err)
            self.assertEqual(process.returncode, 1, err)
            self.assertIn("a planted failure", err)

        self.again(attempt)

    def test_what_cannot_be_is_told(self):
        self.train(*QUICK, "--steps", 3, "--run-dir", "done")
        self.assert_explains(self.tandem("join", "done", "--devices", "cpu:1", code=2), "not running", "resume")
        self.assert_explains(self.tandem("leave", "done", "--rank", 1, code=2), "not running")
        self.assert_explains(self.tandem("join", "done", code=2), "--devices")
        process = self.start("train", "tiny", *QUICK, "--steps", 1000000, "--devices", "cpu:2", "--run-dir", "run")
        self.assert_explains(self.tandem("join", "run", "--devices", "cpu:23", code=2), "24 shards")
        self.assert_explains(self.tandem("leave", "run", "--rank", 7, code=2), "no rank 7", "0 1")
        requests = self.dir / "run/requests"
        (requests / "old.json.part").write_text('{"do": "join", "devices": "cpu:1", "version": "0.0.1"}')
        (requests / "old.json.part").rename(requests / "old.json")
        self.wait_for_file(requests / "old.reply.json", process)
        self.assertIn("version", json.loads((requests / "old.reply.json").read_text())["error"])
        process.send_signal(signal.SIGINT)
        process.communicate()
        self.assertEqual(process.returncode, 130)

    def wait_for_file(self, path, process):
        while not path.exists():
            self.assertIsNone(process.poll(), "the run ended")
            time.sleep(0.002)  # lint: allow(sleep) between two looks at a condition that has its own end


class Program(Fleet):
    def test_a_program_replaced_on_disk_is_still_the_one_that_the_run_began_with(self):
        (self.dir / "bin").mkdir()
        for name in ("tandem", "tandem-worker"):
            shutil.copy(BIN / name, self.dir / "bin" / name)
        process = subprocess.Popen([self.dir / "bin/tandem", "train", "tiny", *QUICK, "--steps", str(ENDLESS), "--devices", "cpu:3",
                                    "--run-dir", "run", "--json"], cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.wait_for(process, "exact ")
        shutil.copy("/bin/false", self.dir / "bin/upgrade")
        (self.dir / "bin/upgrade").rename(self.dir / "bin/tandem-worker")
        os.kill(children(process.pid)[1], signal.SIGKILL)
        self.wait_for(process, "rank 1 (cpu:1) was killed")
        self.wait_for(process, "24 shards on 3 workers")
        self.tandem("join", "run", "--devices", "cpu:1")
        self.wait_for(process, "rank 3 (cpu:3) joins")
        self.assert_stops_as(process, "tiny", deaths=1, workers=4)

    def test_a_recipe_that_is_edited_changes_nothing_for_a_run_that_goes_on(self):
        def other_values(text):
            for key, value in (("dropout", "0.5"), ("augment", "0.9"), ("seed", "99"), ("samples", "333")):
                text, found = re.subn(rf"(?m)^{key} = .*$", f"{key} = {value}", text)
                self.assertEqual(found, 1, key)
            return text

        for name, edit in (("values", other_values), ("syntax", lambda text: text + "\n[broken = = 1\n")):
            process = self.start("train", "tiny", *QUICK, "--steps", ENDLESS, "--devices", "cpu:3", "--run-dir", name, "--json")
            recipe = self.dir / name / "recipe.toml"
            right = recipe.read_text()
            recipe.write_text(edit(right))
            os.kill(children(process.pid)[1], signal.SIGKILL)
            self.wait_for(process, "rank 1 (cpu:1) was killed")
            self.wait_for(process, "24 shards on 3 workers")
            self.tandem("join", name, "--devices", "cpu:1")
            self.wait_for(process, "rank 3 (cpu:3) joins")
            err = self.assert_stops_as(process, "tiny", deaths=1, workers=4)
            self.assertIn("recipe.toml was changed while the run went on", err)
            self.assertEqual(recipe.read_text(), right, "the folder tells what was trained")
            self.assertEqual((self.dir / name / "recipe.changed.toml").read_text(), edit(right), "nobody's work is lost")

    def test_a_run_folder_that_is_removed_ends_no_run_while_workers_live(self):
        process = self.start("train", "tiny", *QUICK, "--steps", ENDLESS, "--devices", "cpu:3", "--run-dir", "run")
        self.wait_until(lambda: (self.dir / "run/metrics.jsonl").stat().st_size)
        (self.dir / "run").rename(self.dir / "gone")  # at once, whatever is being written
        shutil.rmtree(self.dir / "gone", ignore_errors=True)
        os.kill(children(process.pid)[1], signal.SIGKILL)
        self.wait_for(process, "rank 1 (cpu:1) was killed")
        self.wait_for(process, "24 shards on 3 workers")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
        self.assertEqual(process.returncode, 1, err)
        self.assertRegex(err, r"the last checkpoint, of step \d+, could not be saved")

    def test_a_worker_has_its_name(self):
        process = self.start("train", "tiny", *QUICK, "--steps", ENDLESS, "--devices", "cpu:1", "--run-dir", "run")
        self.addCleanup(process.kill)
        name = pathlib.Path(f"/proc/{children(process.pid)[0]}/comm").read_text().strip()
        self.assertEqual(name, "tandem-worker")
        process.send_signal(signal.SIGINT)
        process.communicate()


class Disk(Fleet):
    def fill(self, folder, options):
        if os.geteuid() != 0:
            self.skipTest("mounts need root")
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True)
        if done.returncode != 0:
            self.skipTest(f"no mounts here: {done.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", folder], check=True)
        try:
            (folder / "big").write_bytes(b"x" * 100000)
        except OSError:
            pass

    def test_a_full_log_folder_ends_no_run(self):
        for options, words in (("size=4k,nr_inodes=1", ["what rank 1 (cpu:1) says is not kept"]), ("size=4k", [])):
            run = f"run-{len(options)}"
            process = self.start("train", "tiny", *QUICK, "--steps", ENDLESS, "--devices", "cpu:2", "--run-dir", run, "--json")
            self.fill(self.dir / run / "logs", options)
            os.kill(children(process.pid)[1], signal.SIGKILL)
            self.wait_for(process, "rank 1 (cpu:1) was killed")
            for word in (*words, "24 shards on 2 workers"):
                self.wait_for(process, word)
            self.assert_stops_as(process, "tiny", deaths=1, workers=2)

    def test_a_slow_disk_is_no_frozen_worker_and_training_goes_on_meanwhile(self):
        self.set_environment(TANDEM_FAULT="before-rename rank=-1 do=slow", TANDEM_FROZEN_SECONDS="4")  # six pass

        def attempt(number):
            process = self.start("train", "tiny", *QUICK, "--steps", ENDLESS, "--devices", "cpu:2", "--run-dir", f"run-{number}",
                                 "--checkpoint-every", "1s", "--json")
            self.addCleanup(process.kill)
            events = self.dir / f"run-{number}/events.jsonl"
            self.wait_until(lambda: events.exists() and '"checkpoint"' in events.read_text())
            process.send_signal(signal.SIGINT)
            out, err = process.communicate()
            output = json.loads(out)
            self.assertEqual((output["frozen"], output["deaths"], process.returncode), (0, 0, 130), err)
            saved = next(e for e in map(json.loads, events.read_text().splitlines()) if e["kind"] == "checkpoint")
            steps = [json.loads(line) for line in (self.dir / f"run-{number}/metrics.jsonl").read_text().splitlines()]
            meanwhile = [one for one in steps if one["step"] > saved["step"] + 1 and one["t"] < saved["t"] - 1]  # it took 6 s
            self.assertGreater(len(meanwhile), 3, "training waits for the disk")

        self.again(attempt)

    def test_workers_that_wait_for_a_slow_disk_are_not_frozen(self):
        def attempt(_):
            done = self.faulty("tiny-rl", "before-rename rank=-1 step=10 do=slow", "--devices", "cpu:2", "--checkpoint-every", "5 steps",
                               env={"TANDEM_FROZEN_SECONDS": "4"})  # six pass
            output = self.assert_same(done, "tiny-rl")
            self.assertEqual((output["frozen"], output["deaths"]), (0, 0), done.stderr)

        self.again(attempt)


class Processes(Fleet):
    def begin(self, *more, recipe="tiny"):
        process = self.start("train", recipe, *dict(JOBS)[recipe], "--steps", ENDLESS, "--devices", "cpu:3", "--run-dir", "run", *more)
        return process, children(process.pid)

    def assert_gone(self, workers, seconds=600):
        end = time.monotonic() + seconds
        while any(alive(pid) for pid in workers):
            self.assertLess(time.monotonic(), end, "workers outlive their launcher")
            time.sleep(0.005)  # lint: allow(sleep) between two looks at a condition that has its own end

    def test_however_the_launcher_ends_no_worker_is_left(self):
        times = int(os.environ.get("TANDEM_ENDS", "2"))
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)):
            for _ in range(times):
                process, workers = self.begin()
                self.assertEqual(len(workers), 3)
                process.send_signal(number)
                process.communicate()
                self.assertEqual(process.returncode, code)
                self.assert_gone(workers)
                subprocess.run(["rm", "-rf", self.dir / "run"], check=True)

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "one core: nothing to divide")
    def test_slowed_slots_share_cores_by_what_they_need(self):
        process = self.start("train", "tiny", *QUICK, "--steps", ENDLESS, "--devices", "cpu:3@0.5,1,0.5", "--run-dir", "run")
        cores = [os.sched_getaffinity(pid) for pid in children(process.pid)]
        process.send_signal(signal.SIGINT)
        process.communicate()
        self.assertEqual([len(c) for c in cores], [1, 1, 1])
        self.assertEqual(cores[0], cores[2])
        self.assertNotEqual(cores[0], cores[1])

    def test_a_run_on_one_machine_listens_nowhere(self):
        process, workers = self.begin()
        inodes = set()
        for pid in [process.pid, *workers]:
            for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
                try:
                    target = os.readlink(fd)
                except OSError:
                    continue
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
        tables = "".join(pathlib.Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6", "udp", "udp6"))
        self.assertFalse([i for i in inodes if re.search(rf"\b{i}\b", tables)], "an internet socket")
        listening = [line.split() for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]]
        self.assertFalse([row for row in listening if row[6] in inodes and int(row[3], 16) & 0x10000], "a unix listener")
        self.assertTrue(inodes, "the socket pairs are there")
        process.send_signal(signal.SIGINT)
        process.communicate()

    def test_ctrl_z_stops_everybody_and_nobody_is_called_frozen_afterwards(self):
        process, workers = self.begin()
        process.send_signal(signal.SIGTSTP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        for pid in workers:
            self.assertEqual(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0], "T")
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
        self.assertEqual(process.returncode, 130)
        self.assertNotIn("taken out", err)

    def test_a_real_kill_of_a_worker_is_named_and_the_run_goes_on(self):
        process, workers = self.begin()
        os.kill(workers[1], signal.SIGKILL)
        line = self.wait_for(process, "rank 1 (cpu:1)")
        self.assertIn("SIGKILL", line)
        process.send_signal(signal.SIGINT)
        process.communicate()
        self.assertEqual(process.returncode, 130)

    def test_a_requests_folder_that_is_taken_away_ends_no_run(self):
        process, _ = self.begin()
        subprocess.run(["rm", "-r", self.dir / "run/requests"], check=True)
        os.kill(children(process.pid)[1], signal.SIGKILL)
        self.wait_for(process, "rank 1 (cpu:1)")
        process.send_signal(signal.SIGINT)
        process.communicate()
        self.assertEqual(process.returncode, 130)

    def test_a_frozen_worker_is_dead_before_anybody_goes_on_without_it(self):
        self.set_environment(**FROZEN)
        process, workers = self.begin()
        os.kill(workers[1], signal.SIGSTOP)
        self.wait_for(process, "rank 1 (cpu:1) was taken out")
        self.assertFalse(alive(workers[1]), "a worker that could wake up again was only forgotten")
        process.send_signal(signal.SIGINT)
        process.communicate()
        self.assertEqual(process.returncode, 130)

    def test_many_runs_at_once_do_not_clash(self):
        runs = [subprocess.Popen([TANDEM, "train", "tiny", *QUICK, "--steps", "20", "--devices", "cpu:2", "--json"], cwd=self.dir,
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for _ in range(20)]
        output = [json.loads(run.communicate()[0]) for run in runs]
        self.assertEqual({t["digest"] for t in output}, {self.quiet("tiny", 20)})
        self.assertEqual(len({t["run"] for t in output}), 20)

    def test_the_report_shows_plans_and_faults(self):
        done = self.faulty("tiny", "in-phase rank=1 step=12 do=kill", "--devices", "cpu:3")
        page = (pathlib.Path(json.loads(done.stdout)["dir"]) / "report.html").read_text()
        self.assertIn("rank 1 (cpu:1) was killed", page)
        self.assertIn("generation 1: 24 shards on 3 workers: 8 8 8", page)


if __name__ == "__main__":
    unittest.main()

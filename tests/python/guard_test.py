"""The guard on fake machines (guarded.py): its commands, GPUs that vanish; alone (`tandem guard`) and inside real runs.

    python3 guard_test.py <folder with tandem and tandem-worker> [unittest arguments]
"""
import json
import pathlib
import re
import time
import unittest

from guarded import HOT, Machine, SLOW, SPEED  # noqa: E402  (takes the folder from the command line)
from run_test import QUICK


class Commands(Machine):
    def test_status_gives_no_advice_against_a_limit_that_was_set(self):
        self.play(preset="1xh200", every={"load": 1}, events=[{"at": 0, "gpu": 0, "throttle": 4}])
        self.say("guard", "set", "0=80%")
        shown = self.say("guard", "status").stdout
        self.assertIn("`tandem guard set` made its power limit", shown)
        self.assertNotIn("nvidia-smi", shown)

    def test_set_stays_until_restore(self):
        self.play(preset="3060ti+2x3070")
        done = self.say("guard", "set", "0=180W,1=80%", "--json")
        self.assertEqual([one["to_w"] for one in json.loads(done.stdout)["limits"]], [180, 176])
        self.assertEqual((self.limit(0), self.limit(1), self.limit(2)), (180, 176, 220))
        self.say("guard", "set", "0=150W")
        self.say("guard", "--for", "1s")  # another guard's start and end does not undo a wish
        self.assertEqual(self.limit(0), 150)
        status = json.loads(self.say("guard", "status", "--json").stdout)
        self.assertEqual([(r["gpu"], r["found_w"], r["held"]) for r in status["records"]], [(0, 200, False), (1, 220, False)])
        self.say("guard", "restore")
        self.assertEqual((self.limit(0), self.limit(1)), (200, 220))
        self.assertIn("nothing to restore", self.say("guard", "restore").stderr)

    def test_a_guard_gives_back_to_the_limit_that_was_set(self):
        self.play(gpus=[{**HOT, "fans": 0}])
        self.say("guard", "set", "0=200W")
        guard = self.begin("guard", "--power", "80%")
        self.until(lambda: self.limit() == 160)
        guard.terminate()
        guard.wait()
        self.assertEqual(self.limit(), 200)
        self.say("guard", "restore")
        self.assertEqual(self.limit(), 220)

    def test_set_puts_back_first_what_a_dead_guard_left(self):
        self.play(gpus=[HOT])
        guard = self.begin("guard", "--power", "80%")
        self.until(lambda: self.limit() == 176)
        self.kill_both(guard)
        self.somebody_sets(0, 210)
        self.say("guard", "set", "0=180W")
        self.assertEqual(self.fan(), -1)
        self.say("guard", "restore")
        self.assertEqual((self.limit(), self.records()), (210, []))

    def test_a_record_that_is_not_understood_is_named_and_its_gpu_left_alone(self):
        for spoil in (lambda text: text.replace('"format": 1', '"format": 2'), lambda text: text[:20]):
            self.play(gpus=[HOT])
            self.say("guard", "set", "0=200W")
            file = self.records()[0]
            whole = file.read_text()
            file.write_text(spoil(whole))
            for words in (["restore"], ["set", "0=150W"]):
                self.assertIn(file.name, self.say("guard", *words, code=1).stderr)
            self.assertIn(file.name, self.say("guard", "status").stdout)
            self.assertIn(file.name, self.say("guard", "--power", "80%", "--for", "20s").stderr)
            self.assertEqual((self.limit(), self.fan(), file.read_text()), (200, -1, spoil(whole)))
            file.write_text(whole)
            self.say("guard", "restore")

    def test_after_a_restart_a_kept_limit_is_said_to_be_lost(self):
        self.play(gpus=[HOT])
        self.say("guard", "set", "0=180W")
        self.records()[0].write_text(json.dumps({**self.record(), "boot": "another"}))
        self.somebody_sets(0, 220)
        self.assertIn("lost with the restart", self.say("guard", "status").stdout)
        self.assertIn("lost with the restart", self.say("guard", "restore").stderr)
        self.assertEqual((self.limit(), self.records()), (220, []))

    def test_status_tells_who_holds_what_and_where_it_looked(self):
        self.play(gpus=[HOT])
        self.assertIn(str(self.state / "guard"), self.say("guard", "restore").stderr)
        self.say("guard", "set", "0=180W")
        lock = next((self.state / "guard").glob("*.lock"))
        lock.unlink()
        lock.symlink_to(lock)  # can't be opened
        self.assertIn("is not known", self.say("guard", "status").stdout)
        self.assertIn("is not put back", self.say("guard", "restore", code=1).stderr)

    def test_status_names_what_is_wrong_now(self):
        events = [{"at": 0, "gpu": 0, "pcie_width": 4}, {"at": 0, "gpu": 1, "lost": True}, {"at": 0, "gpu": 2, "ecc_uncorrected": 3}]
        self.play(preset="4xh100", gpus=[{}, {}, {}, {}], events=events)
        gpus = json.loads(self.say("guard", "status", "--json").stdout)["gpus"]
        self.assertEqual([[n["id"] for n in gpu["notices"]] for gpu in gpus], [["pcie_width"], ["lost"], ["ecc_uncorrected"], []])

    def test_bad_input_is_explained(self):
        self.play(preset="3060ti+2x3070", power_permission=False)
        for words, code, output in ((["set", "0=50W"], 2, "100 to 220 W"), (["set", "7=180W"], 2, "there is no GPU 7"),
                                  (["set", "0:180"], 2, "is no limit"), (["set", "0=180W,0=200W"], 2, "two limits"), (["set", "0=180W"], 1, "sudo tandem guard set 0=180W"),
                                  (["--power", "lots"], 2, "--power 80%"), (["--target", "500"], 2, "30 to 100"),
                                  (["--interval", "x"], 2, "--interval 1"), (["--for", "x"], 2, "--for 90s")):
            self.assert_explains(self.say("guard", *words, code=code), output)
        self.assertEqual((self.limit(0), self.records()), (200, []))

    def test_without_a_driver_or_gpus(self):
        self.play(preset="none")
        self.assert_explains(self.say("guard", "status", code=1), "there is no GPU here")
        self.env["TANDEM_NVML"] = "/nonexistent/libnvidia-ml.so.1"
        for words in (["status"], [], ["set", "0=180W"]):
            self.assert_explains(self.say("guard", *words, code=1), "no NVIDIA driver")
        run = json.loads(self.say("train", "tiny", *QUICK, "--steps", 3, "--devices", "cpu:1", "--json").stdout)
        self.assertFalse((pathlib.Path(run["dir"]) / "gpus.jsonl").exists())

    def test_it_begins_with_the_temperatures_of_the_gpus_at_hand(self):
        self.play(preset="4xh100")
        self.assertIn("guarding 4 GPUs: good to 79 C, warning from 82 C, acting from 85 C", self.say("guard", "--for", "1s").stderr)

    def test_a_limit_that_a_guard_holds_lower_is_no_fault_of_the_gpu(self):
        self.play(gpus=[{**HOT, "temperature": [[0, 97], [100000, 97]]}])  # at full load: it reaches any limit
        first = self.begin("guard", "--power", "70%")
        output = self.said_until(first, "the guard holds its power limit at") + self.ended(first)
        self.begin("guard", "--power", "70%")
        self.until(lambda: self.limit() == 154)
        notices = json.loads(self.say("guard", "status", "--json").stdout)["gpus"][0]["notices"]
        cap = next(notice for notice in notices if notice["id"] == "power_cap")
        self.assertIn("the guard holds its power limit at 154 W", cap["why"])
        for text in (output, json.dumps(notices)):
            self.assertNotIn("raise it if", text)
            self.assertNotIn("--power 80%", text)

    def test_without_permission_it_says_what_it_would_do_and_goes_on(self):
        self.play(gpus=[HOT], power_permission=False, fan_permission=False)
        guard = self.begin("guard", "--power", "80%")
        output = self.said_until(guard, "sudo nvidia-smi -i 0 -pl 198") + self.ended(guard)
        self.assertIn("only root may set limits", output)
        self.assertEqual((self.limit(), self.records()), (220, []))


class Faults(Machine):
    PLAYED = {  # what the machine can play, by GPU -> what the guard calls it
        0: ({"xid": 79}, "xid_79"), 1: ({"lost": True}, "lost"), 2: ({"throttle": 8}, "hw_slowdown"),
        3: ({"throttle": 64}, "thermal_hw"), 4: ({"throttle": 128}, "power_brake"), 5: ({"throttle": 2}, "application_clocks"),
        6: ({"throttle": 16}, "sync_boost"), 7: ({"throttle": 256}, "display_clocks"), 8: ({"throttle": 32}, "thermal_sw"),
        9: ({"ecc_uncorrected": 3}, "ecc_uncorrected"), 10: ({"ecc_corrected": 99}, "ecc_corrected"),
        11: ({"pcie_width": 4}, "pcie_width"), 12: ({"pcie_gen": 1, "load": 1}, "pcie_generation"),
        13: ({"used_gb": 7.99}, "memory_full"), 14: ({"hot_c": 150, "load": 1}, "warm"), 15: ({"xid": 48}, "xid_48"), 16: ({"throttle": 4}, "power_cap"),
    }

    def test_every_fault_is_named_with_cause_and_remedy_within_30_s(self):
        def attempt(number):  # slower each time: a moment without a core is less of their time
            begin, speed = 10, (5, 2, 1)[number]
            self.another_machine(number)
            gpus = [{"card": "3070", "load": 0.3, "ecc": True, "tau_s": 4} for _ in self.PLAYED]
            self.play(speed, gpus=gpus, events=[{"at": begin, "gpu": gpu, **what} for gpu, (what, _) in self.PLAYED.items()])
            done = self.say("guard", "--json", "--for", f"{begin + 35}s")
            began = json.loads(pathlib.Path(f"{self.script}.state").read_text())["began"]
            happened = began + begin / speed + time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
            output = {}
            for line in map(json.loads, done.stdout.splitlines()):
                if "id" in line:
                    output.setdefault(line["id"], line)
            for gpu, (_, name) in self.PLAYED.items():
                self.assertIn(name, output, done.stderr)
                self.assertIn(f"GPU {gpu} (NVIDIA", output[name]["text"])
                self.assertRegex(output[name]["text"], r"; cause: .+; do: .+")
                self.assertLessEqual((output[name]["t"] - happened) * speed, 30, name)

        self.again(attempt)

    def test_a_driver_that_hangs_is_named_and_holds_nobody(self):
        def attempt(number):  # on a busy machine it may have ended before the driver hangs
            self.another_machine(number)
            self.play(stepped=True, gpus=[{"card": "3070", "load": 0.5}], events=[{"at": 5, "gpu": 0, "hang": True}])
            guard = self.begin("guard", "--for", f"{60 * 5 ** number}s", "--json")
            self.assertIn("t", json.loads(guard.stdout.readline()))  # it watches: the driver answers so far
            self.at(6)
            out, err = guard.communicate()
            self.assertEqual(guard.returncode, 0, err)
            self.assertIn("has not answered for", err + out)

        self.again(attempt)


class Runs(Machine):
    """Inside real runs: CPU slot i stands for GPU i."""

    def digest_after(self, steps):
        return self.train(*QUICK, "--steps", steps, "--devices", "cpu:1")["digest"]

    def events(self, run):
        lines = (pathlib.Path(run["dir"]) / "events.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def stopped(self, process):
        """Ends a run that was begun without an end, and finds the bits of one worker that nobody disturbed."""
        process.terminate()
        out, err = process.communicate()
        self.assertEqual(process.returncode, 143, err)
        run = json.loads(out)
        self.assertEqual(run["digest"], self.digest_after(run["step"]), err)
        return run

    def test_a_hot_gpu_loses_shards_then_its_fan_rises_then_its_power_falls(self):
        cool = {"card": "3070", "load": 0.5}
        self.play(stepped=True, gpus=[cool, {**cool, "temperature": [[0, 50], [10, 50], [11, 92], [99, 92]]}, cool])
        process = self.begin("train", "tiny", *QUICK, "--steps", 100000, "--devices", SLOW, "--power", "80%", "--json")
        self.wait_for(process, "exact ")
        self.at(20)
        self.wait_for(process, "power limit goes from 198 to 176 W")
        run = self.stopped(process)
        texts = [e["text"] for e in self.events(run) if e["kind"] in ("guard", "plan")]
        order = [next((i for i, text in enumerate(texts) if word in text), -1) for word in
                 ("counts as 60 %", "counts as 30 %", "its fans go to 100 %", "from 220 to 198 W", "from 198 to 176 W")]
        self.assertEqual(order, sorted(order), texts)
        self.assertGreaterEqual(order[0], 0, texts)
        plans = [re.search(r"rank 1: (\d+)(?:-(\d+))?", text) for text in texts if text.startswith("generation")]
        sizes = [int(m.group(2) or m.group(1)) - int(m.group(1)) + 1 for m in plans]
        self.assertEqual(sizes[0], 8)
        self.assertLess(sizes[-1], 6, texts)
        self.assertEqual((self.limit(1), self.fan(1), self.records()), (220, -1, []))
        self.assertGreater(run["guard_orders"], 4)

    def test_a_run_puts_back_what_a_dead_guard_left(self):
        self.play(gpus=[HOT])
        guard = self.begin("guard", "--power", "80%")
        self.until(lambda: self.limit() == 176)
        self.kill_both(guard)
        self.play(gpus=[{"card": "3070", "temperature": [[0, 50], [100000, 50]]}])
        process = self.begin("train", "tiny", *QUICK, "--steps", 100000, "--devices", "cpu:1@0.1", "--json")
        self.until(lambda: self.limit() == 220 and self.fan() == -1 and not self.records())
        self.wait_for(process, "left by a guard that is gone")
        self.stopped(process)

    def test_it_pauses_before_damage_and_goes_on_by_itself(self):
        hot = {"card": "3070", "load": 1, "fans": 0, "temperature": [[0, 60], [10, 60], [11, 96], [20, 96], [21, 50], [99, 50]]}

        def attempt(number):  # a launcher without a core for a moment says later that the run waits
            self.another_machine(number)
            self.play(stepped=True, gpus=[hot, hot, hot])
            process = self.begin("train", "tiny", *QUICK, "--steps", 100000, "--devices", SLOW, "--json")
            self.wait_for(process, "exact ")
            self.at(15)
            self.wait_for(process, "the run waits at its next step")
            self.at(30)
            self.wait_for(process, "the run goes on after")
            self.wait_for(process, "plan ")
            run = self.stopped(process)
            self.assertGreaterEqual(run["guard_held_seconds"] * SPEED, 19)
            steps = [e["step"] for e in self.events(run) if e["kind"] == "guard" and ("waits at" in e["text"] or "goes on" in e["text"])]
            self.assertLessEqual(steps[1] - steps[0], 3, "the step that was under way, and no other")

        self.again(attempt)

    def test_a_gpu_that_stays_hot_while_the_run_waits_gets_its_fan_then_a_lower_limit(self):
        cool = {"card": "3070", "load": 0.5}
        heated = [[0, 50], [10, 50], [11, 96], [20, 96], [21, 50], [99, 50]]  # by another program: the hold does not cool it
        self.play(stepped=True, gpus=[cool, {**cool, "temperature": heated}, cool])
        process = self.begin("train", "tiny", *QUICK, "--steps", 100000, "--devices", SLOW, "--power", "80%", "--json")
        self.wait_for(process, "exact ")
        self.at(15)
        for word in ("the run waits at its next step", "its fans go to 100 %", "from 220 to 198 W", "from 198 to 176 W"):
            self.wait_for(process, word)
        self.until(lambda: (self.limit(1), self.fan(1)) == (176, 100))
        self.at(30)
        for word in ("the run goes on after", "its power limit is 220 W again", "its fans are the driver's again"):
            self.wait_for(process, word)
        self.stopped(process)
        self.assertEqual((self.limit(1), self.fan(1), self.records()), (220, -1, []))

    def test_a_run_that_is_paused_can_be_stopped(self):
        boiling = {"card": "3070", "load": 1, "fans": 0, "temperature": [[0, 96], [9999, 96]]}
        self.play(gpus=[boiling] * 2)
        process = self.begin("train", "tiny", *QUICK, "--steps", 100000, "--devices", "cpu:2", "--json")
        self.wait_for(process, "the run waits at its next step")
        self.stopped(process)

    def test_a_vanished_gpu_is_a_dead_worker(self):
        for number, what in enumerate(({"lost": True}, {"xid": 79})):
            self.another_machine(number)
            self.play(stepped=True, gpus=[{"card": "3070", "load": 0.5}] * 3, events=[{"at": 15, "gpu": 2, **what}])
            process = self.begin("train", "tiny", *QUICK, "--steps", 100000, "--devices", SLOW, "--json", "--run-dir", *what)
            self.wait_for(process, "exact ")
            metrics = self.dir / next(iter(what)) / "metrics.jsonl"
            self.until(lambda: metrics.exists() and metrics.read_text().count("\n") > 3)
            self.at(20)
            line = self.wait_for(process, "rank 2 (cpu:2) was taken out")
            for word in ("its GPU 2 has vanished", "its shards are taken over", "it is not replaced"):
                self.assertIn(word, line)
            run = self.stopped(process)
            self.assertEqual((run["deaths"], run["workers"]), (1, 2))

    def test_energy_and_cost_are_in_all_that_is_told_of_a_run(self):
        self.play(gpus=[{"card": "3070", "load": 0.5}] * 2)
        self.env["TANDEM_PRICE_KWH"] = "0.30"

        def attempt(_):
            run = json.loads(self.say("train", "tiny", *QUICK, "--steps", 30, "--devices", "cpu:2@0.02,0.02", "--json").stdout)
            used = sum(one["joules"] for one in run["energy"]["devices"])
            # The machine's own counter runs SPEED times as fast as the wall clock: power x real time x SPEED.
            power = used / run["energy"]["seconds"] / SPEED
            self.assertAlmostEqual(power, 2 * (13 + 0.5 * (220 - 13)), delta=70)  # readings take their time on a busy machine
            return run, used

        run, used = self.again(attempt)
        folder, energy = pathlib.Path(run["dir"]), run["energy"]
        self.assertEqual(len(energy["devices"]), 2)
        self.assertAlmostEqual(energy["kwh"], used / 3.6e6)
        self.assertAlmostEqual(energy["cost"], energy["kwh"] * 0.30)
        self.assertEqual(json.loads((folder / "training_stats.json").read_text())[-1]["energy"]["kwh"], energy["kwh"])
        lines = [json.loads(line) for line in (folder / "gpus.jsonl").read_text().splitlines()]
        self.assertEqual([gpu["index"] for gpu in lines[0]["gpus"]], [0, 1])
        for key in ("name", "util", "mem_used", "power_w", "limit_w", "temp_c", "sm_mhz", "throttle"):
            self.assertIn(key, lines[0]["gpus"][0])
        shown = self.say("runs", "show", run["run"]).stdout
        self.assertRegex(shown, r"energy +[\d.e-]+ kWh, \d+ W on average, [\d.e-]+ USD")
        page = (folder / "report.html").read_text()
        self.assertIn('"energy":{', page)
        self.assertIn('"temp":[', page)

    def test_energy_goes_on_over_a_kill_and_a_resume(self):
        self.play(gpus=[{"card": "3070", "load": 0.5}])
        process = self.begin("train", "tiny", *QUICK, "--steps", 100000, "--devices", "cpu:1@0.1", "--checkpoint-every", "1 steps")
        folder = self.until(lambda: next(iter((self.dir / "runs").glob("tiny-*")), None))
        self.until(lambda: (folder / "energy.json").exists() and json.loads((folder / "energy.json").read_text())["joules"] > 0)
        process.kill()
        process.wait()
        before = json.loads((folder / "energy.json").read_text())["joules"]
        done = self.tandem("resume", folder.name, "--max-time", "1s", "--json", env=self.env, code=75)
        self.assertGreater(json.loads(done.stdout)["energy"]["joules"], before)


if __name__ == "__main__":
    unittest.main()

"""`tandem gpus` and `tandem doctor` on fake machines, on this one, and on broken ones.

    python3 machine_test.py <folder with tandem> <folder with the fake libraries> [unittest arguments]
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
FAKES = pathlib.Path(sys.argv.pop(1)).resolve()
SLOTS = min(len(os.sched_getaffinity(0)), 24)  # cores that a command may use; tiny has 24 shards
API = pathlib.Path(__file__).resolve().parents[2] / "src/hardware/nvml_api.h"


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="tandem-machine-test-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def play(self, script, library="libfake_nvml.so"):
        path = self.dir / "machine.json"
        path.write_text(json.dumps(script))
        for suffix in (".state", ".clock", ".load"):
            pathlib.Path(f"{path}{suffix}").unlink(missing_ok=True)
        if "t" in script:
            pathlib.Path(f"{path}.clock").write_text(str(script["t"]))
        return {"TANDEM_NVML": str(FAKES / library), "TANDEM_LIBCUDA": str(FAKES / "libfake_cuda.so"), "FAKE_NVML_SCRIPT": str(path)}

    def until(self, happened):
        end = time.monotonic() + 600
        while not happened():
            self.assertLess(time.monotonic(), end, "it never happened")
            time.sleep(0.005)  # lint: allow(sleep) between two looks at a condition that has its own end

    def tandem(self, *args, code=0, env=None, program=None, timeout=None):
        base = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
        done = subprocess.run([program or BIN / "tandem", *map(str, args)], cwd=self.dir, capture_output=True, text=True,
                              env={**base, "NO_COLOR": "1", "TANDEM_NVML": "/nonexistent/libnvidia-ml.so.1", **(env or {})},
                              stdin=subprocess.DEVNULL, timeout=timeout)
        if code is not None:
            self.assertEqual(done.returncode, code, f"{args}\n{done.stdout}\n{done.stderr}")
        return done


class Gpus(Case):
    def test_the_first_guides_table_and_its_comparison(self):
        env = self.play({"preset": "3060ti+2x3070"})
        out = self.tandem("gpus", "--compare", "4090", env=env).stdout
        for words in ("RTX 3060 Ti", "4,864", "448 GB/s", "200 W", "24.0 GiB", "16,640", "1,344 GB/s", "640 W",
                      "16,384", "1,008 GB/s", "450 W", "+2 %", "+33 %", "+42 %"):
            self.assertIn(words, out)

    def test_json_leaves_out_what_the_driver_does_not_tell(self):
        env = self.play({"preset": "4xh100", "refuse": {"nvmlDeviceGetTemperature": 3, "nvmlDeviceGetTemperatureV": 3, "nvmlDeviceGetNumGpuCores": {"1": 3}}})
        output = json.loads(self.tandem("gpus", "--json", env=env).stdout)
        self.assertEqual(len(output["gpus"]), 4)
        self.assertNotIn("temperature_c", output["gpus"][0])
        self.assertNotIn("fan_percent", output["gpus"][0])
        self.assertEqual(output["gpus"][0]["cuda_cores"], 16896)
        self.assertNotIn("cuda_cores", output["total"])  # one is not known, so the sum is not
        self.assertIn("at least", self.tandem("gpus", env=env).stdout)

    def test_what_no_gpu_tells_is_not_nought(self):
        env = self.play({"preset": "4xh100", "refuse": {"nvmlDeviceGetMemoryInfo": {"1": 3}, "nvmlDeviceGetMemoryInfo_v2": {"1": 3}}}, "libfake_nvml_old.so")
        total = self.tandem("gpus", env=env).stdout.splitlines()[-1]
        self.assertNotIn("at least 0", total)
        self.assertRegex(total, r"^ *all +4 GPUs +at least [\d.]+ GiB +at least [\d.]+ GiB +- +-")

    def test_hidden_lost_and_split_gpus_are_named(self):
        env = self.play({"preset": "4xh100", "events": [{"at": 0, "gpu": 1, "lost": True}], "gpus": [{}, {}, {"mig": [{}, {}]}]})
        out = self.tandem("gpus", env={**env, "CUDA_VISIBLE_DEVICES": "0"}).stdout
        self.assertIn("GPU is lost", out)
        self.assertIn("hidden by CUDA_VISIBLE_DEVICES", out)
        self.assertIn("MIG, 2 parts", out)

    def test_a_gpu_that_answers_nothing_but_errors_is_named(self):
        asked = set(re.findall(r"nvmlDevice\w+", API.read_text())) - {"nvmlDeviceGetHandleByIndex_v2"}
        env = self.play({"preset": "4xh100", "refuse": {name: {"1": 999} for name in asked}})
        self.assertRegex(self.tandem("gpus", env=env).stdout, r"(?m)^ *1 .*Unknown Error")
        output = json.loads(self.tandem("gpus", "--json", env=env).stdout)
        self.assertEqual([gpu.get("trouble") for gpu in output["gpus"]], [None, "Unknown Error", None, None])

    def test_a_gpu_that_does_not_tell_its_memory_alone_is_no_trouble(self):
        env = self.play({"preset": "4xh100", "refuse": {"nvmlDeviceGetMemoryInfo": {"1": 3}, "nvmlDeviceGetMemoryInfo_v2": {"1": 3}}})
        for gpu in json.loads(self.tandem("gpus", "--json", env=env).stdout)["gpus"]:
            self.assertNotIn("trouble", gpu)

    def test_a_driver_that_hangs_is_told_of_and_holds_nobody(self):
        env = {**self.play({"preset": "3060ti+2x3070", "events": [{"at": 0, "gpu": 1, "hang": True}]}),
               "TANDEM_DRIVER_SECONDS": "0.5", "TANDEM_STATE_DIR": str(self.dir / "state")}
        for line in (["gpus"], ["guard"], ["guard", "status"], ["guard", "set", "0=180W"]):
            done = self.tandem(*line, env=env, code=1, timeout=600)
            for words in ("the NVIDIA driver does not answer", "nothing came back in 0.5 s", "dmesg"):
                self.assertIn(words, done.stderr)
        self.assertIn("does not answer", json.loads(self.tandem("gpus", "--json", env=env, code=1, timeout=600).stdout)["error"]["what"])
        out = json.loads(self.tandem("doctor", "--json", env=env, code=3, timeout=600).stdout)
        driver, = line_of(out, "driver")
        self.assertEqual((driver["verdict"], driver["found"]), ("problem", "does not answer: nothing came back in 0.5 s"))
        self.assertIn("dmesg", driver["do"])
        self.assertIn(f"--devices cpu:{SLOTS}", out["recommended"]["command"])
        self.assertEqual(line_of(out, "workers")[0]["verdict"], "ok")

    def test_a_played_machine_whose_script_changes_begins_anew(self):
        env = self.play({"preset": "4xh100"})
        self.assertEqual(len(json.loads(self.tandem("gpus", "--json", env=env).stdout)["gpus"]), 4)
        (self.dir / "machine.json").write_text('{"preset": "4x2080ti"}')   # as many, but others
        output = json.loads(self.tandem("gpus", "--json", env=env).stdout)
        self.assertEqual({gpu["power_limit_w"] for gpu in output["gpus"]}, {250})
        env = self.play({"preset": "8xh100"})
        (self.dir / "machine.json.state").write_text('{"began": 1, "gpus": []}')
        self.assertEqual(len(json.loads(self.tandem("gpus", "--json", env=env).stdout)["gpus"]), 8)

    def test_without_a_gpu_says_so_and_shows_cpu_cores(self):
        done = self.tandem("gpus", "--compare", "8xH100")
        self.assertIn("no NVIDIA GPU here", done.stderr)
        self.assertIn("cores", done.stdout)
        output = json.loads(self.tandem("gpus", "--json").stdout)
        self.assertEqual(output["gpus"], [])
        self.assertGreater(output["cpu"]["slots"], 0)
        self.assertIn("/nonexistent", output["why_none"])

    def test_a_gpu_that_is_not_in_the_book(self):
        done = self.tandem("gpus", "--compare", "4091", code=2)
        for words in ("error: ", "why ", "did you mean"):
            self.assertIn(words, done.stderr)


def line_of(out, check):
    return [c for c in out["checks"] if c["check"] == check]


class Driver(Case):
    """What a command that would start a worker on a GPU says of a driver older than CUDA 13 needs."""

    def with_cuda(self):
        """A tandem of a build with CUDA, as far as it looks before it starts a worker."""
        program = self.dir / "cuda" / "tandem"
        if not program.exists():
            program.parent.mkdir()
            shutil.copy(BIN / "tandem", program)
            (program.parent / "libtandem_cuda.so").touch()
            (program.parent / "tandem-worker").symlink_to(BIN / "tandem-worker")
        return program

    def say(self, script, *args, code, **variables):
        return self.tandem(*args, env={**self.play(script), **variables}, code=code, program=self.with_cuda())

    def test_an_old_driver_ends_every_command_for_gpus_before_anything_starts(self):
        for driver, cuda in (("525.147.05", 12000), ("535.183.01", 12020)):
            script = {"preset": "3060ti+2x3070", "driver": driver, "cuda": cuda}
            for line in (["train", "tiny"], ["train", "tiny", "--dry-run"], ["train", "web-test", "--quick"], ["plan", "tiny"],
                         ["train", "tiny", "--devices", "cuda:1"], ["train", "tiny", "--devices", "cpu:1,cuda:0"]):
                err = self.say(script, *line, code=2).stderr
                for words in (f"the NVIDIA driver is too old: {driver}, up to CUDA 12.", "needs driver 580.65.06 or newer", "--devices cpu",
                              "580 or newer" if "apt" not in err else "sudo apt install"):
                    self.assertIn(words, err, line)
        self.assertEqual([entry.name for entry in self.dir.glob("runs/*-2*")], [])

    def test_doctor_and_train_name_the_same_driver_and_the_same_remedy(self):
        script = {"preset": "4x2080ti", "driver": "535.183.01", "cuda": 12020}
        found, = line_of(json.loads(self.say(script, "doctor", "--json", code=3).stdout), "driver")
        err = self.say(script, "train", "tiny", code=2).stderr
        self.assertEqual(found["verdict"], "problem")
        self.assertIn(found["found"].split(":")[0], err)
        self.assertIn(found["do"], err)

    def test_the_cpu_is_the_way_out_of_an_old_driver(self):
        script = {"preset": "4x2080ti", "driver": "535.183.01", "cuda": 12020}
        self.assertIn("(cpu:0 cpu:1)", self.say(script, "train", "tiny", "--dry-run", "--devices", "cpu:2", code=0).stderr)
        self.assertIn("(cpu:0", self.say(script, "train", "tiny", "--dry-run", code=0, CUDA_VISIBLE_DEVICES="").stderr)

    def test_the_cuda_that_a_driver_runs_decides_and_its_own_version_where_it_does_not_tell(self):
        compatible = {"preset": "4xh100", "driver": "535.183.01", "cuda": 13000}   # NVIDIA's cuda-compat package
        self.assertIn("cuda:3", self.say(compatible, "train", "tiny", "--dry-run", code=0).stderr)
        silent = {"preset": "4xh100", "cuda": 0}
        self.assertIn("cuda:3", self.say({**silent, "driver": "580.65.06"}, "train", "tiny", "--dry-run", code=0).stderr)
        self.assertIn("too old: 535.54.03", self.say({**silent, "driver": "535.54.03"}, "train", "tiny", "--dry-run", code=2).stderr)


class Doctor(Case):
    def without_worker(self):
        """A tandem that has no worker beside it looks at everything and tries no training: quick, and always code 3."""
        alone = self.dir / "bin" / "tandem"
        if not alone.exists():
            alone.parent.mkdir()
            shutil.copy(BIN / "tandem", alone)
        return alone

    def doctor(self, env=None, *args):
        return json.loads(self.tandem("doctor", "--json", *args, env=env, code=3, program=self.without_worker()).stdout)

    def whole_doctor(self, code, env=None):
        return json.loads(self.tandem("doctor", "--json", env=env, code=code).stdout)

    def assert_found(self, out, check, verdict, *words):
        lines = line_of(out, check)
        for line in lines:
            if line["verdict"] == verdict and all(word in line["found"] + line.get("do", "") for word in words):
                if verdict != "ok":
                    self.assertIn("do", line)
                return
        self.fail(f"no {verdict} of '{check}' with {words} in {lines}")

    def test_a_machine_without_gpus_is_fine_and_forecasts_its_next_command(self):
        out = self.whole_doctor(0)
        self.assert_found(out, "driver", "ok", "the CPU trains")
        self.assert_found(out, "sum", "ok", "bits of one")
        self.assert_found(out, "workers", "ok", "same bits")
        self.assert_found(out, "libtorch", "ok")
        for check in ("shared memory", "limits", "ports", "clock", "disk", "Gloo", "FFmpeg", "Stockfish", "recipe", "memory", "CPU"):
            self.assertTrue(line_of(out, check), check)
        self.assertIn("train tiny", out["recommended"]["command"])
        self.assertGreater(out["recommended"]["seconds"], 0)

    def test_every_fault_of_a_gpu_is_named_with_its_remedy(self):
        script = {"preset": "8xh100", "t": 10, "clock": {"stepped": True}, "gpus": [
            {"pcie_width": 4}, {"ecc_uncorrected": 3}, {"persistence": False},
            {"used_gb": 79.5, "processes": [{"pid": 4242, "memory_mb": 81000, "name": "python3"}]},
            {"mig_on": True}, {"temperature": [[0, 88]], "load": 1}, {}, {}],
            "events": [{"at": 5, "gpu": 6, "lost": True}, {"at": 5, "gpu": 7, "throttle": 128}]}
        out = self.whole_doctor(3, self.play(script))
        self.assertEqual(out["verdict"], "problem")
        self.assert_found(out, "PCIe", "warning", "GPU 0", "4 lanes of 16")
        self.assert_found(out, "ECC", "problem", "GPU 1", "3 uncorrected", "nvidia-smi -r -i 1")
        self.assert_found(out, "persistence", "warning", "GPU 2", "-i 2 -pm 1")
        self.assert_found(out, "memory", "warning", "GPU 3", "python3 (pid 4242")
        self.assert_found(out, "recipe", "warning", "not GPU 3")
        self.assert_found(out, "MIG", "problem", "GPU 4", "-mig 0")
        self.assert_found(out, "heat", "warning", "GPU 5", "88 C")
        self.assert_found(out, "throttling", "warning", "GPU 5", "heat")
        self.assert_found(out, "card", "problem", "GPU 6: GPU is lost")
        self.assert_found(out, "throttling", "warning", "GPU 7", "brake")
        self.assert_found(out, "peer access", "ok", "NV18")
        self.assert_found(out, "GPUs", "warning", "8 present")

    def test_an_old_driver_is_a_problem(self):
        out = self.doctor(self.play({"preset": "4x2080ti", "driver": "470.82", "cuda": 11040}, "libfake_nvml_old.so"))
        self.assert_found(out, "driver", "problem", "older than CUDA 13.0 needs (580.65.06)", "580")

    def test_an_old_driver_leaves_the_cpu_to_train_with_its_forecast(self):
        out = self.whole_doctor(3, self.play({"preset": "3060ti+2x3070", "driver": "550.54", "cuda": 12040}))
        self.assert_found(out, "driver", "problem", "older than CUDA 13.0 needs")
        self.assert_found(out, "workers", "ok", "same bits")
        self.assertTrue(out["recommended"]["command"].endswith(f"train tiny --devices cpu:{SLOTS}"), out["recommended"])
        self.assertGreater(out["recommended"]["seconds"], 0)

    def assert_advises(self, script, devices, gpus):
        out = self.whole_doctor(3, self.play(script))
        if any("this build of tandem has no CUDA" in line["found"] for line in line_of(out, "CUDA")):
            self.skipTest("a build without CUDA recommends no GPU; doctor_test.cc has the rest")
        self.assertTrue(out["recommended"]["command"].endswith(f"train tiny --devices {devices}"), out["recommended"])
        self.assertIn(f"(GPU {gpus})", out["recommended"]["forecast"])

    def test_with_memory_errors_on_one_gpu_the_next_command_names_the_others(self):
        self.assert_advises({"gpus": [{"card": "H100"}, {"card": "H100", "ecc_uncorrected": 3}, {"card": "H100"}]}, "cuda:0,cuda:2", "0, 2")

    def test_with_a_lost_gpu_the_next_command_names_the_others_by_the_numbers_that_train_gives_them(self):
        self.assert_advises({"preset": "8xh100", "t": 10, "clock": {"stepped": True}, "events": [{"at": 5, "gpu": 6, "lost": True}]},
                            ",".join(f"cuda:{i}" for i in range(7)), "0, 1, 2, 3, 4, 5, 7")

    def test_a_driver_that_does_not_answer(self):
        self.assert_found(self.doctor(self.play({"preset": "1xh200", "init": 9})), "driver", "problem", "Driver Not Loaded", "modprobe nvidia")
        self.assert_found(self.doctor(self.play({"preset": "1xh200", "init": 18})), "driver", "problem", "mismatch", "reboot")

    def test_hidden_gpus(self):
        env = self.play({"preset": "3060ti+2x3070"})
        out = self.doctor({**env, "CUDA_VISIBLE_DEVICES": "0"})
        self.assert_found(out, "GPUs", "warning", "3 present, 1 visible", "unset CUDA_VISIBLE_DEVICES")

    def test_recipes_fit_the_gpus_and_parts_that_a_worker_may_use(self):
        env = self.play({"preset": "3060ti+2x3070"})
        self.assert_found(self.doctor({**env, "CUDA_VISIBLE_DEVICES": "1"}), "recipe", "ok", "web-test", "and 1 GPU")
        env = self.play({"preset": "4xh100", "gpus": [{"mig": [{"uuid": "MIG-1", "name": "1g", "memory_gb": 1.5}]}, {"mig_on": True}]})
        out = self.doctor(env)
        self.assert_found(out, "recipe", "warning", "web-test", "2 GPUs", "not GPU 0")
        self.assert_found(out, "recipe", "ok", "dqn", "3 GPUs")
        env = self.play({"preset": "1xh200", "gpus": [{"mig": [{"uuid": "MIG-aa", "memory_gb": 1.5}, {"uuid": "MIG-bb", "memory_gb": 20}]}]})
        self.assert_found(self.doctor(env), "recipe", "ok", "web-test", "1 GPU")
        self.assert_found(self.doctor({**env, "CUDA_VISIBLE_DEVICES": "MIG-aa"}), "recipe", "warning", "web-test", "not GPU 0")

    def test_a_signal_leaves_no_folder_behind(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            doctor = subprocess.Popen([BIN / "tandem", "doctor"], cwd=self.dir, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
                                      env={**os.environ, "TMPDIR": str(self.dir), "TANDEM_NVML": "/nonexistent/libnvidia-ml.so.1"})
            self.until(lambda: list(self.dir.glob("tandem-doctor-*/on-1/*")))
            doctor.send_signal(number)
            self.assertEqual(doctor.wait(), -number)
            self.until(lambda: not list(self.dir.glob("tandem-doctor-*")))

    def test_a_bandwidth_that_cannot_be_measured_is_a_problem(self):
        doctor = subprocess.Popen([self.without_worker(), "doctor", "--bandwidth", "--json"], cwd=self.dir, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, text=True, env={**os.environ, "TANDEM_NVML": "/nonexistent/libnvidia-ml.so.1"})
        while doctor.poll() is None:  # one of its processes dies, again and again
            for pid in pathlib.Path(f"/proc/{doctor.pid}/task/{doctor.pid}/children").read_text().split()[1:]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        self.assert_found(json.loads(doctor.communicate()[0]), "bandwidth", "problem", "could not add up")

    def test_a_lowered_power_limit(self):
        env = self.play({"preset": "3060ti+2x3070"})
        state = {"began": 0, "gpus": [{"t": 0, "celsius": 30, "joules": 0, "power_limit_w": w, "fan_percent": -1, "load": -1} for w in (200, 110, 220)]}
        pathlib.Path(env["FAKE_NVML_SCRIPT"] + ".state").write_text(json.dumps(state))
        self.assert_found(self.doctor(env), "power", "warning", "GPU 1", "110 W", "nvidia-smi -i 1 -pl 220")

    def test_a_folder_that_cannot_be_written(self):
        out = self.doctor(None, "--runs-root", "/proc/tandem-runs")
        self.assert_found(out, "disk", "problem", "/proc/tandem-runs")

    def test_without_its_worker(self):
        self.assert_found(self.doctor(), "libtorch", "problem", "tandem-worker", "make build")

    def test_bandwidth_has_the_columns_of_nccl_tests(self):
        out = self.tandem("doctor", "--bandwidth", code=3, program=self.without_worker()).stdout
        self.assertRegex(out, r"size +count +type +redop +time +algbw +busbw +#wrong")
        rows = re.findall(r"^ +(\d+) +(\d+) +float +sum +([\d.]+) +([\d.]+) +([\d.]+) +(\d+)$", out, re.M)
        self.assertGreaterEqual(len(rows), 8)
        for size, count, time_us, algbw, _, wrong in rows:
            self.assertEqual(int(size), 4 * int(count))
            self.assertEqual(wrong, "0")
            self.assertAlmostEqual(float(algbw), int(size) / float(time_us) / 1e3, delta=0.02 + 0.05 * float(algbw))
        self.assertIn("Avg bus bandwidth", out)

    def test_bandwidth_measures_the_links_of_the_gpus(self):
        env = self.play({"gpus": [{"card": "H100"}, {"card": "H100", "peer": False}, {"card": "H100"}],
                         "events": [{"at": 0, "gpu": 2, "pcie_width": 4}]})
        output = self.doctor(env, "--bandwidth")
        host = [link["up_gb_per_s"] for link in output["links"]["host"]]
        self.assertAlmostEqual(host[0], 0.8 * 3.938 * 16, delta=0.1)  # what the machine plays: PCIe 5.0 x16
        self.assertAlmostEqual(host[2], 0.8 * 3.938 * 4, delta=0.1)
        pairs = {(link["from"], link["to"]): link for link in output["links"]["peers"]}
        self.assertEqual(len(pairs), 6)
        self.assertFalse(pairs[0, 1]["direct"])
        self.assertTrue(pairs[0, 2]["direct"])
        warned = [check for check in output["checks"] if check["check"] == "host link" and check["verdict"] == "warning"]
        self.assertEqual(len(warned), 1)
        self.assertIn("GPU 2", warned[0]["found"])
        self.assertIn("PCIe 5.0 x16 carries", warned[0]["found"])
        text = self.tandem("doctor", "--bandwidth", env=env, code=3, program=self.without_worker()).stdout
        self.assertIn("from GPU (down) to GPU (across), GB/s; * through host memory", text)

    def test_each_pair_of_gpus_is_tried_as_kernels_read_each_others_memory(self):
        machine = {"gpus": [{"card": "H100"}, {"card": "H100"}]}
        output = self.doctor(self.play(machine), "--bandwidth")
        self.assertEqual([link["maps"] for link in output["links"]["peers"]], [True, True])
        self.assert_found(output, "GPU memory", "ok", "each GPU reads the others' (2 pairs tried, within one process)")
        output = self.doctor(self.play({**machine, "refuse": {"cuMemSetAccess": 101}}), "--bandwidth")
        self.assertEqual([link["maps"] for link in output["links"]["peers"]], [False, False])
        self.assertIn("cuMemSetAccess", output["links"]["peers"][0]["why_not"])
        self.assert_found(output, "GPU memory", "ok", "2 of 2 pairs can't read each other's (GPU 1 of GPU 0: cuMemSetAccess")

    def test_links_are_numbered_as_nvidia_smi_numbers_their_gpus(self):
        env = {**self.play({"preset": "4xh100"}), "CUDA_VISIBLE_DEVICES": "3,1"}
        output = self.doctor(env, "--bandwidth")["links"]
        self.assertEqual([link["gpu"] for link in output["host"]], [3, 1])
        self.assertEqual([(link["from"], link["to"]) for link in output["peers"]], [(3, 1), (1, 3)])
        text = self.tandem("doctor", "--bandwidth", env=env, code=3, program=self.without_worker()).stdout
        self.assertRegex(text, r"through host memory\n +3 +1\n +3 +- +[\d.]+\n +1 +[\d.]+ +-\n")

    def test_a_gpu_without_memory_for_the_links_is_named(self):
        env = self.play({"gpus": [{"card": "4090"}], "refuse": {"cuMemAlloc_v2": 2}})
        done = self.tandem("doctor", "--bandwidth", env=env, code=3, program=self.without_worker())
        self.assertIn("cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY", done.stdout)

    def test_the_report_has_no_secrets(self):
        planted = {"WANDB_API_KEY": "wk-111122223333", "MY_TOKEN": "tok-999", "DB_PASSWORD": "hunter2!", "AWS_SECRET_ACCESS_KEY": "aws+sec/ret",
                   "SSH_PASSPHRASE": "open sesame", "TANDEM_NOTE": "see hunter2! and https://ann:pw123@example.org/x and 10.1.2.3 and fe80::1:2",
                   "HOME": "/home/annabelle", "USER": "annabelle", "CUDA_CACHE_PATH": "/home/annabelle/.nv", "TORCH_HOME": "/home/bob/torch",
                   "NCCL_SOCKET_IFNAME": "eth0", "GLOO_NOTE": "aa:bb:cc:dd:ee:ff", "MASTER_ADDR": "192.168.7.9"}
        env = self.play({"preset": "4xh100"})
        self.tandem("doctor", "--report", self.dir / "report.md", env={**env, **planted}, code=3, program=self.without_worker())
        text = (self.dir / "report.md").read_text()
        for secret in ("wk-111122223333", "tok-999", "hunter2!", "aws+sec/ret", "open sesame", "pw123", "annabelle", "/home/bob", "10.1.2.3",
                       "192.168.7.9", "fe80::1:2", "aa:bb:cc:dd:ee:ff"):
            self.assertNotIn(secret, text)
        self.assertNotRegex(text, rf"\b{re.escape(os.uname().nodename)}\b")
        for kept in ("NCCL_SOCKET_IFNAME=eth0", "NV18", "580.65.06", "NVIDIA H100 80GB HBM3", "## Verdicts"):
            self.assertIn(kept, text)

    def test_the_report_has_no_arguments_tokens_or_other_names(self):
        planted = {"SUDO_USER": "mallory", "TANDEM_RUNS": "/scratch/mallory/runs", "SLURM_JOB_USER": "jdoe", "TORCH_X": "for jdoe",
                   "SLURM_SUBMIT_HOST": "login7.corp.example", "SLURM_JOB_NODELIST": "node[77-78]", "MASTER_ADDR": "trainer-3.internal.corp",
                   "NCCL_NOTE": "to login7.corp.example", "MLFLOW_TRACKING_URI": "https://u:p@ml.example/?token=tok-5551&run=abc77",
                   "TANDEM_HF_PAT": "pat-424242", "CUDA_TEST": "ghp_abcdefghijklmnopqrstuvwx", "RAY_X": "sk-abcdef123456789", "TORCH_Y": "AKIAABCDEFGHIJKLMNOP",
                   "wandb_key2": "lower-secret-1", "OMP_NOTE": "see lower-secret-1", "NCCL_DEBUG": "INFO", "PATH": os.environ["PATH"] + ":/opt/kept/path"}
        env = self.play({"preset": "3060ti+2x3070", "gpus": [{"processes": [
            {"pid": 4242, "memory_mb": 500, "name": "/opt/zorro/bin/python3 train.py --api-key=zk-abcdef --user vera77"}]}]})
        self.tandem("doctor", "--report", self.dir / "report.md", env={**env, **planted}, code=3, program=self.without_worker())
        text = (self.dir / "report.md").read_text()
        for secret in ("mallory", "jdoe", "login7", "node[77", "trainer-3", "tok-5551", "abc77", "pat-424242", "ghp_", "sk-abc", "AKIA",
                       "lower-secret-1", "zk-abcdef", "vera77", "zorro"):
            self.assertNotIn(secret, text)
        for kept in ("python3 (pid 4242", '"name":"python3"', "NCCL_DEBUG=INFO", "/opt/kept/path", "MLFLOW_TRACKING_URI=https://***@ml.example/?token=***&run=***"):
            self.assertIn(kept, text)

    def test_a_report_that_is_a_folder_is_refused(self):
        done = self.tandem("doctor", "--report", self.dir, code=2)
        self.assertIn("that is a folder", done.stderr)


if __name__ == "__main__":
    unittest.main()

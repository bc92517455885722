"""An outside judge of the fake NVML and of tandem's reader: PyPI's nvidia-ml-py must read the same values as `tandem gpus --json`.

    python3 nvml_judge_test.py <folder with tandem> <libfake_nvml.so> [unittest arguments]

Skipped, and ctest says so, where nvidia-ml-py is not installed; `scripts/setup.sh test` installs it.
"""
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import pynvml
except ImportError:
    print("SKIPPED: nvidia-ml-py is not installed; do: scripts/setup.sh test", file=sys.stderr)
    sys.exit(77)  # ctest calls it skipped, not passed

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
LIBRARY = pathlib.Path(sys.argv.pop(1)).resolve()
PRESETS = ["3060ti+2x3070", "6000ada+4090", "4x2080ti", "4xh100", "8xh100", "3xb200"]


def quiet(call, *args):
    try:
        return call(*args)
    except pynvml.NVMLError:
        return None


class Judge(unittest.TestCase):
    def judge(self, preset):
        """What pynvml says of the machine; a process of its own, since NVML is opened once in one."""
        n = pynvml
        n.nvmlLib = ctypes.CDLL(str(LIBRARY))
        n.nvmlInit()
        gpus = []
        for i in range(n.nvmlDeviceGetCount()):
            h = n.nvmlDeviceGetHandleByIndex(i)
            memory = n.nvmlDeviceGetMemoryInfo(h, version=n.nvmlMemory_v2)
            gpus.append({
                "name": n.nvmlDeviceGetName(h), "uuid": n.nvmlDeviceGetUUID(h), "bus_id": n.nvmlDeviceGetPciInfo(h).busId,
                "memory_bytes": memory.total, "memory_used_bytes": memory.used, "memory_free_bytes": memory.free,
                "cuda_cores": quiet(n.nvmlDeviceGetNumGpuCores, h),
                "power_limit_w": n.nvmlDeviceGetPowerManagementLimit(h) / 1000,
                "power_min_w": n.nvmlDeviceGetPowerManagementLimitConstraints(h)[0] / 1000,
                "power_w": n.nvmlDeviceGetPowerUsage(h) / 1000,
                "temperature_c": n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU),
                "slowdown_c": n.nvmlDeviceGetTemperatureThreshold(h, n.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
                "sm_clock_mhz": n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM),
                "fan_percent": quiet(n.nvmlDeviceGetFanSpeed_v2, h, 0),
                "pcie_width": n.nvmlDeviceGetCurrPcieLinkWidth(h),
                "ecc_uncorrected": quiet(n.nvmlDeviceGetTotalEccErrors, h, n.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, n.NVML_VOLATILE_ECC),
                "processes": [(p.pid, p.usedGpuMemory) for p in n.nvmlDeviceGetComputeRunningProcesses(h)],
                "mig": quiet(n.nvmlDeviceGetMigMode, h),
                "nvlinks": sum(quiet(n.nvmlDeviceGetNvLinkState, h, link) or 0 for link in range(18)),
            })
        driver = n.nvmlSystemGetDriverVersion()
        n.nvmlShutdown()
        return driver, gpus

    def test_pynvml_reads_what_tandem_reads(self):
        for preset in PRESETS:
            with self.subTest(preset), tempfile.TemporaryDirectory() as folder:
                script = pathlib.Path(folder) / "machine.json"
                script.write_text(json.dumps({
                    "preset": preset, "clock": {"stepped": True},
                    "every": {"load": 0.7, "used_gb": 2.5, "processes": [{"pid": 77, "memory_mb": 512}, {"pid": 78, "memory_mb": 1}]}}))
                pathlib.Path(f"{script}.clock").write_text("12.5")
                env = {**os.environ, "TANDEM_NVML": str(LIBRARY), "FAKE_NVML_SCRIPT": str(script)}
                ours = json.loads(subprocess.run([BIN / "tandem", "gpus", "--json"], env=env, check=True, capture_output=True).stdout)
                os.environ["FAKE_NVML_SCRIPT"] = str(script)
                driver, theirs = self.judge(preset)
                self.assertEqual(ours["driver"], driver)
                self.assertEqual(len(ours["gpus"]), len(theirs))
                for mine, judged in zip(ours["gpus"], theirs):
                    for key, value in judged.items():
                        if key == "processes":
                            self.assertEqual([(p["pid"], p["memory_bytes"]) for p in mine["processes"]], value)
                        elif key == "mig":
                            self.assertEqual(mine.get("mig_on"), None if value is None else bool(value[0]))
                        elif key == "nvlinks":
                            self.assertEqual(sum(p["links"] for p in mine["nvlink_peers"]), value)
                        elif value is None:
                            self.assertNotIn(key, mine)
                        else:
                            self.assertEqual(mine[key], value, key)


if __name__ == "__main__":
    unittest.main()

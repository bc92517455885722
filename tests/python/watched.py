"""What the tests of the monitor share: fake machines, a served page, what a process takes."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import unittest
import urllib.parse

from run_test import BIN, QUICK, TANDEM, Case

FAKE = BIN.parent / "tests" / "libfake_nvml.so"
PROCESSES = [{"pid": 4711, "memory_mb": 51000, "name": "/opt/tandem/tandem-worker"}]
EIGHT = {"preset": "8xh100", "every": {"load": 0.8, "used_gb": 52, "pcie_rx_mb": 900, "pcie_tx_mb": 300, "processes": PROCESSES}}


def needs(found, name):
    """Skips a class or a test where the program is missing; ctest shows such a test as skipped, by the word."""
    reason = f"{name} is not installed: `scripts/setup.sh monitor` installs it"

    def mark(what):
        if not found and (len(sys.argv) < 2 or any(what.__qualname__.startswith(word.split(".")[0]) for word in sys.argv[1:])):
            print(f"SKIPPED {what.__qualname__}: {reason}", file=sys.stderr)
        return unittest.skipUnless(found, reason)(what)
    return mark


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid):
    return int(re.search(r"VmHWM:\s*(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1)) / 1024


class Monitor(Case):
    def machine(self, script=None):
        """The environment of a simulated machine; without a script one without any driver."""
        if script is None:
            return {"TANDEM_NVML": str(self.dir / "no-such-library.so")}
        file, text = self.dir / "machine.json", json.dumps(script)
        if not file.exists() or file.read_text() != text:   # another machine begins without the state of the last
            for state in self.dir.glob("machine.json.*"):
                state.unlink()
            file.write_text(text)
        return {"TANDEM_NVML": str(FAKE), "FAKE_NVML_SCRIPT": str(self.dir / "machine.json")}

    def monitor(self, *args, script=None, code=0, env=None):
        return self.tandem("monitor", "--runs-root", self.dir / "runs", *args, code=code, env={**self.machine(script), **(env or {})})

    def look(self, script=None, env=None):
        return json.loads(self.monitor("--json", script=script, env=env).stdout)

    def serve(self, *args, script=None, descriptors=None, history=None):
        process = subprocess.Popen(
            [TANDEM, "monitor", "--web", "--runs-root", self.dir / "runs", "--history", history or self.dir / "history.sqlite", *map(str, args)],
            cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1", **self.machine(script)},
            preexec_fn=descriptors and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))))
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        address = process.stdout.readline().strip()
        self.assertTrue(address, process.stderr.read() if process.poll() is not None else "")
        parts = urllib.parse.urlsplit(address)
        process.address, process.port, process.token = address, parts.port, urllib.parse.parse_qs(parts.query)["token"][0]
        return process

    def training(self, *args):
        """A run that goes on until the test ends."""
        process = self.start("train", "tiny", *QUICK, "--steps", 100000000, "--devices", "cpu:2", *args)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process


def ask(port, path, host="127.0.0.1", token=None, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    with contextlib.closing(connection):
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", host)
        if token:
            connection.putheader("Authorization", "Bearer " + token)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, dict((k.lower(), v) for k, v in answer.getheaders()), answer.read().decode()

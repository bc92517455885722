"""`tandem monitor` through the real program: formats, page, browser, terminal, cost.

    python3 monitor_test.py <folder with tandem and tandem-worker> [unittest arguments]

Machines with GPUs are played by libfake_nvml.so (../tests beside the folder). What needs Debian's chromium, tmux or promtool is
skipped, loudly, where it is not installed: `scripts/setup.sh monitor` installs them. MONITOR_SCREENSHOTS=dir keeps pictures of the page.
"""
import contextlib
import csv
import http.client
import io
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
import unittest

import chromium
from ports import lease_ports
from run_test import TANDEM
from watched import EIGHT, FAKE, Monitor, ask, cpu_seconds, memory_mb, needs


class Formats(Monitor):
    def test_eight_gpus_in_every_form_and_what_is_not_known_is_absent(self):
        script = {**EIGHT, "refuse": {"nvmlDeviceGetPowerUsage": {"3": 3}}}
        gpus = self.look(script)["gpus"]
        self.assertEqual(len(gpus), 8)
        self.assertNotIn("power_w", gpus[3])
        self.assertNotIn("fan_percent", gpus[0])   # it has none
        self.assertGreater(gpus[0]["power_w"], 100)
        self.assertEqual(gpus[0]["processes"][0]["pid"], 4711)
        text = self.monitor("--snapshot", script=script).stdout
        self.assertEqual(len(re.findall(r"^ *[0-7]  H100", text, re.M)), 8, text)
        self.assertEqual(self.monitor(script=script).stdout.splitlines()[1], text.splitlines()[1])   # a pipe gets the snapshot
        rows = list(csv.DictReader(io.StringIO(self.monitor("--csv", "--interval", "0.1", "--count", 3, script=script).stdout)))
        self.assertEqual([row["source"] for row in rows], (["host"] + ["gpu"] * 8) * 3)
        self.assertEqual(rows[4]["power_w"], "")
        lines = self.monitor("--json", "--interval", "0.1", "--count", 3, script=script).stdout.splitlines()
        self.assertEqual([json.loads(line)["schema"] for line in lines], [1, 1, 1])

    def test_a_machine_without_a_driver_shows_its_cpu_and_its_runs(self):
        run = self.training()
        got = {}
        for line in self.lines("--json", "--interval", "0.2"):
            got = json.loads(line)
            if got["runs"] and got["runs"][0].get("steps_per_s") and len(got["runs"][0]["ranks"]) == 2 and "busy_percent" in got["runs"][0]["ranks"][1]:
                break
        self.assertEqual(got["gpus"], [])
        self.assertIn("no-such-library", got["gpu_trouble"])
        self.assertIn("cpu_percent", got["host"])
        (one,) = got["runs"]
        self.assertEqual((one["recipe"], one["status"]), ("tiny", "running"))
        self.assertEqual(sum(rank["shards"] for rank in one["ranks"]), 24)
        self.assertEqual({rank["device"] for rank in one["ranks"]}, {"cpu:0", "cpu:1"})
        self.assertGreater(one["ranks"][0]["memory_bytes"], 1e6)
        self.assertIn("learn", one["phases"])
        text = self.monitor("--snapshot").stdout
        self.assertIn("rank 1", text)
        run.send_signal(signal.SIGKILL)
        run.wait()
        self.assertEqual(self.look()["runs"][0]["status"], "died")

    def lines(self, *args):
        process = subprocess.Popen([TANDEM, "monitor", "--runs-root", self.dir / "runs", *args], cwd=self.dir, stdout=subprocess.PIPE,
                                   text=True, env={**os.environ, **self.machine()})
        try:
            yield from process.stdout
        finally:
            process.kill()
            process.stdout.close()
            process.wait()

    def test_machines_that_are_not_as_one_wishes(self):
        hidden = self.look({"preset": "4xh100"}, env={"CUDA_VISIBLE_DEVICES": "3,1"})["gpus"]
        self.assertEqual([gpu.get("visible", True) for gpu in hidden], [False, True, False, True])   # all are shown, and which are hidden
        self.assertIn("hidden by CUDA_VISIBLE_DEVICES", self.monitor("--snapshot", script={"preset": "4xh100"}, env={"CUDA_VISIBLE_DEVICES": ""}).stdout)
        old = self.look({"preset": "4x2080ti", "driver": "535.54.03", "cuda": 12020})
        self.assertEqual((len(old["gpus"]), old["driver"], old["driver_note"]), (4, "535.54.03", "older than CUDA 13.0 needs"))
        ancient = self.look({"preset": "4x2080ti"}, env={"TANDEM_NVML": str(FAKE.with_name("libfake_nvml_old.so"))})
        self.assertEqual(len(ancient["gpus"]), 4)
        self.assertNotIn("energy_j", ancient["gpus"][0])
        for script in ({"preset": "none"}, {"preset": "4xh100", "init": 9}, {"preset": "4xh100", "init": 18}):
            got = self.look(script)
            self.assertEqual(got["gpus"], [])
            self.assertEqual("init" in script, bool(got.get("gpu_trouble")))
            self.assertIn("no GPU", self.monitor("--snapshot", script=script).stdout)
            self.monitor("--prometheus", script=script)

    def test_a_driver_that_hangs_holds_nobody(self):
        process = subprocess.Popen([TANDEM, "monitor", "--runs-root", self.dir / "runs", "--json", "--interval", "0.1"], cwd=self.dir, stdout=subprocess.PIPE,
                                   text=True, env={**os.environ, **self.machine({"preset": "4xh100", "events": [{"at": 1, "gpu": 2, "hang": True}]})})
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        self.assertIn("gpus", json.loads(process.stdout.readline()))
        while select.select([process.stdout], [], [], 1.5)[0]:   # until no look comes for fifteen intervals
            self.assertTrue(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(600), 130)

    def test_several_runs_also_those_that_lie_elsewhere(self):
        first, second = self.training(), self.training("--runs-root", self.dir / "elsewhere")
        want = {str(next((self.dir / root).glob("tiny-*"))) for root in ("runs", "elsewhere")}
        found = json.loads(self.tandem("monitor", "--json", env=self.machine()).stdout)["runs"]   # no --runs-root: ./runs, and the workers' own
        self.assertLessEqual(want, {os.path.abspath(self.dir / run["dir"]) for run in found if run["status"] == "running"})
        self.assertEqual(len(self.look()["runs"]), 1)
        self.assertEqual(len(json.loads(self.monitor("last", "--json").stdout)["runs"]), 1)

    def test_a_gpu_that_vanishes_is_named_and_the_others_go_on(self):
        gpus = self.look({"preset": "4xh100", "events": [{"at": 0, "gpu": 2, "lost": True}]})["gpus"]
        self.assertIn("lost", gpus[2]["trouble"].lower())
        self.assertNotIn("power_w", gpus[2])
        self.assertIn("power_w", gpus[3])

    @needs(shutil.which("promtool"), "promtool (Debian: prometheus)")
    def test_promtool_finds_nothing_to_say(self):
        self.training()
        text = self.monitor("--prometheus", script=EIGHT).stdout
        judged = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
        self.assertEqual((judged.returncode, judged.stdout + judged.stderr), (0, ""), text)
        self.assertIn("tandem_gpu_temperature_celsius", text)

    def evil_run(self, **more):
        """A folder as a stranger may have named and filled it."""
        folder = os.fsencode(self.dir) + b"/runs/evil-\xff\x1b]0;owned\x07\"\\-run"
        os.makedirs(folder)
        pathlib.Path(os.fsdecode(folder), "run.json").write_text(json.dumps({"status": "failed", "recipe": "a\u001b[2J\n\"b\",\\c", "step": 3, **more}))

    def test_names_that_strangers_gave_reach_nobody_as_commands(self):
        self.evil_run()
        for form in ("--json", "--csv", "--prometheus", "--snapshot"):
            done = subprocess.run([TANDEM, "monitor", form, "--runs-root", self.dir / "runs"], cwd=self.dir, capture_output=True, env={**os.environ, **self.machine(EIGHT)})
            self.assertEqual(done.returncode, 0, done.stderr)
            text = done.stdout.decode()   # it is UTF-8
            self.assertIn("evil-", text, form)
            self.assertIsNone(re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text), form)
            if form == "--prometheus" and shutil.which("promtool"):
                judged = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
                self.assertEqual((judged.returncode, judged.stdout + judged.stderr), (0, ""), text)
            if form == "--csv":
                rows = list(csv.DictReader(io.StringIO(text)))
                self.assertEqual(rows[-1]["name"], 'a [2J "b",\\c')

    def test_a_gpu_in_instances_says_so_and_has_no_use_of_its_own(self):
        script = {"preset": "4xh100", "gpus": [{}, {"mig": [{"name": "1g.10gb", "memory_gb": 10}, {"name": "3g.40gb", "memory_gb": 40}]}]}
        gpus = self.look(script)["gpus"]
        self.assertEqual((gpus[1]["mig_instances"], len(gpus[1]["mig"])), (2, 2))
        self.assertNotIn("mig", gpus[0])
        self.assertIn("MIG: 2 instances", self.monitor("--snapshot", script=script).stdout)

    def test_bad_input_is_explained(self):
        (self.dir / "thesis.txt").write_text("chapter one")
        for args in (["--interval", "0"], ["--interval=-1"], ["--interval", "nan"], ["--interval", "1e9"], ["--csv", "--interval", "0"], ["--count", "0"],
                     ["--prometheus", "--count", "2"], ["--prometheus", "--interval", "1"], ["--web", "--port", "70000"], ["--web", "--host", "300.1.1.1"],
                     ["--web", "--token-file", "/nowhere/token"], ["--web", "--history", "thesis.txt"], ["no-such-run"]):
            self.assert_explains(self.monitor(*args, code=2))
        self.assertEqual((self.dir / "thesis.txt").read_text(), "chapter one")   # a file that is no history is not overwritten
        self.monitor("--json", "--csv", code=2)


class Web(Monitor):
    def test_only_who_has_the_token_and_comes_for_this_machine_may_look(self):
        server = self.serve("--interval", "0.2", script=EIGHT)
        for path in ("/", "/metrics", "/live", "/history", "/sample.json", "/nothing", "/?token=" + "0" * 32):
            status, headers, body = ask(server.port, path)
            self.assertEqual(status, 401, path)
            self.assertNotIn(server.token, body)
        self.assertIn("monitor --web", ask(server.port, "/")[2])
        status, headers, body = ask(server.port, "/?token=" + server.token)
        self.assertEqual(status, 200)
        self.assertLess(len(body), 200 * 1024)
        self.assertIn("HttpOnly; SameSite=Strict", headers["set-cookie"])
        cookie = headers["set-cookie"].split(";")[0]
        while (status := ask(server.port, "/sample.json", Cookie=cookie)[0]) == 503:   # the first look is under way
            pass
        self.assertEqual(status, 200)
        for host in ("evil.example", "evil.example:80", f"localhost.evil.example:{server.port}", "10.1.2.3", ""):
            self.assertEqual(ask(server.port, "/metrics", host=host, token=server.token)[0], 403, host)
        for host in ("localhost:1", "127.0.0.1:99", "[::1]:5"):
            self.assertEqual(ask(server.port, "/metrics", host=host, token=server.token)[0], 200, host)
        for path in ("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/runs/"):
            self.assertEqual(ask(server.port, path, token=server.token)[0], 404, path)
        self.assertEqual(ask(server.port, "/", token=server.token, method="POST")[0], 405)

    def test_the_stream_goes_on_the_history_is_kept_and_ctrl_c_ends_it(self):
        server = self.serve("--interval", "0.2", script=EIGHT)
        with socket.create_connection(("127.0.0.1", server.port), timeout=600) as stream:
            stream.sendall(f"GET /live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n\r\n".encode())
            times = []
            for line in stream.makefile():
                if line.startswith("data: {") and "time" in line:
                    times.append(json.loads(line[6:])["time"])
                if len(times) > 8:
                    break
        self.assertEqual(times, sorted(set(times)))
        kept = json.loads(ask(server.port, "/history?seconds=600", token=server.token)[2])
        self.assertEqual({s["source"] for s in kept["series"]}, {"host", *(f"gpu:{i}" for i in range(8))})
        self.assertEqual(ask(server.port, "/history?seconds=x", token=server.token)[0], 400)
        server.send_signal(signal.SIGINT)
        self.assertEqual(server.wait(600), 130)
        talk = server.stderr.read()
        self.assertRegex(talk, rf"ssh -L {server.port}:127\.0\.0\.1:{server.port} ")

    def test_beyond_this_machine_it_warns_and_a_token_file_outlives_it(self):
        token_file = self.dir / "token"
        server = self.serve("--host", "0.0.0.0", "--token-file", token_file, script=EIGHT)
        self.assertEqual(token_file.stat().st_mode & 0o777, 0o600)
        self.assertEqual(token_file.read_text().strip(), server.token)
        self.assertEqual(ask(server.port, "/metrics")[0], 401)
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(600), 143)
        self.assertIn("beyond this machine", server.stderr.read())
        self.assertEqual(self.serve("--token-file", token_file, script=EIGHT).token, server.token)

    def stream(self, server):
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=600)
        self.addCleanup(connection.close)
        connection.sendall(f"GET /live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n\r\n".encode())
        return connection

    def test_without_descriptors_it_serves_whom_it_can_and_does_not_spin(self):
        server = self.serve("--interval", "1", script=EIGHT, descriptors=32)
        silent = [socket.create_connection(("127.0.0.1", server.port), timeout=600) for _ in range(40)]
        self.assertIn(ask(server.port, "/metrics", token=server.token)[0], (200, 503))   # who is silent has made room
        for one in silent:
            one.close()
        streams = [self.stream(server) for _ in range(40)]   # who listens stays, and the others wait at the door
        events = (line for line in streams[0].makefile() if line.startswith("data: {"))
        next(events)
        cpu, begin = cpu_seconds(server.pid), time.monotonic()
        for _ in range(3):
            next(events)
        self.assertLess((cpu_seconds(server.pid) - cpu) / (time.monotonic() - begin), 0.1)   # a loop without a pause takes what it gets
        for one in streams:
            one.close()
        self.assertEqual(ask(server.port, "/sample.json", token=server.token)[0], 200)

    def test_another_address_of_loopback_is_ours_too(self):
        server = self.serve("--host", "127.0.0.2", script=EIGHT)
        connection = http.client.HTTPConnection("127.0.0.2", server.port, timeout=600)
        with contextlib.closing(connection):
            connection.request("GET", "/?token=" + server.token)
            self.assertEqual(connection.getresponse().status, 200)

    def test_a_history_that_cannot_be_kept_is_told(self):
        (self.dir / "file").write_text("")
        server = self.serve("--count", 1, "--interval", "0.2", script=EIGHT, history=self.dir / "file" / "history.sqlite")
        self.assertEqual(server.wait(600), 0)
        self.assertIn("it is kept in memory", server.stderr.read())

    def test_a_port_that_is_taken_is_named(self):
        server = self.serve(script=EIGHT)
        done = self.monitor("--web", "--port", server.port, code=2)
        self.assert_explains(done, str(server.port))


@needs(chromium.path(), "chromium")
class Browser(Monitor):
    def setUp(self):
        super().setUp()
        self.pictures = pathlib.Path(os.environ.get("MONITOR_SCREENSHOTS", self.dir / "pictures"))
        self.pictures.mkdir(parents=True, exist_ok=True)

    def browser(self, *flags):
        browser = chromium.Chromium(*flags)
        self.addCleanup(browser.close)
        return browser

    def drawn(self, browser):
        """Pixels that are not empty in the plot's inside, by chart that is shown: one of what no run has is not."""
        return browser.ask("""Object.fromEntries([...document.querySelectorAll("canvas")].filter((c) => c.offsetParent).map((c) => {
            const left = Math.round(50 * devicePixelRatio), d = c.getContext("2d").getImageData(left, 0, c.width - left, c.height - 24 * devicePixelRatio).data;
            let n = 0; const colors = new Set();
            for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 200) { n++; colors.add(d[i] >> 5 << 10 | d[i + 1] >> 5 << 5 | d[i + 2] >> 5); }
            return [c.closest(".card").id, [n, colors.size]]; }))""")

    def test_live_updates_charts_both_themes_and_a_phone(self):
        training = self.training()
        server = self.serve("--interval", "0.2", script={**EIGHT, "gpus": [{}, {}, {"hot_c": 95, "start_c": 88, "load": 1}], "clock": {"speed": 5},
                                                         "events": [{"at": 0, "gpu": 5, "throttle": 4}]})
        browser = self.browser()
        browser.size(1280, 900)
        browser.theme("light")
        self.assertEqual(browser.open(server.address), 200)
        browser.wait_until("Number(document.documentElement.dataset.samples) >= 12")
        self.assertEqual(browser.ask("location.search"), "")   # the token has left the address
        self.assertEqual(browser.ask("document.cookie"), "")   # and no script can read it
        self.assertEqual(browser.ask("document.querySelectorAll('.gpu').length"), 8)
        before = browser.ask("Number(document.querySelector('.run dd').textContent.split(' ')[0])")
        browser.wait_until(f"Number(document.querySelector('.run dd').textContent.split(' ')[0]) > {before}")
        browser.wait_until("document.querySelectorAll('.run tbody tr').length == 2")
        browser.wait_until("document.querySelector('#chart-loss canvas')")
        browser.wait_until("Number(document.documentElement.dataset.samples) >= 24")
        for chart, (pixels, colors) in self.drawn(browser).items():
            self.assertGreater(pixels, 40, chart)
            self.assertGreater(colors, 1, chart)
        self.assertEqual(browser.errors, [])
        ink = {}
        for theme in ("light", "dark"):
            browser.theme(theme)
            browser.wait_until(f"document.documentElement.dataset.theme === '{theme}'")
            ink[theme] = browser.ask("getComputedStyle(document.body).backgroundColor")
            browser.screenshot(self.pictures / f"page-{theme}.png")
        self.assertNotEqual(ink["light"], ink["dark"])
        browser.size(390, 844, phone=True)
        browser.wait_until("document.querySelector('canvas').clientWidth < 380")
        self.assertLessEqual(browser.ask("document.documentElement.scrollWidth"), 390)
        browser.screenshot(self.pictures / "phone-dark.png")
        browser.theme("light")
        browser.wait_until("document.documentElement.dataset.theme === 'light'")
        browser.screenshot(self.pictures / "phone-light.png")
        browser.ask("document.getElementById('theme').click()")
        self.assertEqual(browser.ask("document.documentElement.dataset.theme"), "dark")
        self.assertEqual(browser.errors, [])
        training.kill()   # it has all cores of a small machine
        paints = []
        while len(paints) < 5 and min(paints, default=1e9) >= 300:
            browser.open(f"http://127.0.0.1:{server.port}/")
            browser.wait_until("performance.getEntriesByType('paint').length")
            paints.append(browser.ask("performance.getEntriesByType('paint')[0].startTime"))
        print(f"first paint: {min(paints):.0f} ms of {[round(p) for p in paints]}")
        self.assertLess(min(paints), 10000)   # 200 ms when little else runs; what a busy one needs is not the page's fault
        server.kill()
        browser.wait_until("document.getElementById('link').classList.contains('bad')")

    def test_the_browser_is_refused_without_the_token_and_under_a_foreign_name(self):
        server = self.serve(script=EIGHT)
        browser = self.browser("--host-resolver-rules=MAP evil.example 127.0.0.1")
        self.assertEqual(browser.open(f"http://127.0.0.1:{server.port}/"), 401)
        self.assertIn("monitor --web", browser.ask("document.body.textContent"))
        self.assertEqual(browser.open(f"http://evil.example:{server.port}/?token={server.token}"), 403)
        self.assertEqual(browser.open(f"http://127.0.0.1:{server.port}/?token={server.token}"), 200)
        self.assertEqual(browser.ask("fetch('/../../etc/passwd').then((r) => r.status)"), 404)
        self.assertEqual(browser.open(f"http://localhost:{server.port}/"), 401)   # another name, another cookie

    def test_a_connection_that_is_lost_is_told_and_comes_back_by_itself(self):
        fixed = ("--port", lease_ports(), "--token-file", self.dir / "token", "--interval", "0.2")
        server = self.serve(*fixed, script=EIGHT)
        browser = self.browser()
        browser.size(1280, 900)
        browser.open(server.address)
        browser.wait_until("Number(document.documentElement.dataset.samples) >= 2")
        self.assertTrue(browser.ask("document.getElementById('banner').hidden"))
        server.kill()
        server.wait()
        browser.wait_until("document.getElementById('banner').textContent.includes('No connection')")
        self.assertTrue(browser.ask("document.documentElement.classList.contains('old')"))
        browser.screenshot(self.pictures / "lost.png")
        before = browser.ask("Number(document.documentElement.dataset.samples)")
        self.serve(*fixed, script=EIGHT)
        browser.wait_until(f"Number(document.documentElement.dataset.samples) > {before} && document.getElementById('banner').hidden")
        self.assertFalse(browser.ask("document.documentElement.classList.contains('old')"))

    def test_a_monitor_with_another_token_is_told_from_one_that_is_gone(self):
        port = lease_ports()
        server = self.serve("--port", port, "--interval", "0.2", script=EIGHT)
        browser = self.browser()
        browser.open(server.address)
        browser.wait_until("Number(document.documentElement.dataset.samples) >= 1")
        server.kill()
        server.wait()
        self.serve("--port", port, "--interval", "0.2", script=EIGHT)
        browser.wait_until("document.getElementById('banner').textContent.includes('another token')")

    def test_empty_states_a_run_that_ended_and_names_that_are_code(self):
        server = self.serve("--interval", "0.2")
        browser = self.browser()
        browser.size(1280, 900)
        browser.open(server.address)
        browser.wait_until("Number(document.documentElement.dataset.samples) >= 1")
        self.assertIn("no-such-library", browser.ask("document.querySelector('#gpus .empty').textContent"))
        self.assertIn("No run is going on", browser.ask("document.querySelector('#runs .empty').textContent"))
        self.assertEqual(browser.ask("document.querySelectorAll('#tiles .tile').length"), 2)
        browser.screenshot(self.pictures / "empty.png")
        code = "<img src=x onerror=\"document.title='owned'\">'\"</script><script>document.title='owned'</script>"
        Formats.evil_run(self, id=code, recipe=code, unit=code, total_steps=5)
        browser.wait_until("document.querySelector('.run.ended')")
        browser.open(f"http://127.0.0.1:{server.port}/")   # now it is in the first sample too
        browser.wait_until("document.querySelector('.run.ended')")
        self.assertEqual(browser.ask("document.querySelectorAll('#runs img, #runs script').length"), 0)
        self.assertIn("<img src=x", browser.ask("document.querySelector('.run').textContent"))
        self.assertNotIn("owned", browser.ask("document.title"))
        self.assertEqual(browser.errors, [])

    def test_a_driver_that_hangs_is_told_on_the_page(self):
        server = self.serve("--interval", "0.2", script={"preset": "4xh100", "events": [{"at": 1, "gpu": 2, "hang": True}]})
        browser = self.browser()
        browser.open(server.address)
        browser.wait_until("document.getElementById('link').textContent.includes('the driver does not answer')")
        server.send_signal(signal.SIGINT)
        self.assertEqual(server.wait(600), 130)

    def test_eight_gpus_with_ten_thousand_points_in_each_chart(self):
        now = int(time.time())
        self.monitor("--json", script=EIGHT)
        server = self.serve("--count", 2, "--interval", "0.2", script=EIGHT)   # makes the file
        self.assertEqual(server.wait(600), 0)
        with contextlib.closing(sqlite3.connect(self.dir / "history.sqlite")) as history:
            import array
            import math
            for gpu in range(8):
                history.execute("INSERT OR IGNORE INTO sources (name) VALUES (?)", (f"gpu:{gpu}",))
                (source,) = history.execute("SELECT id FROM sources WHERE name = ?", (f"gpu:{gpu}",)).fetchone()
                end = now - now % 60
                history.executemany(
                    "INSERT OR REPLACE INTO points (tier, source, t, v) VALUES (2, ?, ?, ?)",
                    ((source, end - 60 * i, array.array("f", (
                        50 + 40 * math.sin(i / 300 + gpu), 40 + gpu, 500 + 100 * math.sin(i / 90 + gpu), 60 + 10 * math.sin(i / 700 + gpu), 1500 + i % 97, float("nan"),
                        1 + math.sin(i / 50), .5)).tobytes()) for i in range(10070)))
            history.commit()
        server = self.serve("--interval", "0.5", script=EIGHT)
        browser = self.browser()
        browser.size(1280, 900)
        browser.open(server.address)
        browser.wait_until("Number(document.documentElement.dataset.samples) >= 1")
        browser.ask("[...document.querySelectorAll('#ranges button')][2].click()")
        browser.wait_until("document.documentElement.dataset.loaded === '604800'")
        drawn = self.drawn(browser)
        for chart in ("util", "memory", "power", "heat", "clock", "pcie"):
            self.assertGreater(drawn["chart-" + chart][0], 2000, chart)
        spent = []
        for _ in range(3):   # the least of them: a busy machine is not the page's fault
            browser.ask("document.getElementById('theme').click()")
            spent.append(float(browser.ask("document.documentElement.dataset.drawMs")))
        spent = min(spent)
        print(f"10 charts, 8 GPUs x 10,070 points: drawn in {spent:.0f} ms; the monitor has taken {memory_mb(server.pid):.1f} MB")
        self.assertLess(memory_mb(server.pid), 60)
        self.assertLess(spent, 15000)   # 100 ms beside other work
        browser.screenshot(self.pictures / "week.png")
        self.assertEqual(browser.errors, [])


if __name__ == "__main__":
    unittest.main()

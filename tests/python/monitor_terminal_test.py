"""The monitor in a terminal, and what it costs (watched.py).

    python3 monitor_terminal_test.py <folder with tandem and tandem-worker> [unittest arguments]
"""
import contextlib
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import termios
import time
import unittest

from run_test import TANDEM
from watched import EIGHT, Monitor, cpu_seconds, memory_mb, needs


@needs(shutil.which("tmux"), "tmux")
class Terminal(Monitor):
    def tmux(self, *args, check=True):
        return subprocess.run(["tmux", "-L", self.socket, "-f", "/dev/null", *map(str, args)], capture_output=True, text=True, check=check,
                              env={**os.environ, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}).stdout

    def screen(self):
        return self.tmux("capture-pane", "-p").split("\n")[:-1]

    def shows(self, good, seconds=600):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            lines = self.screen()
            if good(lines):
                return lines
        self.fail("the terminal never showed it:\n" + "\n".join(lines))

    def test_every_size_suspend_resume_and_keys(self):
        self.socket = f"tandem-test-{os.getpid()}"
        self.training()
        environment = self.machine({**EIGHT, "events": [{"at": 0, "gpu": 5, "throttle": 4}]})
        start = self.dir / "start.sh"
        start.write_text("".join(f"export {k}='{v}'\n" for k, v in environment.items())
                         + f"set -m\nPS1=ready; export LC_ALL=C.UTF-8\ntandem() {{ {TANDEM} monitor --runs-root {self.dir}/runs --interval 0.2 --no-history \"$@\"; }}\n")
        self.addCleanup(self.tmux, "kill-server", check=False)
        self.tmux("new-session", "-d", "-x", 80, "-y", 24, f"bash --noprofile --rcfile {start} -i")
        self.shows(lambda lines: any("ready" in line for line in lines))
        self.tmux("send-keys", "tandem; echo ended $?", "Enter")
        for width, height in ((80, 24), (40, 10), (250, 80), (56, 12), (60, 15), (100, 30), (120, 40), (40, 12), (132, 43), (77, 18), (200, 60), (41, 50), (160, 11), (20, 5), (80, 24)):
            self.tmux("resize-window", "-x", width, "-y", height)
            lines = self.shows(lambda lines: len(lines) == height and re.search(r" \d\d:\d\d:\d\d( UTC)?$", lines[0].rstrip()) and "q quit" in lines[-1]
                                  and len(lines[0].rstrip()) in (width - 1, width) or width < 40 and "q quit" in lines[-1])
            for line in lines:
                self.assertLessEqual(len(line), width)
                self.assertIsNone(re.search(r"[\x00-\x1f\x7f\ufffd]|\^[A-Z\[]|M-", line), line)
            text = "\n".join(lines)
            if width >= 76 and height >= 18:
                for gpu in range(8):
                    self.assertRegex(text, rf"(?m)^ {gpu} ", f"{width}x{height}")
                self.assertIn("tiny", text, f"{width}x{height}")
        lines = self.shows(lambda lines: any("rank 1" in line for line in lines))
        self.tmux("send-keys", "r")
        self.shows(lambda lines: not any("rank 1" in line for line in lines))
        self.tmux("send-keys", "h")
        self.shows(lambda lines: any("scroll" in line for line in lines))
        self.tmux("send-keys", "h")
        self.tmux("send-keys", "C-z")
        self.shows(lambda lines: any("Stopped" in line for line in lines))
        self.tmux("send-keys", "fg; echo came to $?", "Enter")
        self.shows(lambda lines: "q quit" in lines[-1] and "tandem monitor" in lines[0])
        self.tmux("send-keys", "q")
        self.shows(lambda lines: any("came to 0" in line for line in lines))
        self.tmux("send-keys", "clear; tandem; echo ended $?", "Enter")
        self.shows(lambda lines: "q quit" in lines[-1])
        self.tmux("send-keys", "C-c")
        self.shows(lambda lines: any("ended 130" in line for line in lines))
        self.tmux("send-keys", "clear; tandem; echo left $?", "Enter")
        self.shows(lambda lines: "q quit" in lines[-1])
        self.tmux("send-keys", "C-\\")
        self.shows(lambda lines: any("left 130" in line for line in lines))
        self.tmux("send-keys", "clear; stty -a", "Enter")   # and the terminal is as it was
        self.shows(lambda lines: any(re.search(r"(^|\s)echo\s", line) for line in lines) and any(re.search(r"(^|\s)icanon\s", line) for line in lines))
        self.tmux("send-keys", "clear; TERM=nonsense tandem; echo ended $?", "Enter")
        self.shows(lambda lines: any("ended 2" in line for line in lines) and any("is not known" in line for line in lines))


class Tty(Monitor):
    """A terminal without a shell, as `ssh -t box tandem monitor` has it."""

    def open(self):
        environment = {**os.environ, **self.machine(EIGHT), "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}
        pid, self.terminal = pty.fork()
        if pid == 0:
            os.chdir(self.dir)
            os.execve(TANDEM, [str(TANDEM), "monitor", "--runs-root", "runs", "--interval", "0.2", "--no-history"], environment)
        self.addCleanup(os.close, self.terminal)
        self.addCleanup(self.end, pid)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.text = b""
        self.until(b"q quit")
        return pid

    def end(self, pid):
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def until(self, words, seconds=600):
        end = time.monotonic() + seconds
        while words not in self.text:
            ready = select.select([self.terminal], [], [], max(0, end - time.monotonic()))[0]
            self.assertTrue(ready, f"{words} never came: {self.text[-2000:]}")
            try:
                self.text += os.read(self.terminal, 65536)
            except OSError:   # it has ended
                self.fail(f"{words} never came: {self.text[-2000:]}")

    def ended(self, pid):
        """Its exit code; what it still draws is taken, or it would wait for room."""
        with contextlib.suppress(OSError):
            while os.read(self.terminal, 65536):
                pass
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def test_ctrl_z_does_not_freeze_what_no_shell_could_bring_back(self):
        pid = self.open()
        os.write(self.terminal, b"\x1a")
        os.write(self.terminal, b"h")
        self.until(b"scroll (also")
        os.write(self.terminal, b"q")
        self.assertEqual(self.ended(pid), 0)

    def test_however_it_is_ended_the_terminal_is_given_back(self):
        for what, code in ((b"\x03", 130), (b"\x1c", 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)):
            pid = self.open()
            slave = os.open(os.readlink(f"/proc/{pid}/fd/0"), os.O_RDWR | os.O_NOCTTY)   # keeps its settings alive
            self.assertFalse(termios.tcgetattr(slave)[3] & termios.ECHO)
            if isinstance(what, bytes):
                os.write(self.terminal, what)
            else:
                os.kill(pid, what)
            self.until(b"\x1b[?1049l")   # the other screen is left
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), code)
            self.assertTrue(termios.tcgetattr(slave)[3] & termios.ECHO and termios.tcgetattr(slave)[3] & termios.ICANON)
            os.close(slave)


class Cost(Monitor):
    SECONDS = int(os.environ.get("MONITOR_COST_SECONDS", 10))

    def test_eight_gpus_at_1_hz_cost_less_than_a_hundredth_of_a_core_and_60_mb(self):
        self.training()
        server = self.serve("--interval", "1", script=EIGHT)
        with socket.create_connection(("127.0.0.1", server.port), timeout=600) as stream:
            stream.sendall(f"GET /live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n\r\n".encode())
            events = (line for line in stream.makefile() if line.startswith("data: {") and "gpus" in line)
            next(events), next(events)
            shares = []
            while len(shares) < 4 and min(shares, default=1) >= 0.01:   # the least of them: who shares a core pays more for the same work
                cpu, begin = cpu_seconds(server.pid), time.monotonic()
                for _ in range(self.SECONDS):
                    next(events)
                shares.append((cpu_seconds(server.pid) - cpu) / (time.monotonic() - begin))
        memory = memory_mb(server.pid)
        print(f"monitor at 1 Hz on 8 GPUs, page open, a run beside it: {100 * min(shares):.2f} % of a core, {memory:.1f} MB")
        self.assertLess(min(shares), 0.01)
        self.assertLess(memory, 60)


if __name__ == "__main__":
    unittest.main()

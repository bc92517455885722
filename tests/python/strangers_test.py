"""Folders and names of strangers: what they hold is never run, never steers the terminal, never leads a run elsewhere.

    python3 strangers_test.py <folder with tandem and tandem-worker> [unittest arguments]
"""
import json
import os
import pathlib
import pty
import re
import select
import shlex
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
TANDEM = BIN / "tandem"
QUICK = ["--set", "samples=400", "--set", "hidden=16", "--batch-size", "48", "--devices", "cpu:1"]  # tiny, smaller
ENVIRONMENT = {**os.environ, "NO_COLOR": "1", "PATH": f"{BIN}:{os.environ['PATH']}"}


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="tandem-strangers-test-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def tandem(self, *args, code=0, timeout=600, **more):
        done = subprocess.run([TANDEM, *args], cwd=self.dir, capture_output=True, env=ENVIRONMENT,
                              stdin=subprocess.DEVNULL, timeout=timeout, **more)
        if code is not None:
            self.assertEqual(done.returncode, code, f"{args}\n{done.stdout}\n{done.stderr}")
        return done

    def trained(self, folder="run", steps=3):
        self.tandem("train", "tiny", *QUICK, "--steps", str(steps), "--run-dir", folder, "-q")
        return self.dir / folder

    def planted(self, folder, **run):
        """A folder that says it is a run; nothing of it was made by tandem."""
        run_dir = self.dir / "runs" / folder
        run_dir.mkdir(parents=True)
        (run_dir / "run.json").write_text(json.dumps({"status": "done", "started": "2026-11-18T00:00:00Z", **run}))
        return run_dir


class Terminal:
    """A shell in a terminal of its own."""
    def __init__(self, words, cwd, env):
        self.seen = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execvpe(words[0], words, env)
        import fcntl
        import termios
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 250, 0, 0))

    def until(self, word, seconds=600):
        end = time.monotonic() + seconds
        while word not in self.seen:
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise AssertionError(f"no {word!r} in {self.seen!r}")
            self.seen += os.read(self.fd, 4096)
        before, _, self.seen = self.seen.partition(word)
        return before + word

    def type(self, text):
        os.write(self.fd, text)

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


class Completion(Case):
    FOLDER = "evil$(touch pwned)"
    ID = "bad`touch pwned-too`$(touch pwned-too)"

    def setUp(self):
        super().setUp()
        self.planted(self.FOLDER)
        self.planted("other", id=self.ID)

    def script(self, shell):
        (self.dir / f"tandem.{shell}").write_bytes(self.tandem("completion", shell).stdout)

    def assert_nothing_ran(self):
        self.assertEqual([p.name for p in self.dir.rglob("pwned*")], [])

    def test_bash_offers_a_name_that_is_code_and_does_not_run_it(self):
        self.script("bash")
        for word, name in (("evil", self.FOLDER), ("bad", self.ID)):
            done = subprocess.run(["bash", "--norc", "-c", "source ./tandem.bash; COMP_WORDS=(tandem resume \"$1\"); COMP_CWORD=2; "
                                   "_tandem; printf '%s\\n' \"${COMPREPLY[@]}\"", "bash", word],
                                  cwd=self.dir, env=ENVIRONMENT, capture_output=True, text=True)
            self.assertEqual(shlex.split(done.stdout), [name], done.stderr)
            self.assertNotIn(" ", done.stdout.replace("\\ ", ""), "every blank is quoted")
        self.assert_nothing_ran()

    def test_a_name_completed_in_a_real_bash_is_quoted_and_does_not_run_on_enter(self):
        self.script("bash")
        shell = Terminal(["bash", "--norc", "--noprofile", "-i"], self.dir,
                         {**ENVIRONMENT, "PS1": "READY> ", "TERM": "dumb", "INPUTRC": "/dev/null", "HISTFILE": ""})
        self.addCleanup(shell.close)
        shell.until(b"READY> ")
        shell.type(b"source ./tandem.bash; echo made-$((1+1))\n")
        shell.until(b"made-2")
        shell.until(b"READY> ")
        shell.type(b"tandem runs show evil\t")
        shell.until(b"pwned")
        shell.type(b"\n")
        shown = shell.until(b"READY> ")
        self.assertIn(self.FOLDER.encode(), shown)
        self.assert_nothing_ran()

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_zsh_offers_a_name_that_is_code_and_does_not_run_it(self):
        self.script("zsh")
        done = subprocess.run(["zsh", "-f", "-c", "compdef() { }; _describe() { }; _files() { }; compadd() { print -rl -- $more }; "
                               "source ./tandem.zsh; words=(tandem resume ''); CURRENT=3; PREFIX=; _tandem"],
                              cwd=self.dir, env=ENVIRONMENT, capture_output=True, text=True)
        self.assertEqual(sorted(done.stdout.splitlines()), sorted(["last", self.FOLDER, self.ID]), done.stderr)
        self.assert_nothing_ran()

    @unittest.skipUnless(shutil.which("fish"), "fish is not installed")
    def test_fish_offers_a_name_that_is_code_and_does_not_run_it(self):
        self.script("fish")
        done = subprocess.run(["fish", "--no-config", "-c", "source ./tandem.fish; complete -C 'tandem resume e'"], cwd=self.dir,
                              env={**ENVIRONMENT, "HOME": str(self.dir)}, capture_output=True, text=True)
        self.assertIn("evil", done.stdout, done.stderr)
        self.assert_nothing_ran()


class Names(Case):
    STEER = "x\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b31m"

    def test_no_command_lets_a_name_steer_the_terminal(self):
        run = self.trained("runs/" + "y\x1b[2Jy", 5)
        state = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps({**state, "id": self.STEER, "recipe": "tiny\x1b[5m", "status": "done\x1b[6m"}))
        other = self.planted("other", id="other\r\nok", recipe="r\x1b[7m")
        for words in (["runs"], ["runs", "list", "-q"], ["runs", "show", str(run)], ["runs", "compare", str(run), str(other)],
                      ["runs", "show", "z\x1b[8m"], ["explain", str(run)], ["explain", str(run), "-q"], ["explain", str(other)],
                      ["join", str(run), "--devices", "cpu:1"], ["leave", str(run), "--rank", "0"], ["digest", str(other)],
                      ["resume", str(other)], ["resume", str(run), "-v"], ["resume", str(run), "--steps", "6", "-v"],
                      ["train", "tiny", "--resume", "\x1b[9m"]):
            done = self.tandem(*words, code=None)
            said = done.stderr + (b"" if words[0] == "digest" else done.stdout)
            for byte in (b"\x1b", b"\x07", b"\r", b"\x9b"):
                self.assertNotIn(byte, said, f"{words}: {said}")

    def test_a_command_to_copy_is_quoted_and_shows_as_it_is(self):
        folder = "y\x1b[2Jy $(touch owned)"
        run = self.trained(folder, 5)
        self.assertNotIn(b"owned)`", self.tandem("train", "tiny", *QUICK, "--run-dir", folder, code=2).stderr, "in quotes")
        # A worker that hangs in its start, and a stop: the words that come before there is a run to speak of.
        process = subprocess.Popen([TANDEM, "train", "tiny", *QUICK, "--steps", "5", "--run-dir", folder + "2"], cwd=self.dir, stderr=subprocess.PIPE,
                                   env={**ENVIRONMENT, "TANDEM_FAULT": "start rank=0 do=stop"})
        self.addCleanup(lambda: (process.poll() is None and process.kill(), process.communicate()))
        log = self.dir / (folder + "2") / "logs/rank-0.log"
        while not log.exists():
            self.assertIsNone(process.poll(), "it ended before its worker began")
            time.sleep(0.01)  # lint: allow(sleep) between two looks
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=600)[1]
        self.assertNotIn(b"\x1b", said)
        word = re.search(rb"go on with `tandem resume (.*)`", said)[1]
        shown = subprocess.run(["bash", "-c", b"printf %s " + word], capture_output=True, check=True).stdout
        self.assertEqual((self.dir / os.fsdecode(shown)).resolve(), (self.dir / (folder + "2")).resolve())
        self.assertFalse((self.dir / "owned").exists())
        self.assertTrue(run.exists())

    def test_a_path_for_a_script_is_byte_for_byte(self):
        self.trained("runs/" + "y\x1b[2Jy")
        file = self.tandem("report", "last").stdout
        self.assertTrue(os.path.exists(os.path.join(bytes(self.dir), file.rstrip(b"\n"))), file)


class Variables(Case):
    def test_every_variable_that_a_source_names_is_on_the_list_of_those_that_are_read(self):
        source = pathlib.Path(__file__).resolve().parents[2] / "src"
        listed = set(re.findall(r'"([A-Z_]+)"', (source / "command/variables.cc").read_text()))
        for path in [*source.rglob("*.cc"), *source.rglob("*.h"), *source.rglob("*.cu")]:
            if path.stem.endswith("_test"):
                continue
            code = re.sub(r"//.*", "", path.read_text())
            for name in re.findall(r'"TANDEM_([A-Z_]+)"', code):
                self.assertTrue(name in listed or name.endswith("_FD"), f"TANDEM_{name} of {path} is not in command/variables.cc")


class Outputs(Case):
    """What is no regular file is written to and stays what it is. The links lead to this process's own stdout, as
    /dev/stdout does: replacing that one itself would spoil the machine."""
    def setUp(self):
        super().setUp()
        self.run = self.trained()

    def through_a_pipe(self, name, *words):
        pipe = self.dir / name
        os.mkfifo(pipe)
        read = []
        reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
        reader.start()
        self.tandem(*words, str(pipe))
        reader.join(60)
        self.assertTrue(stat.S_ISFIFO(pipe.lstat().st_mode), "the pipe was replaced")
        return read[0]

    def through_stdout(self, name, *words):
        link = self.dir / name
        link.symlink_to("/proc/self/fd/1")
        done = self.tandem(*words, str(link))
        self.assertTrue(link.is_symlink(), "the link was replaced")
        return done.stdout

    def test_report_goes_to_a_pipe_and_to_stdout(self):
        page = self.through_a_pipe("pipe", "report", "run", "--output")
        self.assertIn(b"</html>", page)
        self.assertTrue(self.through_stdout("out", "report", "run", "--output").rstrip().endswith(b"</html>"))

    def test_exported_weights_go_to_a_pipe_and_to_stdout(self):
        self.tandem("export", "run", "--output", "whole.safetensors")
        whole = (self.dir / "whole.safetensors").read_bytes()
        self.assertEqual(self.through_a_pipe("pipe", "export", "run", "--output"), whole)
        self.assertEqual(self.through_stdout("out", "export", "run", "--output"), whole)

    def test_a_table_goes_to_a_pipe_and_is_appended_to_a_redirected_file(self):
        plan = ["plan", "tiny", "--devices", "cpu:1", "--budget", "1", "-q", "--csv"]
        self.assertIn(b"devices", self.through_a_pipe("pipe", *plan))
        (self.dir / "out").symlink_to("/proc/self/fd/1")
        with open(self.dir / "table.csv", "wb") as table:
            table.write(b"before\n")
            table.flush()
            subprocess.run([TANDEM, *plan, "out", "-q"], cwd=self.dir, env=ENVIRONMENT, stdout=table, check=True, timeout=600)
        text = (self.dir / "table.csv").read_bytes()
        self.assertTrue(text.startswith(b"before\n"), text)
        self.assertIn(b"devices", text)

    def test_a_reader_that_has_gone_is_no_error_and_a_folder_is_one(self):
        read, write = os.pipe()
        os.close(read)
        (self.dir / "out").symlink_to("/proc/self/fd/1")
        done = subprocess.run([TANDEM, "export", "run", "--output", "out"], cwd=self.dir, env=ENVIRONMENT, stdout=write,
                              stderr=subprocess.PIPE, timeout=600)
        os.close(write)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.tandem("report", "run", "--output", str(self.dir), code=2)

    def test_a_link_to_a_file_is_replaced_and_the_file_behind_it_kept(self):
        (self.dir / "precious").write_text("kept")
        (self.dir / "page.html").symlink_to("precious")
        self.tandem("report", "run", "--output", "page.html")
        self.assertEqual((self.dir / "precious").read_text(), "kept")


class Links(Case):
    """A run folder that somebody prepared: nothing is written through its links, nothing waits for its pipes."""
    def setUp(self):
        super().setUp()
        self.run = self.trained()
        self.precious = self.dir / "precious"
        self.precious.mkdir()
        (self.precious / "file.json").write_text("kept")
        (self.precious / "file.log").write_text("kept")

    def in_place_of(self, name):
        place = self.run / name
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
        return place

    def assert_refused(self, place, words):
        done = self.tandem("resume", "run", "--steps", "6", code=2, timeout=600)
        self.assertIn(place.name.encode(), done.stderr)
        self.assertIn(words, done.stderr)
        self.assertIn(b"  do     ", done.stderr)
        self.assertEqual([p.read_text() for p in sorted(self.precious.iterdir())], ["kept", "kept"])

    def test_a_link_in_the_place_of_a_file_is_refused_by_name(self):
        for name in (".lock", "metrics.jsonl", "events.jsonl", "ranks.jsonl", "logs/run.log", "logs/rank-0.log"):
            with self.subTest(name):
                kept = (self.run / name).read_bytes() if (self.run / name).exists() else None
                place = self.in_place_of(name)
                place.symlink_to(self.precious / "file.log")
                self.assert_refused(place, b"a symbolic link")
                place.unlink()
                if kept is not None:
                    place.write_bytes(kept)
        self.tandem("resume", "run", "--steps", "6")

    def test_a_link_in_the_place_of_a_folder_is_refused_by_name(self):
        for name in ("requests", "logs"):
            with self.subTest(name):
                place = self.in_place_of(name)
                place.symlink_to(self.precious)
                self.assert_refused(place, b"a symbolic link")
                place.unlink()
        self.tandem("resume", "run", "--steps", "6")

    def test_a_pipe_in_the_place_of_a_file_holds_nobody(self):
        for name in ("events.jsonl", "metrics.jsonl", "ranks.jsonl", "logs/run.log", "logs/rank-0.log"):
            with self.subTest(name):
                place = self.in_place_of(name)
                os.mkfifo(place)
                self.assert_refused(place, b"a pipe")
                for words in (["explain", "run"], ["runs", "show", "run"], ["report", "run"]):
                    self.tandem(*words, code=None, timeout=600)
                place.unlink()

    def goes_on(self):
        """The run, resumed without an end, once it trains."""
        process = subprocess.Popen([TANDEM, "resume", "run", "--steps", "1000000000"], cwd=self.dir, env=ENVIRONMENT,
                                   stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        self.assertTrue(any(b"exact " in line for line in process.stderr), "it ended before it began")
        return process

    def test_what_lies_in_the_folder_of_requests_ends_no_run(self):
        requests = self.run / "requests"
        (requests / "folder.json").mkdir(parents=True)
        (requests / "folder.json" / "file").write_text("kept")
        process = self.goes_on()
        (requests / "second.json").mkdir()
        for name, text in ((b"\xff\xfe.json", b"{}"), (b"text.json", b"\xff\xfe\x00"), (b"list.json", b"[1]"),
                           (b"odd.json", b'{"version": "\xff"}'), (b"deep.json", b'{"do": {"a": 1}, "version": 7}')):
            with open(os.path.join(bytes(requests), name), "wb") as file:
                file.write(text)
        # The launcher answers, so it lives; it took the others first or will.
        done = self.tandem("leave", "run", "--rank", "0", code=2)
        self.assertIn(b"the last one", done.stderr)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(600), 143)
        self.assertEqual((requests / "folder.json" / "file").read_text(), "kept")

    def test_a_request_of_another_user_is_told_that_it_is_theirs(self):
        if os.geteuid() != 0:
            self.skipTest("another user is needed")
        process = self.goes_on()
        self.dir.chmod(0o755)
        done = self.tandem("leave", str(self.run), "--rank", "0", code=None, user=65534, group=65534, extra_groups=[])
        process.send_signal(signal.SIGTERM)
        process.wait(600)
        self.assertIn(b"Permission denied", done.stderr)
        self.assertIn(b"the user who started the run", done.stderr)
        self.assertNotIn(b"inotify", done.stderr)


class Paths(Case):
    def test_a_run_in_a_folder_whose_name_is_no_utf8_trains_resumes_and_is_found(self):
        folder = b"run-\xff\xfe"
        for words in (["train", "tiny", *QUICK, "--steps", "5", "--run-dir", folder, "--json"],
                      ["resume", folder, "--steps", "60", "--json"], ["runs", "show", folder, "--json"],
                      ["explain", folder], ["digest", folder], ["report", folder]):
            done = self.tandem(*words)
            if "--json" in words:
                json.loads(done.stdout)
        shown = json.loads(self.tandem("runs", "show", folder, "--json").stdout)["run"]
        self.assertEqual((shown["status"], shown["step"]), ("done", 60))


if __name__ == "__main__":
    unittest.main(verbosity=2)

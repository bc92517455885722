"""examples/junit_history: files of real test programs become history lines that tandem learns from.

    python3 junit_history_test.py <folder with tandem and tandem-worker> [unittest arguments]

The samples are pytest's and ctest's own; what Playwright writes is built here after its reporter's form. Lines are read
back by the real program.
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import unittest

from run_test import Case  # noqa: E402  (takes the folder from the command line)

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/junit_history"
PYTEST = sorted((EXAMPLE / "samples/pytest").glob("*.xml"))
DEFECT, FLAKY, ENVIRONMENT, DATA, CONFIGURATION = range(5)


def junit(minute, *cases, wall=10, suite="checkout.spec.ts"):
    """A file as Playwright's reporter writes it: the run's time on <testsuites>, the sum on <testsuite>."""
    body = "".join(f'<testcase name="{name}" classname="{suite}" time="{seconds}">\n{inside}\n</testcase>\n' for name, seconds, inside in cases)
    return (f'<testsuites id="" name="" tests="{len(cases)}" failures="0" skipped="0" errors="0" time="{wall}">\n'
            f'<testsuite name="{suite}" timestamp="2026-03-01T10:{minute:02}:00.000Z" hostname="chromium" tests="{len(cases)}" '
            f'failures="0" skipped="0" time="{sum(case[1] for case in cases)}" errors="0">\n{body}</testsuite>\n</testsuites>')


def failure(text="expect(received).toBe(expected)"):
    return f'<failure message="{text}" type="expect.toBe">\n<![CDATA[{text}]]>\n</failure>'


def log(*commits):
    return "\n".join(f"commit {n + 1:040x}\n2026-03-01T10:{minute:02}:00+00:00\nsubject\n{file}\n" for n, (minute, file) in enumerate(commits))


class JunitHistory(Case):
    def convert(self, *args, code=0):
        done = subprocess.run([sys.executable, EXAMPLE / "junit_history.py", *map(str, args), "--output", self.dir / "h.jsonl"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        if code != 0:
            self.assertFalse((self.dir / "h.jsonl").exists(), "nothing was written")
            return done.stderr
        lines = [json.loads(line) for line in (self.dir / "h.jsonl").read_text().splitlines()]
        for line in lines:
            self.assertEqual((len(line["state"]), len(line["next_state"])), (128, 128))
            self.assertTrue(0 <= line["action"] <= 9)
            self.assertLess(max(map(abs, line["state"])), 4.01, "numbers are about 1 in size")
        return {agent: [line for line in lines if line["agent"] == agent] for agent in ("execution", "analysis")}

    def files(self, *texts):
        paths = []
        for n, text in enumerate(texts):
            paths.append(self.dir / f"run-{n:02}.xml")
            paths[-1].write_text(text)
        return paths

    def causes(self, texts, *commits):
        """Actions of analysis, with a last case that is only there to be what comes next."""
        texts = [*texts, junit(50, ("other", 1, failure())), junit(51, ("other", 1, "")), junit(52, ("last", 1, failure())), junit(53, ("last", 1, ""))]
        (self.dir / "log").write_text(log(*commits))
        return [(line["action"], line["reward"]) for line in self.convert(*self.files(*texts), "--git-log", self.dir / "log")["analysis"]]

    def test_what_pytest_and_ctest_wrote_becomes_lines_that_follow_each_other(self):
        lines = self.convert(*PYTEST, "--git-log", EXAMPLE / "samples/pytest/git-log.txt")
        self.assertEqual([line["action"] for line in lines["execution"][:3]], [0, 2, 4], "smoke, regression, end-to-end, three runners")
        self.assertEqual(len(lines["execution"]), 48)
        self.assertEqual({line["action"] // 2 for line in lines["analysis"]}, {DEFECT, FLAKY, DATA, CONFIGURATION})
        for own in lines.values():
            for line, after in zip(own, own[1:]):
                self.assertTrue(line["done"] or line["next_state"] == after["state"])
        ctest = self.convert(EXAMPLE / "samples/ctest.xml", *PYTEST)
        self.assertGreater(len(ctest["execution"]), 0)

    def test_tandem_learns_from_the_lines(self):
        self.convert(*PYTEST, "--git-log", EXAMPLE / "samples/pytest/git-log.txt")
        for agent, rows in (("execution", 48), ("analysis", 9)):
            done = self.tandem("train", "web-agent", "--set", f"agent={agent}", "--experience", self.dir / "h.jsonl", "--steps", 2,
                               "--set", "net.hidden=[16,16]", "--set", "net.head=8", "--set", "shards=2", "--set", "environments=2",
                               "--set", "capacity=400", "--batch-size", 8, "--set", "experience.holdout=0", "--devices", "cpu:1")
            self.assertIn(f"{rows} transitions of {agent}", done.stderr)
            self.assertNotIn("bad", done.stderr)

    def test_what_was_changed_tells_the_cause_and_the_next_result_whether_it_was_right(self):
        red, green = ("pays", 1, failure()), ("pays", 1, "")
        start = junit(1, green)
        self.assertEqual(self.causes([start, junit(2, red), junit(4, green)])[0], (2 * FLAKY + 1, 1.25), "passed again by itself")
        self.assertEqual([a for a, _ in self.causes([start, junit(2, red), junit(4, red), junit(6, green)])[:2]], [2 * FLAKY, 2 * FLAKY + 1])
        for file, cause in (("src/checkout.ts", DEFECT), ("docker/checkout/Dockerfile", ENVIRONMENT), ("tests/fixtures/checkout.json", DATA),
                            ("config/checkout.yml", CONFIGURATION)):
            self.assertEqual(self.causes([start, junit(2, red), junit(4, green)], (3, file))[0], (2 * cause + 1, 1.25), file)
        wrong = self.causes([start, junit(2, red), junit(4, red), junit(6, green)], (3, "config/checkout.yml"), (5, "src/checkout.ts"))
        self.assertEqual(wrong[:2], [(2 * CONFIGURATION + 1, -0.75), (2 * DEFECT + 1, 1.25)])

    def test_six_runners_are_wide_and_a_retried_test_has_passed(self):
        cases = [(f"t{n}", 10, "") for n in range(6)]
        flaky = ("t9", 1, '<flakyFailure message="late" type="Error"><stackTrace>late</stackTrace></flakyFailure>')
        lines = self.convert(*self.files(junit(1, *cases, wall=10), junit(2, *cases, flaky, wall=60), junit(3, *cases)))
        self.assertEqual([line["action"] for line in lines["execution"]], [5, 4], "end-to-end, wide and narrow")
        self.assertEqual(lines["analysis"], [])

    def test_hostile_and_broken_files_are_refused_and_nothing_is_written(self):
        good = junit(1, ("t", 1, ""))
        bomb = ('<?xml version="1.0"?><!DOCTYPE b [<!ENTITY a "' + "x" * 1000 + '"><!ENTITY c "' + "&a;" * 1000 + '">]>' + good.replace('name="t"', 'name="&c;"'))
        outside = '<!DOCTYPE b [<!ENTITY a SYSTEM "file:///etc/passwd">]>' + good.replace('name="t"', 'name="&a;"')
        for text, words in ((bomb, "document type"), (outside, "document type"), ("<html></html>", "<html>"), (good[:-20], "no XML"), ("", "no XML"),
                            ("<testsuite>" * 100, "deeper"), (good.replace("timestamp", "when"), "timestamp"), ("<testsuites/>", "timestamp")):
            message = self.convert(*self.files(text), code=2)
            for word in (words, "why", "do "):
                self.assertIn(word, message, text[:60])
        self.assertIn("No such file", self.convert(self.dir / "none.xml", code=2))
        (self.dir / "log").write_text("what git would never print")
        self.assertIn("no commit", self.convert(*self.files(good), "--git-log", self.dir / "log", code=2))


    def test_odd_xml_becomes_lines_or_one_message_and_never_a_traceback(self):
        good = junit(1, ("t", 1, failure()), ("u", 2, ""))
        nested = good.replace('<testcase name="u"', '<testcase name="t2"><testcase name="u"').replace("</testcase>\n</testsuite>", "</testcase></testcase></testsuite>")
        self.assertIn("lies in another", self.convert(*self.files(nested), code=2))
        odd = [good.replace("2026", year) for year in ("0001", "9999", "20260")]
        odd += [f'<?xml version="1.0" encoding="{name}"?>' + good for name in ("utf-7", "utf-16", "shift_jis", "cp037", "no-such", "idna")]
        odd += [good.replace("<failure", "<failure><error/></failure><failure", 1), good.replace('time="1"', 'time="1e999"'), good.replace('name="t"', 'name="&#xFFFF;"'),
                good.replace('name="t"', 'name="&lt;&#0;"'), good.replace('name="t"', ""), good.replace("<testcase", "<properties/><testcase", 1),
                good.replace("</testsuite>", "</testsuite><testsuite/>"), good + good, good.replace("testcase", "TestCase"), "<!DOCTYPE x>" + good,
                '<?xml version="1.0"?><!DOCTYPE t SYSTEM "http://nowhere.invalid/x.dtd">' + good, "\ufeff" + good, good.replace("t", "\0", 1)]
        rng = random.Random(11)
        for _ in range(60):     # bytes lost, doubled and changed
            text = good
            for _ in range(rng.randrange(1, 6)):
                at, end = sorted(rng.randrange(len(text)) for _ in range(2))
                text = rng.choice((text[:at] + text[end:], text[:end] + text[at:], text[:at] + rng.choice("<>&\"'/!?[]") + text[at + 1:])) or "x"
            odd.append(text)
        files = [(self.dir / f"odd-{n}.xml") for n in range(len(odd))]
        for file, text in zip(files, odd):
            file.write_text(text, encoding="utf-8", errors="replace")
        script = ("import sys, pathlib; sys.path.insert(0, sys.argv[1]); import junit_files, junit_history\n"
                  "for name in sys.argv[2:]:\n"
                  "    try: junit_history.history([junit_files.read_junit(pathlib.Path(name))] * 2, [])\n"
                  "    except junit_files.BadFile as error: assert name in str(error), error\n")
        done = subprocess.run([sys.executable, "-c", script, EXAMPLE, *files], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        os.mkfifo(self.dir / "pipe")
        self.assertIn("no plain file", self.convert(self.dir / "pipe", code=2))

    def test_a_long_history_takes_time_in_proportion_to_its_size(self):
        script = ("import sys; sys.path.insert(0, sys.argv[1]); import junit_history, datetime, collections\n"
                  "from junit_files import Case, Commit, Run\n"
                  "day = lambda n: datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(minutes=n)\n"
                  "asked = collections.Counter()\n"
                  "plain = junit_history.feature_name\n"
                  "def counted(case): asked['names'] += 1; return plain(case)\n"
                  "junit_history.feature_name = counted\n"
                  "runs = [Run(str(n), day(n), 9, [Case('s', f'test_{t % 20}', str(t), 1, 'failed') for t in range(300)]) for n in range(4)]\n"
                  "junit_history.history(runs, [Commit(day(0), 's', ['src/1.py'])] * 50)\n"
                  "print(asked['names'])\n")
        done = subprocess.run([sys.executable, "-c", script, EXAMPLE], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLess(int(done.stdout), 4 * 300 + 1, "each failing test once looked at all others: 360,000 names")

    def test_a_folder_gets_a_file_of_its_own_for_each_content(self):
        def convert(*files):
            done = subprocess.run([sys.executable, EXAMPLE / "junit_history.py", *map(str, files), "--output", f"{self.dir}/history/"],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("--gate new=warn", done.stderr, "a few episodes can't judge, and it is said")
            return pathlib.Path(done.stdout.strip())
        first = convert(*PYTEST[:12])
        kept = first.read_bytes()
        second, again = convert(*PYTEST), convert(*PYTEST)
        self.assertEqual((second, len(list(second.parent.iterdir()))), (again, 2))
        self.assertNotEqual(first, second)
        self.assertEqual(first.read_bytes(), kept, "what was learned from stays, to judge by")


if __name__ == "__main__":
    unittest.main()

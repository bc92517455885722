"""Reads JUnit XML (pytest, Playwright, ctest, Maven) and the output of `git log`, both as strangers wrote them.

A document type is refused before anything of it is expanded: no entity, no file, no address is ever followed. Nothing is
kept of a file but its tests, and of a test's message the first 2,000 characters.
"""
import dataclasses
import datetime
import re
import xml.parsers.expat

LARGEST_FILE = 256 * 1024 * 1024
DEEPEST, LONGEST_TEXT = 64, 2000
GIT_LOG = ["git", "log", "--date=iso-strict", "--name-only", "--pretty=format:commit %H%n%cI%n%s"]


class BadFile(Exception):
    """What is wrong with a file; the message has its name."""


@dataclasses.dataclass
class Case:
    suite: str
    classname: str
    name: str
    seconds: float = 0.0
    result: str = "passed"      # passed, failed (an expectation), error (anything else), skipped
    flaky: bool = False         # it passed after a retry
    message: str = ""

    @property
    def key(self):
        return f"{self.classname}::{self.name}"


@dataclasses.dataclass
class Run:
    """One JUnit file: one run of the pipeline."""
    file: str
    time: datetime.datetime
    wall: float                 # seconds from start to end; 0: the file does not say
    cases: list


@dataclasses.dataclass
class Commit:
    time: datetime.datetime
    subject: str
    files: list


def seconds_of(text):
    """Seconds; 0 for what is no number. pytest writes 1.234, Maven 1,234.5."""
    try:
        value = float((text or "0").replace(",", ""))
    except ValueError:
        return 0.0
    return value if 0 <= value < 1e9 else 0.0


def time_of(text):
    """A time of ISO 8601, taken for UTC where it names no zone; None for what is none."""
    try:
        time = datetime.datetime.fromisoformat((text or "").strip().replace("Z", "+00:00"))
    except ValueError:
        return None
    if not 1970 <= time.year < 9999:     # no test ran then, and comparing zones would leave the calendar
        return None
    return time if time.tzinfo else time.replace(tzinfo=datetime.timezone.utc)


class _Reader:
    BAD = {"failure": "failed", "error": "error", "skipped": "skipped"}

    def __init__(self, name):
        self.name, self.cases, self.depth = name, [], 0
        self.suites, self.walls, self.time = [], [], None
        self.case, self.collecting, self.whole = None, False, 0.0
        self.parser = xml.parsers.expat.ParserCreate()
        self.parser.StartElementHandler, self.parser.EndElementHandler = self.start, self.end
        self.parser.CharacterDataHandler = self.text
        self.parser.StartDoctypeDeclHandler = self.refuse
        self.parser.EntityDeclHandler = self.refuse

    def refuse(self, *_):
        raise BadFile(f"{self.name}: it has a document type, which no JUnit file needs and which may hold an attack")

    def start(self, tag, attributes):
        self.depth += 1
        if self.depth > DEEPEST:
            raise BadFile(f"{self.name}: its elements are nested deeper than {DEEPEST}")
        if self.depth == 1 and tag not in ("testsuites", "testsuite"):
            raise BadFile(f"{self.name}: it begins with <{tag[:40]}>, a JUnit file with <testsuites> or <testsuite>")
        if tag == "testsuites":
            self.whole = seconds_of(attributes.get("time"))
        elif tag == "testsuite":
            self.suites.append(attributes.get("name", ""))
            self.walls.append(seconds_of(attributes.get("time")))
            time = time_of(attributes.get("timestamp"))
            if time and (self.time is None or time < self.time):
                self.time = time
        elif tag == "testcase":
            if self.case is not None:
                raise BadFile(f"{self.name}: a <testcase> lies in another, which no test program writes")
            self.case = Case(self.suites[-1] if self.suites else "", attributes.get("classname", ""), attributes.get("name", ""),
                             seconds_of(attributes.get("time")))
            if attributes.get("status") in ("notrun", "disabled"):      # ctest
                self.case.result = "skipped"
        elif self.case is not None and tag in self.BAD:
            if self.case.result in ("passed", "skipped"):
                self.case.result = self.BAD[tag]
            self.case.message = (self.case.message + " " + attributes.get("message", ""))[:LONGEST_TEXT]
            self.collecting = True
        elif self.case is not None and tag in ("flakyFailure", "flakyError"):
            self.case.flaky = True

    def text(self, data):
        if self.collecting and len(self.case.message) < LONGEST_TEXT:
            self.case.message = (self.case.message + data)[:LONGEST_TEXT]

    def end(self, tag):
        self.depth -= 1
        if tag in self.BAD:
            self.collecting = False
        elif tag == "testsuite":
            self.suites.pop()
        elif tag == "testcase":
            self.cases.append(self.case)
            self.case, self.collecting = None, False


def read_junit(path):
    """A Run, or BadFile."""
    if path.exists() and not path.is_file():
        raise BadFile(f"{path}: it is no plain file")
    if path.stat().st_size > LARGEST_FILE:
        raise BadFile(f"{path}: it is larger than {LARGEST_FILE // 2**20} MiB")
    reader = _Reader(str(path))
    try:
        with open(path, "rb") as file:
            reader.parser.ParseFile(file)
    except (xml.parsers.expat.ExpatError, ValueError, LookupError) as error:     # ValueError, LookupError: an odd encoding
        raise BadFile(f"{path}: it is no XML ({error})") from None
    if reader.time is None:
        raise BadFile(f"{path}: no <testsuite> has a timestamp, so that it has no place in time")
    if not reader.cases:
        raise BadFile(f"{path}: it has no test")
    # Playwright gives the time from start to end to <testsuites>, and to <testsuite> the sum over its tests.
    return Run(str(path), reader.time, reader.whole or max(reader.walls, default=0.0), reader.cases)


def read_git_log(text, name="git log"):
    """Commits, oldest first, of what GIT_LOG prints."""
    commits = []
    for block in re.split(r"(?m)^commit (?=[0-9a-f]{7,64}$)", text)[1:]:
        lines = block.split("\n")
        time = time_of(lines[1]) if len(lines) > 2 else None
        if time is None:
            raise BadFile(f"{name}: the commit {lines[0][:12]} has no time; write the log with: {' '.join(GIT_LOG)!r}")
        commits.append(Commit(time, lines[2], [line for line in lines[3:] if line.strip()]))
    if text.strip() and not commits:
        raise BadFile(f"{name}: it has no commit; write the log with: {' '.join(GIT_LOG)!r}")
    return sorted(commits, key=lambda commit: commit.time)

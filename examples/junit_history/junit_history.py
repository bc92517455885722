#!/usr/bin/env python3
"""JUnit files and `git log` become history lines for tandem's execution and analysis agents.

    junit_history.py results/*.xml --repo . --output history/
    junit_history.py results/*.xml --git-log log.txt --output history.jsonl
    tandem train web-test --from RUN --experience history/history-20260301-100000-1a2b3c4d.jsonl --gate old=warn

README.md says what each number means. Where --output is a folder, stdout has the file's name alone. Exit code 0: written;
2: an input is wrong, and nothing was written.
"""
import argparse
import collections
import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

from junit_files import GIT_LOG, BadFile, read_git_log, read_junit

FEATURES, CAUSES, QUEUES = 8, 5, 5
GLOBAL, OWN, COLUMNS, TABLE, LAST = 0, 16, 8, 48, 112     # as src/world/web_product.h
EXECUTION_LENGTH, ANALYSIS_LENGTH = 48, 64                # decisions, turns of an episode
DEFECT, FLAKY, ENVIRONMENT, DATA, CONFIGURATION = range(CAUSES)
FEW = 50     # episodes, of which tandem holds out a tenth to judge by
REGRESSION = 1
QUEUE_WORDS = [r"smoke|sanity", None, r"e2e|end.?to.?end|playwright|browser|cypress|\.spec\.[jt]sx?\b", r"perf|load|bench|stress",
               r"flaky|quarantine"]
PRIORITY = [1.0, 0.7, 0.5, 0.35, 0.2]
CUES = [r"assert|expected|expect\(|mismatch|should (?:be|have)", r"time(?:d )?.?out|stale|intermittent|waiting for|flak",
        r"connection|econn|refused|dns|unreachable|50[234]\b|no space|out of memory|killed|segfault|signal",
        r"fixture|constraint|duplicate|foreign key|no such (?:row|record|user)|keyerror|null value|not found in",
        r"config|environment variable|permission|importerror|modulenotfound|no module|unknown option|missing key"]
FILES = [None, None, r"docker|terraform|k8s|helm|ansible|infra", r"fixture|testdata|test_data|seeds?/|\.(?:csv|sql|json|parquet)$",
         r"\.(?:ya?ml|toml|ini|cfg|conf|env|properties)$|package(?:-lock)?\.json$|requirements.*\.txt$|(?:^|/)\.github/"]


def clamp(value, low, high):
    return max(low, min(high, value))


def feature_name(case):
    """What a test is about: the last part of its class or file, without what only says that it is a test."""
    text = (case.classname or case.suite or case.name).replace("\\", "/").split("/")[-1]
    text = re.sub(r"\.(?:spec|test)?\.?(?:[jt]sx?|py|java|cc|cpp)$", "", text)
    parts = [part for part in re.split(r"[.:]", text) if part] or ["other"]
    module = next((part for part in reversed(parts) if re.match(r"(?i)test_|.+_test$", part)), parts[-1])
    return re.sub(r"(?i)^test[_-]?|[_-]?tests?$", "", module).lower() or "other"


def queue_of(case):
    words = f"{case.suite} {case.classname} {case.name}".lower()
    for queue in (0, 4, 3, 2):
        if re.search(QUEUE_WORDS[queue], words):
            return queue
    return REGRESSION


def cause_of(commit):
    """What kind of change a commit was: most of its files say so; configuration and data go before code on a draw."""
    votes = [0] * CAUSES
    for file in commit.files:
        kinds = [cause for cause in (DATA, CONFIGURATION, ENVIRONMENT) if re.search(FILES[cause], file.lower())]
        votes[kinds[-1] if kinds else DEFECT] += 1
    return max((DATA, CONFIGURATION, ENVIRONMENT, DEFECT), key=lambda cause: votes[cause])


class Product:
    """Eight features, as the tests and commits show them up to now."""

    def __init__(self, runs):
        self.feature_of = {}    # by what feature_name looks at: a history has the same tests again and again
        counts = collections.Counter(self.name_of(case) for run in runs for case in run.cases)
        self.names = sorted(counts, key=lambda name: (-counts[name], name))[:FEATURES - (len(counts) > FEATURES)]
        self.tests = [0] * FEATURES
        self.churn, self.coverage, self.incidents, self.found = ([0.0] * FEATURES for _ in range(4))
        self.number = {name: number for number, name in enumerate(self.names)}
        self.touched = {}
        self.words = [re.compile(rf"(?:^|[/_.\-]){re.escape(name)}(?:[/_.\-]|$)") for name in self.names]

    def name_of(self, case):
        text = case.classname or case.suite or case.name
        if text not in self.feature_of:
            self.feature_of[text] = feature_name(case)
        return self.feature_of[text]

    def feature(self, case):
        return self.number.get(self.name_of(case), FEATURES - 1)

    def touches(self, commit, feature):
        """Asked by every failing test: looked up once for each commit."""
        if id(commit) not in self.touched:
            self.touched[id(commit)] = {f for f in range(len(self.names)) if any(self.words[f].search(file.lower()) for file in commit.files)}
        return feature in self.touched[id(commit)]

    def commit(self, commit):
        for feature in range(FEATURES):
            if self.touches(commit, feature):
                self.churn[feature] = min(1.0, self.churn[feature] + 0.4)

    def run(self, run):
        """What a run shows; called before the decisions that follow it."""
        tests, passed, bad = [0] * FEATURES, [0] * FEATURES, [0] * FEATURES
        for case in run.cases:
            feature = self.feature(case)
            tests[feature] += case.result != "skipped"
            passed[feature] += case.result == "passed"
            bad[feature] += case.result in ("failed", "error")
        for feature in range(FEATURES):
            self.churn[feature] *= 0.85
            self.incidents[feature] = 0.8 * self.incidents[feature] + (bad[feature] > 0)
            self.found[feature] += bad[feature]
            if tests[feature]:
                self.tests[feature] = tests[feature]
                self.coverage[feature] += 0.5 * (passed[feature] / tests[feature] - self.coverage[feature])
            else:
                self.coverage[feature] *= 0.97

    def risk(self, feature):
        return self.churn[feature] * (1.5 - self.coverage[feature]) + 0.5 * self.incidents[feature]

    def whole_risk(self):
        return sum(self.risk(feature) for feature in range(FEATURES))

    def observe(self, out, feature, last_column, memory):
        for f in range(FEATURES):
            out[TABLE + COLUMNS * f:TABLE + COLUMNS * (f + 1)] = [
                2 * min(1.0, self.tests[f] / 20) - 1, 2 * self.churn[f] - 0.6, 0.0, 2 * self.coverage[f] - 1,
                min(self.incidents[f], 2.0), min(self.risk(f), 4.0) - 0.5, min(0.25 * self.found[f], 2.0), last_column[f]]
        out[OWN:OWN + COLUMNS] = out[TABLE + COLUMNS * feature:TABLE + COLUMNS * (feature + 1)]
        action, terms = memory
        if action is not None:
            out[LAST + action] = 1.0
        out[LAST + 10:LAST + 14] = [clamp(0.5 * term, -2.0, 2.0) for term in terms]
        out[LAST + 14] = 0.25 * (self.whole_risk() - 2)


class Lines:
    """Decisions of one agent, in episodes: what one saw is what the one before saw next."""

    def __init__(self, agent, length):
        self.agent, self.length, self.time = agent, length, 0
        self.decisions = []     # state, action, reward, last of its episode
        self.memory = (None, [0.0] * 4)

    def add(self, state, action, reward, terms, turns=1):
        self.time += turns
        over = self.time >= self.length
        self.decisions.append((state, action, reward, over))
        self.memory = (None, [0.0] * 4) if over else (action, terms)
        self.time = 0 if over else self.time

    def text(self):
        """The last decision has nothing after it yet: it is only what the one before saw next."""
        out = []
        for i, (state, action, reward, over) in enumerate(self.decisions):
            if not over and i + 1 == len(self.decisions):
                break
            after = state if over else self.decisions[i + 1][0]
            out.append(json.dumps({"agent": self.agent, "state": state, "action": action, "reward": round(reward, 6),
                                   "next_state": after, "done": over}) + "\n")
        return out


class Execution:
    """Which queue a run served, and how widely."""

    def __init__(self, product):
        self.product, self.lines = product, Lines("execution", EXECUTION_LENGTH)
        self.waiting, self.age = [0.0] * QUEUES, [0.0] * QUEUES
        self.heat, self.gauge, self.gauge_mean = 0.0, 0.0, 1.0

    def commit(self):
        self.waiting = [value + 1 for value in self.waiting]

    def state(self):
        p, out = self.product, [0.0] * 128
        out[GLOBAL:GLOBAL + 7] = [2 * self.lines.time / EXECUTION_LENGTH - 1, 2 * self.heat - 0.7, self.gauge - 1, self.gauge_mean - 1,
                                  min(0.25 * p.whole_risk(), 3.0), 0.5 * sum(p.churn) - 1, 0.25 * sum(p.coverage) - 1]
        riskiest = max(range(FEATURES), key=lambda f: (p.risk(f), -f))
        p.observe(out, riskiest, [min(p.incidents[f], 2.0) - 1.2 for f in range(FEATURES)], self.lines.memory)
        for q in range(QUEUES):
            work = min(self.waiting[q], 6.0)
            out[24 + q] = 0.125 * min(self.waiting[q], 16.0) - 0.7
            out[29 + q] = 0.25 * min(self.age[q], 10.0) - 0.8
            out[34 + q] = work / 3 - 1
            out[39 + q] = 0.4 * PRIORITY[q] * work * (0.2 + min(0.125 * self.age[q], 1.0)) - 0.5
        return [round(value, 6) for value in out]

    def run(self, run):
        busy = sum(case.seconds for case in run.cases)
        runners = busy / run.wall if run.wall > 0 else 1.0
        wide = runners >= 4.5
        for queue in range(QUEUES):
            cases = [case for case in run.cases if queue_of(case) == queue and case.result != "skipped"]
            if cases:
                self.serve(queue, cases, wide, runners)

    def serve(self, queue, cases, wide, runners):
        state, slots = self.state(), 6 if wide else 3
        bad = sum(case.result in ("failed", "error") for case in cases) / len(cases)
        jobs = clamp(self.waiting[queue], 1.0, float(slots))
        ended = jobs * (1 - bad)
        late = min(0.125 * self.age[queue], 1.0)
        dropped = max(0.0, self.waiting[queue] - 16)
        terms = [ended / 6, min(runners / slots, 1.0), PRIORITY[queue] * ended * (0.2 + late) * 0.9, 0.25 * jobs * bad + 0.5 * dropped]
        reward = 0.1 * (10 * terms[0] + 5 * terms[1] + 3 * terms[2] - 5 * terms[3])
        self.waiting[queue] = 0.0 if bad == 0 else min(self.waiting[queue], 16.0) * bad
        self.age = [0.0 if q == queue else value + 1 for q, value in enumerate(self.age)]
        self.heat = 0.65 * self.heat + (0.35 * jobs / 6 if wide else 0)
        self.gauge = 2 * min(1.0, 4 * sum(case.result == "error" for case in cases) / len(cases))
        self.gauge_mean = 0.6 * self.gauge_mean + 0.4 * self.gauge
        self.lines.add(state, 2 * queue + wide, reward, terms)


class Analysis:
    """What the people took for the cause of a failure, and whether the test passed after it."""

    def __init__(self, product):
        self.product, self.lines, self.open = product, Lines("analysis", ANALYSIS_LENGTH), {}
        self.closed = [[0] * CAUSES for _ in range(FEATURES)]
        self.trust, self.since, self.usual = 0.6, [], {}

    def commit(self, commit):
        self.since.append(commit)

    def state(self, case, run, probes, answers):
        p, out, f = self.product, [0.0] * 128, self.product.feature(case)
        out[GLOBAL:GLOBAL + 4] = [2 * self.lines.time / ANALYSIS_LENGTH - 1, 2 * self.trust - 1.2, min(0.25 * p.whole_risk(), 3.0),
                                  0.5 * min(probes, 6) - 0.5]
        out[4 + FLAKY], out[9 + FLAKY] = 0.6 * clamp(answers, -5, 5), 0.5 * min(probes, 4)
        p.observe(out, f, [0.2 * sum(self.closed[g]) for g in range(FEATURES)], self.lines.memory)
        message = case.message.lower()
        out[24:29] = [0.8 * ((1.2 if re.search(cue, message) else 0.0) - 0.25) for cue in CUES]
        ran = [other for other in run.cases if other.result != "skipped"]
        bad = [other for other in ran if other.result != "passed"]
        near = [other for other in ran if p.feature(other) == f]
        usual = self.usual.get(case.key, case.seconds)
        out[29:37] = [1.0 if case.result == "error" else -1.0, clamp((case.seconds - usual) / (usual + 0.1), -1, 1),
                      min(len(message) / 1000, 2.0) - 1, 1.0 if case.key not in self.usual else -1.0,
                      2 * sum(other.result != "passed" for other in near) / len(near) - 1, 2 * len(bad) / len(ran) - 1,
                      1.0 if any(p.touches(commit, f) for commit in self.since) else -1.0, 1.0 if self.since else -1.0]
        out[37:42] = [0.5 * min(count, 4) for count in self.closed[f]]
        out[42:47] = [1.0 if count else 0.0 for count in self.closed[f]]
        return [round(value, 6) for value in out]

    def run(self, run):
        now = {case.key: case for case in run.cases if case.result != "skipped"}
        for key in sorted(set(self.open) & set(now)):
            self.conclude(key, now[key])
        for key in sorted(now):
            case = now[key]
            if case.result == "passed":
                self.usual[key] = case.seconds if key not in self.usual else 0.7 * self.usual[key] + 0.3 * case.seconds
            else:
                probes, answers = self.open[key][2:] if key in self.open else (0, 0)
                self.open[key] = (self.state(case, run, probes, answers), self.product.feature(case), probes, answers)
        self.since = []

    def conclude(self, key, case):
        state, feature, probes, answers = self.open[key]
        fixed = case.result == "passed"
        related = [commit for commit in self.since if self.product.touches(commit, feature)] or self.since
        if not related and not fixed:      # run again without a change: it is not chance alone
            self.open[key] = (state, feature, probes + 1, answers - 1)
            self.lines.add(state, 2 * FLAKY, 0.0, [0.0] * 4)
            return
        cause = cause_of(related[-1]) if related else FLAKY
        terms = [float(fixed), float(fixed and self.closed[feature][cause] > 0), float(fixed), float(not fixed)]
        self.trust = clamp(self.trust + (0.08 * (1 - self.trust) if fixed else -0.25 * self.trust), 0.1, 0.98)
        if fixed:
            self.closed[feature][cause] += 1
            del self.open[key]
        self.lines.add(state, 2 * cause + 1, (20 * terms[0] + 10 * terms[1] + 5 * terms[2] - 15 * terms[3]) / 20, terms, turns=3)


def history(runs, commits):
    """History lines of both agents, from runs and commits in the order of time."""
    product = Product(runs)
    execution, analysis = Execution(product), Analysis(product)
    waiting = collections.deque(commits)
    for run in sorted(runs, key=lambda run: (run.time, run.file)):
        while waiting and waiting[0].time <= run.time:
            commit = waiting.popleft()
            product.commit(commit)
            execution.commit()
            analysis.commit(commit)
        execution.run(run)
        product.run(run)
        analysis.run(run)
    return execution.lines.text(), analysis.lines.text()


def git_log(arguments):
    if arguments.git_log:
        return read_git_log(arguments.git_log.read_text(encoding="utf-8", errors="replace"), str(arguments.git_log))
    if not arguments.repo:
        return []
    done = subprocess.run(GIT_LOG, cwd=arguments.repo, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise BadFile(f"{arguments.repo}: {(done.stderr.strip() or 'git log failed').splitlines()[0]}")
    return read_git_log(done.stdout, f"git log of {arguments.repo}")


def named(path, is_folder, runs, lines):
    """In a folder: a name of its own for each content, so that what was learned from once is not written over."""
    if not is_folder:
        return path
    path.mkdir(parents=True, exist_ok=True)
    newest = max(run.time for run in runs).astimezone(datetime.timezone.utc)
    content = hashlib.sha256("".join(lines).encode()).hexdigest()[:8]
    return path / f"history-{newest:%Y%m%d-%H%M%S}-{content}.jsonl"


def write(path, lines):
    """Whole or not at all; a pipe or a device is written to as it is."""
    if path.exists() and not path.is_file():
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(lines)
        return
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(beside, "x", encoding="utf-8") as file:
            file.writelines(lines)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("junit", nargs="+", type=pathlib.Path, help="JUnit files, one for each run of the pipeline")
    commits = parser.add_mutually_exclusive_group()
    commits.add_argument("--git-log", type=pathlib.Path, help="what this printed: " + " ".join(GIT_LOG).replace("%", "%%"))
    commits.add_argument("--repo", type=pathlib.Path, help="folder of a git repository, to ask it")
    parser.add_argument("--output", required=True, help="file of history lines; a folder (it ends with /): a file there with a name of its own")
    arguments = parser.parse_args()
    try:
        runs = [read_junit(path) for path in arguments.junit]
        execution, analysis = history(runs, git_log(arguments))
        folder = arguments.output.endswith("/") or pathlib.Path(arguments.output).is_dir()
        output = named(pathlib.Path(arguments.output), folder, runs, execution + analysis)
        write(output, execution + analysis)
    except (BadFile, OSError) as error:
        print(f"error: {error}\n  why    history is made of whole JUnit files and what `git log` prints\n"
              "  do     leave the file out, or see README.md for what is read; nothing was written", file=sys.stderr)
        return 2
    tests = sum(len(run.cases) for run in runs)
    print(f"{output}: {len(execution)} transitions of execution, {len(analysis)} of analysis, from {len(runs)} runs with {tests} tests",
          file=sys.stderr)
    episodes = {name: sum('"done": true' in line for line in lines) + bool(lines and '"done": false' in lines[-1])
                for name, lines in (("execution", execution), ("analysis", analysis))}
    few = [f"{count} of {name}" for name, count in episodes.items() if count < FEW]
    if few:
        print(f"episodes: {', '.join(few)}: too few to judge a model by; train with --gate new=warn, or collect some {FEW}",
              file=sys.stderr)
    if folder:     # for --experience "$(...)"
        print(output)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What the parts of test_gpu.py share: checks that are counted, programs that are run."""
import json
import os
import pathlib
import subprocess
import tempfile


class Checks:
    def __init__(self, bin_dir, tests, recipes=None, options=None):
        self.bin, self.tests, self.recipes, self.options, self.results, self.failed = bin_dir, tests, recipes, options, {}, 0

    def save(self):
        """What is known so far: a later part may take the machine's last minute."""
        part = self.options.out.with_name(self.options.out.name + ".part")
        part.write_text(json.dumps(self.results, indent=1))
        part.replace(self.options.out)

    def wanted(self, recipe):
        return self.recipes is None or recipe in self.recipes

    def check(self, good, name, output=""):
        self.failed += not good
        output = sorted(output) if isinstance(output, set) else output
        print(f"{'ok  ' if good else 'FAIL'} {name}{': ' + str(output) if output != '' else ''}", flush=True)
        self.results.setdefault("checks", []).append({"name": name, "ok": bool(good), "told": output})
        return good


def said_by(words, env=None, cwd=None, timeout=None):
    """What a program said. One that is missing or does not end is one failed check, not the end of all of them."""
    words = list(map(str, words))
    try:
        return subprocess.run(words, capture_output=True, text=True, cwd=cwd, env={**os.environ, **(env or {})}, timeout=timeout)
    except OSError as error:
        return subprocess.CompletedProcess(words, 127, "", f"{words[0]}: {error.strerror}")
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 124, "", f"no end after {timeout} s")


def lines_of(program, *args, env=None):
    done = said_by([program, *args], env)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return done.returncode, found, done.stderr


class Runs:
    def __init__(self, c):
        self.c = c
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="tandem-gpu-"))

    def program(self, recipe):
        tests = {"mixed": "gpu_mixed_model", "walk": "gpu_mixed_model", "shards": "shard_models"}
        return self.c.tests / tests[recipe] if recipe in tests else self.c.bin / "tandem"

    def train(self, recipe, *args, env=None, code=0):
        done = said_by([self.program(recipe), "train", recipe, "--seed", "7", "--json", *args], env, self.dir)
        if done.returncode != code:
            self.c.check(False, f"train {recipe} {' '.join(map(str, args))}", f"code {done.returncode}: {done.stderr[-600:]}")
            return {}
        return json.loads(done.stdout)

    def output(self, recipe, *args, env=None, timeout=None, by=said_by):
        """What a run said at its end, what it said on the way, its logs, its records."""
        done = by([self.program(recipe), "train", recipe, "--seed", "7", "--json", *args], env, self.dir, timeout)
        if done.returncode != 0:
            return {}, f"code {done.returncode}: {done.stderr[-800:]}{done.stdout[-400:]}", "", []
        output = json.loads(done.stdout)
        folder = self.dir / output["dir"]
        logs = "".join(log.read_text(errors="replace") for log in sorted((folder / "logs").glob("rank-*.log")))
        return output, done.stderr, logs, [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]

    def digest(self, recipe, *args, env=None):
        return self.train(recipe, *args, env=env).get("digest", "none")


def busy(c):
    """Another process that keeps the GPU and its memory moving."""
    return subprocess.Popen(["sh", "-c", f"while :; do {c.tests / 'gpu_operators'} --repeat 40 --only 'linear 8192'; done"],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

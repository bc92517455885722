"""What the parts of test_gpu.py share: checks that are counted, programs that are run."""
import json
import os
import pathlib
import subprocess
import tempfile


class Checks:
    def __init__(self, bin_dir, tests, recipes=None):
        self.bin, self.tests, self.recipes, self.results, self.failed = bin_dir, tests, recipes, {}, 0

    def wanted(self, recipe):
        return self.recipes is None or recipe in self.recipes

    def check(self, good, name, output=""):
        self.failed += not good
        output = sorted(output) if isinstance(output, set) else output
        print(f"{'ok  ' if good else 'FAIL'} {name}{': ' + str(output) if output != '' else ''}", flush=True)
        self.results.setdefault("checks", []).append({"name": name, "ok": bool(good), "told": output})
        return good


def lines_of(program, *args, env=None):
    done = subprocess.run([program, *map(str, args)], capture_output=True, text=True, env={**os.environ, **(env or {})})
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
        done = subprocess.run([self.program(recipe), "train", recipe, "--seed", "7", "--json", *map(str, args)], cwd=self.dir,
                              capture_output=True, text=True, env={**os.environ, **(env or {})})
        if done.returncode != code:
            self.c.check(False, f"train {recipe} {' '.join(map(str, args))}", f"code {done.returncode}: {done.stderr[-600:]}")
            return {}
        return json.loads(done.stdout)

    def output(self, recipe, *args, env=None):
        """What a run said at its end, what it said on the way, its logs, its records."""
        done = subprocess.run([self.program(recipe), "train", recipe, "--seed", "7", "--json", *map(str, args)], cwd=self.dir,
                              capture_output=True, text=True, env={**os.environ, **(env or {})})
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

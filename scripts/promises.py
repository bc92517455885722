#!/usr/bin/env python3
"""scripts/promises.py [ROOT] -- finds lines that break a promise of the project; `make lint` runs it.

Each rule has a name, where it holds, what it looks for, and why. Comments and string literals are not looked at. A line
that has a good reason carries `lint: allow(<rule>) <the reason>` in a comment. tests/lint_test.sh plants a line against
every rule and expects to be stopped.
"""
import pathlib
import re
import sys

# Lowest first: a folder includes itself and what stands before it.
ORDER = ["base", "hardware", "config", "checkpoint", "telemetry", "runs", "kernels", "world", "market", "video", "reduce", "fleet", "guard", "explain", "launch", "jobs", "forecast", "monitor",
         "nn", "learn", "data", "engine", "rl", "command", "recipes", "cuda", "apps", "tools", "cli"]
# Usable by anybody, so they know nobody else.
ONLY = {"hardware": {"base"}, "telemetry": {"base", "hardware"}, "kernels": {"base"}, "world": {"base", "kernels"}}
FIRST_WITH_TORCH = ORDER.index("nn")
# The command line and its tools know recipes by their entries (config/recipe_list.h). Only the two main() files name the list.
KNOW_NO_RECIPE = {"tools", "cli"}
OF_RECIPES = {"rl", "recipes", "apps", "world", "market"}
MAX_LINES = 500

# (rule, holds in tests too, pattern, why, do)
ATEN_DRAWS = ("rand|randn|randint|randperm|rand_like|randn_like|randint_like|bernoulli|binomial|multinomial|normal|poisson|"
              "dropout|alpha_dropout|feature_dropout|feature_alpha_dropout|native_dropout|rrelu|manual_seed")
LINES = [
    ("random", False,
     rf"\b(?:torch|at)::(?:{ATEN_DRAWS})\b"
     r"|\b(?:functional|F)::(?:dropout\w*|alpha_dropout|feature_alpha_dropout|rrelu|gumbel_softmax)\b"
     r"|\bnn::(?:Dropout\w*|AlphaDropout|FeatureAlphaDropout|RReLU)\b"
     r"|\binit::(?!constant_|zeros_|ones_|eye_|dirac_)\w+_\s*\("
     r"|(?:\.|->)(?:uniform_|normal_|random_|bernoulli_|bernoulli|exponential_|cauchy_|geometric_|log_normal_|multinomial)\s*\("
     r"|\b(?:LSTM|GRU|RNN|Transformer\w*|MultiheadAttention)Options\b[^;]*\.dropout\("
     r"|\b(?:getDefaultCPUGenerator|getDefaultCUDAGenerator|createCPUGenerator|make_generator|\w*GeneratorImpl)\b",
     "ATen's generator depends on the order of calls, so bits would depend on the machine",
     "draw from kernels/philox.h with a key of (seed, step, shard, site)"),
    ("std-random", False,
     r"\bstd::(?:mt19937\w*|default_random_engine|minstd_rand\w*|ranlux\w+|shuffle|sample|\w+_distribution)\b",
     "what the standard library draws differs between libraries and depends on the order of calls",
     "draw from kernels/philox.h; a test may use it with a fixed seed"),
    ("rand", True,
     r"\bstd::(?:rand|srand|random_device|random_shuffle)\b|(?<![\w:.>])s?rand\s*\(",
     "nobody can repeat a run whose seed nobody knows",
     "draw from kernels/philox.h, or give std::mt19937_64 a fixed seed in a test"),
    ("pickle", True,
     r"pickle|\btorch::(?:load|save)\b|\bjit::|\b(?:Input|Output)Archive\b",
     "a checkpoint must not be able to run code when it is loaded",
     "use checkpoint/safetensors.h"),
]
# Data and environments: what they compute enters the weights.
LIBM = re.compile(r"(?<![\w.>:])(?:std::)?(?:sin|cos|tan|asin|acos|atan|atan2|sinh|cosh|tanh|exp|exp2|expm1|log|log2|log10|log1p|pow|cbrt|hypot|erf)f?\s*\(")
SLEEPS = re.compile(r"\b(?:sleep_for|sleep_until|usleep|nanosleep|sleep)\s*\(")
SCRIPT_SLEEPS = re.compile(r"\btime\.sleep\b|(?:^|[;&|]|\bdo\b|\bthen\b)\s*sleep\s+[0-9.$]")   # Python, shell
TORCH_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"](?:torch|ATen|c10|caffe2)/')
WIDE_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"](?:torch/torch\.h|torch/all\.h|torch/extension\.h)[>"]')
LOCAL_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
ALLOW = re.compile(r"lint: allow\(([\w-]+)\) +\S")

CODE = {".h", ".cc", ".cu", ".cuh"}
TOKENS = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)


def without_comments(text, keep_strings=False):
    """The text with comments (and strings) emptied, every line where it was."""
    def empty(match):
        token = match.group(0)
        if token.startswith("/"):
            return "\n" * token.count("\n")
        return token if keep_strings else '""' + "\n" * token.count("\n")
    return TOKENS.sub(empty, text)


class Finder:
    def __init__(self, root):
        self.root = root
        self.found = []

    def tell(self, path, number, rule, text, why, do):
        self.found.append(f"{path.relative_to(self.root)}:{number}: [{rule}] {text.strip()}\n  why    {why}\n  do     {do}")

    def check_code(self, path):
        raw = path.read_text(encoding="utf-8", errors="replace")
        raw_lines = raw.split("\n")
        parts = path.relative_to(self.root).parts
        in_src = parts[0] == "src"
        folder = parts[1] if in_src and len(parts) > 2 else None
        is_test = parts[0] == "tests" or path.stem.endswith("_test")
        code = without_comments(raw).split("\n")
        includes = without_comments(raw, keep_strings=True).split("\n")
        for number, (line, include, original) in enumerate(zip(code, includes, raw_lines), 1):
            allowed = set(ALLOW.findall(original))
            for rule, in_tests, pattern, why, do in LINES:
                if rule not in allowed and not include.startswith("#include") and (in_src or rule in ("rand", "pickle")) and (in_tests or not is_test) \
                        and re.search(pattern, line):
                    self.tell(path, number, rule, original, why, do)
            if (parts[0] == "examples" or folder == "world" and "solver" not in parts) and not is_test and "libm" not in allowed and LIBM.search(line):
                self.tell(path, number, "libm", original, "its last bit differs between versions of libm, and then so do the weights",
                          "compute it by + - * / and sqrt, or draw it from kernels/philox.h")
            if is_test and "sleep" not in allowed and SLEEPS.search(line):
                self.tell(path, number, "sleep", original, "a sleep is a guess: too short on a busy machine, wasted on others",
                          "wait for the event itself: a pipe, a pid, a file, a condition variable")
            if path.suffix in (".h", ".cuh") and "wide-include" not in allowed and WIDE_INCLUDE.match(include):
                self.tell(path, number, "wide-include", original, "it costs every file that sees this header 16 s",
                          "declare what you need, or include <ATen/core/Tensor.h>; torch/torch.h belongs in .cc files")
            if folder and "order" not in allowed:
                self.check_order(path, number, folder, include, original)
        if in_src and len(raw_lines) > MAX_LINES:
            self.tell(path, len(raw_lines), "length", f"{len(raw_lines)} lines", f"one idea per file; none needs more than {MAX_LINES} lines",
                      "split it where the idea changes")

    def check_order(self, path, number, folder, include, original):
        if folder not in ORDER:
            self.tell(path, number, "order", f"src/{folder}/ has no place in the order", "docs/design.md names the folders from lowest to highest",
                      "move the file, or add the folder to ORDER in scripts/promises.py and to docs/design.md")
            return
        if ORDER.index(folder) < FIRST_WITH_TORCH and TORCH_INCLUDE.match(include):
            self.tell(path, number, "order", original, f"src/{folder}/ is below libtorch: it must build and answer without it",
                      "move what needs tensors to a folder above")
        local = LOCAL_INCLUDE.match(include)
        if not local:
            return
        other = local.group(1).split("/")[0]
        if folder in KNOW_NO_RECIPE and other in OF_RECIPES and path.name not in ("main.cc", "worker.cc") and not path.stem.endswith("_test"):
            self.tell(path, number, "recipes", original, "a recipe brings its commands, flags and presets by its entry", "pass it through config/recipe_list.h")
        elif other not in ORDER:
            self.tell(path, number, "order", original, "includes are \"folder/file.h\", relative to src/", f"write \"{folder}/{local.group(1)}\" if it lies beside this file")
        elif other != folder and (ORDER.index(other) > ORDER.index(folder) or other not in ONLY.get(folder, {other})):
            may = " and ".join(sorted(ONLY[folder])) + " alone" if folder in ONLY else ", ".join(ORDER[:ORDER.index(folder)]) or "nothing"
            self.tell(path, number, "order", original, f"src/{folder}/ may include {may}", "move the shared part down, or pass it in")

    def check_script(self, path):
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").split("\n"), 1):
            if SCRIPT_SLEEPS.search(line.split("#")[0]) and "sleep" not in ALLOW.findall(line):
                self.tell(path, number, "sleep", line, "a sleep is a guess: too short on a busy machine, wasted on others",
                          "wait for the event itself: a pipe, a pid, a file")

    def check_is_run(self, path):
        """A class of tests that no ctest entry names is run by nobody."""
        entries = "".join(file.read_text() for file in sorted((self.root / "tests").glob("*.cmake")) + sorted((self.root / "tests").glob("CMakeLists.txt")))
        # Where the file has entries of its own, another file's class of that name is no entry for it.
        entries = " ".join(re.findall(rf"tandem_python_tests\(\w+ {re.escape(path.name)} ([^)]*)\)", entries)) or entries
        text = path.read_text(encoding="utf-8", errors="replace")
        for match in re.finditer(r"^class (\w+)\([^)]*\):\n((?:[ \t].*\n|\n)*)", text, re.M):
            if re.search(r"^    def test_", match.group(2), re.M) and not re.search(rf"\b{match.group(1)}\b", entries):
                self.tell(path, text.count("\n", 0, match.start()) + 1, "not-run", match.group(0).split("\n")[0], "no ctest entry names it, so that nobody runs it",
                          "name it in tests/CMakeLists.txt")


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    finder = Finder(root)
    count = 0
    for top in ("src", "tests", "bench", "examples", "fuzz"):
        for path in sorted((root / top).rglob("*")):
            if not path.is_file() or any(part.startswith("build") for part in path.relative_to(root).parts[:-1]):
                continue
            if path.suffix in CODE:
                finder.check_code(path)
                count += 1
            elif top == "tests" and path.suffix in (".sh", ".py"):
                finder.check_script(path)
                if path.name.endswith("_test.py"):
                    finder.check_is_run(path)
                count += 1
    for text in finder.found:
        print(text, file=sys.stderr)
    print(f"promises: {count} files, {len(finder.found)} broken", file=sys.stderr)
    return 1 if finder.found else 0


if __name__ == "__main__":
    sys.exit(main())

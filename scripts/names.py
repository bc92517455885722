#!/usr/bin/env python3
"""scripts/names.py [ROOT] -- finds names that mean two things, and words that the project gave up; `make lint` runs it.

types    no two types of src/ share a name: an error message, a debugger and a reader can't tell them apart. Types of
         headers count, and those of a .cc file if a header has the name.
headers  no file includes two headers of one name ("engine/history.h" and "world/history.h").
unity    files of one target are compiled together (TANDEM_UNITY), so their local names must differ. Functions too: two
         of one name would be overloads, and a call could silently take the other file's. Nor may one be the name of
         a header's function or constant that another file of the target uses: the local one would hide it.
words    identifiers use the field's words; RETIRED lists what they replaced (docs/words.md).

A line that has a good reason carries `lint: allow(<rule>) <the reason>`. tests/lint_test.sh plants a fault of each kind.
"""
import collections
import pathlib
import re
import sys

from promises import ALLOW, CODE, without_comments

# A retired word -> what to write. A pattern for the words of an identifier, small and with single spaces between them: card_bytes and
# CardBytes are "card bytes". "letter" and "played" alone have plain meanings too (of an alphabet, of a game). "told" and "halves" are
# given up as names; in the sentence that names a test (AFailureIsToldOnce, EachDeathHalvesTheInterval) they are English.
RETIRED = {
    "bury|buried": "reap", "cards?": "gpu", "desks?": "input staging", "followers?": "target network",
    "^(?:\\w+ ){0,2}halves$": "hi and lo parts, double buffer, packed weights", "letter \\w+": "exchange message", "lobby": "standby",
    "^played \\w+": "emulated, or replayed", "products": "gemm, or operands", "recordings?": "cuda graph, or capture", "rivals?": "baseline", "seats?": "worker handle", "tickets?": "sequence number",
    "^told\\b|^(?:\\w+ ){1,2}told$": "outputs, or reported", "trays?": "input staging", "way back": "backward", "whole steps?": "fused step", "wish(?:es)?": "request",
}
WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
IDENTIFIER = re.compile(r"\b[A-Za-z_]\w*")
PREPROCESSOR = re.compile(r"^[ \t]*#(?:.*\\\n)*.*$", re.M)
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
TYPE = re.compile(r"(?:template\s*<.*>\s*)?(?:struct|class|union|enum(?:\s+(?:class|struct))?)\s+(?:\[\[\w+\]\]\s*)?(?:alignas\s*\([^)]*\)\s*)?"
                  r"(\w+)(?!\s*(?:::|<))\s*(?:final\s*)?(?::(?!:).*)?$", re.S)
ALIAS = re.compile(r"(?:using|namespace)\s+(\w+)\s*=")
FUNCTION = re.compile(r"(?<![\w:])((?:operator\s*\S+?)|\w+)\s*\(")
VARIABLE = re.compile(r"[^=({]*?(\w+)\s*(?:\[[^\]]*\]\s*)*(?:=|$)", re.S)
INTERNAL = re.compile(r"(?:template\s*<.*?>\s*)?(?:\[\[\w+\]\]\s*)?(?:static|constexpr|const)\b", re.S)
TARGET = re.compile(r"\b(?:tandem_library|tandem_test|add_library|add_executable|target_sources)\s*\(\s*([\w-]+)([^)]*)\)")
KEYWORDS = {"static_assert", "if", "for", "while", "return", "using", "friend", "extern", "decltype", "alignas", "noexcept",
            "__attribute__", "TANDEM_CLONES", "requires"}


class Declaration(collections.namedtuple("Declaration", "name line is_type is_local text")):
    """One name of namespace scope. Local: no other file can see it (anonymous namespace, static, constant)."""


def declarations(text):
    """What a file declares at namespace scope, with a body or a value; forward declarations are left out."""
    code = PREPROCESSOR.sub(lambda m: "\n" * m.group(0).count("\n"), without_comments(text))
    found, scopes, head, start, nested = [], [], "", 0, 0

    def add(semicolon):
        words = " ".join(head.split())
        local = "anonymous" in scopes or bool(INTERNAL.match(words))
        line = code.count("\n", 0, start) + 1
        if not words or re.match(r"(?:TEST\w*|INSTANTIATE_\w+|TYPED_\w+)\s*\(", words):
            return
        alias = ALIAS.match(words)
        kind = TYPE.match(words)
        if alias:
            found.append(Declaration(alias.group(1), line, False, local, words))
        elif kind:
            if not semicolon:
                found.append(Declaration(kind.group(1), line, True, local, words))
        elif words.startswith(("using ", "friend ", "extern ", "template class", "template struct", "template void")):
            return
        else:
            plain = re.sub(r"__attribute__\s*\(\(.*?\)\)|\[\[.*?\]\]|\balignas\s*\([^)]*\)", "", words)
            function, equal = FUNCTION.search(plain), plain.find("=")
            if function and (equal < 0 or function.start() < equal):
                name = function.group(1)
            else:
                variable = VARIABLE.match(plain)
                name = variable.group(1) if variable else ""
            if name and name not in KEYWORDS:
                is_function = function and (equal < 0 or function.start() < equal)
                if is_function:   # `const char* f()` is everybody's; so is what a header has promised
                    local = "anonymous" in scopes or words.startswith("static ")
                is_prototype = semicolon and function and "=" not in plain
                found.append(Declaration(name, line, False, local and not is_prototype, plain))

    for position, sign in enumerate(code):
        if sign in "([":
            nested += 1
        elif sign in ")]":
            nested -= 1
        outside = nested == 0 and "inside" not in scopes
        if sign == "{":
            if outside:
                space = re.search(r"\bnamespace(?:\s+([\w:]+))?\s*$", head)
                if space:
                    scopes.append("named" if space.group(1) else "anonymous")
                else:
                    add(semicolon=False)
                    scopes.append("inside")
            else:
                scopes.append("inside")
            head = ""
        elif sign == "}":
            if scopes:
                scopes.pop()
            head = ""
        elif sign == ";" and nested == 0:
            if outside:
                add(semicolon=True)
            head = ""
        elif outside or nested:
            if not head.strip():
                start = position
            head += sign
    return found


class Finder:
    def __init__(self, root):
        self.root, self.found = root, []
        self.types = collections.defaultdict(list)                                  # name -> (path, line) of headers
        self.types_of_cc = []                                                       # (name, path, line)
        self.locals = collections.defaultdict(lambda: collections.defaultdict(dict))  # unit -> name -> path -> (line, text)
        self.header_names = {}                                                      # function or constant -> (path, line)
        self.identifiers = collections.defaultdict(dict)                            # unit -> path -> its identifiers
        self.lines, self.includes = {}, {}
        self.targets = collections.defaultdict(set)                                 # file -> the targets that compile it
        for page in [*root.rglob("src/**/CMakeLists.txt"), *root.glob("tests/**/CMakeLists.txt"), *root.glob("tests/*.cmake")]:
            for target, sources in TARGET.findall(re.sub(r"#.*", "", page.read_text(encoding="utf-8"))):
                for source in re.findall(r"[\w./-]+\.cc\b", sources):
                    self.targets[(page.parent / source).resolve()].add(target)

    def tell(self, path, line, rule, text, why, do):
        lines = self.lines[path]
        if rule not in ALLOW.findall(lines[line - 1] if line <= len(lines) else ""):
            self.found.append(f"{path.relative_to(self.root)}:{line}: [{rule}] {text}\n  why    {why}\n  do     {do}")

    def where(self, places):
        return ", ".join(f"{path.relative_to(self.root)}:{line}" for path, line in places)

    def read(self, path):
        text = path.read_text(encoding="utf-8", errors="replace")
        self.lines[path] = text.split("\n")
        parts = path.relative_to(self.root).parts
        self.check_words(path, text)
        self.check_headers(path, text)
        if parts[0] not in ("src", "tests"):
            return
        is_header, is_test = path.suffix in (".h", ".cuh"), parts[0] == "tests" or path.stem.endswith("_test")
        units = self.targets.get(path) or {f"{parts[1]}_test" if is_test else parts[1]}   # not listed yet: its folder's
        for one in declarations(text):
            if one.is_type and is_header and parts[0] == "src":
                self.types[one.name].append((path, one.line))
            elif one.is_type and not is_test:
                self.types_of_cc.append((one.name, path, one.line))
            if path.suffix == ".cc" and one.is_local:
                for unit in units:
                    self.locals[unit][one.name].setdefault(path, (one.line, one.text))
            if is_header and parts[0] == "src" and not one.is_type:
                self.header_names.setdefault(one.name, (path, one.line))
        if path.suffix == ".cc":
            code = without_comments(text)
            for unit in units:   # a member (.name, ->name) or a qualified name finds its own
                self.identifiers[unit][path] = set(re.findall(r"(?<![\w.:>])[A-Za-z_]\w*", code))

    def included_by(self, path):
        """The headers of src/ that a file sees."""
        if path not in self.includes:
            self.includes[path] = seen = set()
            for name in INCLUDE.findall("\n".join(self.lines.get(path, []))):
                header = self.root / "src" / name
                if header in self.lines and header not in seen:
                    seen |= {header} | self.included_by(header)
        return self.includes[path]

    def check_words(self, path, text):
        for number, line in enumerate(without_comments(text).split("\n"), 1):
            if line.lstrip().startswith("#include"):
                continue
            for name in dict.fromkeys(IDENTIFIER.findall(line)):
                words = " ".join(word.lower() for word in WORDS.findall(name))
                for word, instead in RETIRED.items():
                    retired = re.search(rf"(?<!\w)(?:{word})\b", words)
                    if retired:
                        self.tell(path, number, "words", f"{name}: '{retired.group(0)}' was given up", "the field has a word for it, and one thing has one name",
                                  f"write {instead}")

    def check_headers(self, path, text):
        seen = {}
        for match in INCLUDE.finditer(without_comments(text, keep_strings=True)):
            name = match.group(1).split("/")[-1]
            other = seen.setdefault(name, match.group(1))
            if other != match.group(1):
                self.tell(path, text.count("\n", 0, match.start(1)) + 1, "headers", f'includes "{other}" and "{match.group(1)}"',
                          "a reader of one line can't tell which is meant", "rename one of the headers by what it holds")

    def judge(self):
        for name, places in sorted(self.types.items()):
            places = list(dict(reversed(places)).items())[::-1]   # one of a file: #if may choose between two
            if len(places) > 1:
                self.tell(*places[1], "types", f"{name} is also a type of {self.where(places[:1])}", "two types never share a name in the program",
                          "rename one by what it is for")
        for name, path, line in self.types_of_cc:
            if name in self.types:
                self.tell(path, line, "types", f"{name} is also a type of {self.where(self.types[name][:1])}", "two types never share a name in the program",
                          "rename the one of the .cc file")
        for unit, names in sorted(self.locals.items()):
            for name, places in sorted(names.items()):
                (path, (line, _)), *_ = places.items()
                header = self.header_names.get(name, (None, 0))[0]
                users = [other for other, used in self.identifiers[unit].items() if other != path and name in used and header in self.included_by(other)]
                if users:
                    self.tell(path, line, "unity", f"{name} is also a name of {self.where([self.header_names[name]])}, which {users[0].name} may mean",
                              f"the files of {unit} are compiled together, and the local name would hide the header's", "rename the local one")
            for name, places in sorted(names.items()):
                if len(places) < 2 or (len({text for _, text in places.values()}) == 1 and ALIAS.match(next(iter(places.values()))[1])):
                    continue   # one file, or one alias written alike in all
                (first, (first_line, _)), (second, (second_line, _)) = list(places.items())[:2]
                self.tell(second, second_line, "unity", f"{name} is also a local name of {self.where([(first, first_line)])}",
                          f"the files of {unit} are compiled together", "rename one, or share it by a header")


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    finder = Finder(root)
    for top in ("src", "tests", "bench", "examples", "fuzz"):
        for path in sorted((root / top).rglob("*")):
            if path.is_file() and path.suffix in CODE and not any(part.startswith("build") for part in path.relative_to(root).parts[:-1]):
                finder.read(path)
    finder.judge()
    for text in finder.found:
        print(text, file=sys.stderr)
    print(f"names: {len(finder.lines)} files, {len(finder.found)} broken", file=sys.stderr)
    return 1 if finder.found else 0


if __name__ == "__main__":
    sys.exit(main())

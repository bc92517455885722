#!/usr/bin/env python3
"""scripts/docs.py [ROOT] -- what the pages name must be there; `make lint` runs it.

Tests, written as `tests/python/fleet_test.py:Faults.test_...` (class and method), `src/fleet/planner_test.cc:Planner.FasterWorkersTakeMore`
(suite and name) or `tests/gpu/test_gpu.py:faults` (a part); files, written as `src/...`, `tests/...`, `scripts/...`, `bench/...`,
`packaging/...` with an ending; links between pages, with their #anchors; and every page must be in the list of docs/README.md,
docs/words.md among them. A line has at most 120 characters, but for a long URL and for tables that scripts/results.py makes.
"""
import ast
import pathlib
import re
import sys

TEST = re.compile(r"`((?:src|tests)/[\w./-]+\.(?:py|cc|cu)):([\w.]+)`")
FILE = re.compile(r"`((?:src|tests|scripts|packaging|bench|cmake|examples)/[\w./-]+\.(?:py|cc|cu|h|sh|md|toml|cmake))(?::[\w.]+)?`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.S | re.M)
MADE = re.compile(r"^<!-- table: .*?^<!-- end of table -->", re.S | re.M)
LONG_URL = re.compile(r"https?://\S{80,}")
MAX_LINE = 120


def tests_of(path):
    """All that can be named of a file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return {f"{suite}.{name}" for suite, name in re.findall(r"^\s*(?:TYPED_)?TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", text, re.M)}
    names = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names.add(node.name)
            names |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return names


def anchors_of(text):
    """The names that a page's headings get: small letters, spaces as dashes, the rest gone."""
    heads = re.findall(r"^#+ +(.*)$", FENCE.sub("", text), re.M)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head)).strip().lower().replace(" ", "-") for head in heads}


def lines_of(blocks, text):
    """The lines that each match of a pattern takes."""
    return [range(text.count("\n", 0, m.start()) + 1, text.count("\n", 0, m.end()) + 2) for m in blocks.finditer(text)]


class Finder:
    def __init__(self, root):
        self.root, self.found, self.known, self.counted = root, [], {}, 0

    def tell(self, page, number, what, why, do):
        self.found.append(f"{page.relative_to(self.root)}:{number}: [docs] {what}\n  why    {why}\n  do     {do}")

    def check_line(self, page, number, line):
        for name, test in TEST.findall(line):
            self.counted += 1
            path = self.root / name
            if path.exists() and path not in self.known:
                self.known[path] = tests_of(path)
            if test not in self.known.get(path, ()):
                near = sorted(one for one in self.known.get(path, ()) if one.split(".")[-1][:12] == test.split(".")[-1][:12])
                self.tell(page, number, f"there is no test {name}:{test}", "a page that names a test says that it is proved" + (f"; near: {', '.join(near[:3])}" if near else ""),
                          "correct the name, or say plainly that nothing proves it")
        for name in FILE.findall(line):
            if not (self.root / name).exists():
                self.tell(page, number, f"there is no file {name}", "a reader would look for it", "correct the path")

    def check_page(self, page):
        text = page.read_text(encoding="utf-8")
        fences, made = (lines_of(blocks, text) for blocks in (FENCE, MADE))
        for number, line in enumerate(text.split("\n"), 1):
            self.check_line(page, number, line)
            if len(line) > MAX_LINE and not LONG_URL.search(line) and not any(number in table for table in made):
                self.tell(page, number, f"a line of {len(line)} characters", f"a page has at most {MAX_LINE}, so that it can be read anywhere",
                          "break the line; make a list of a table that is too wide")
            if any(number in fence for fence in fences):
                continue
            for link in LINK.findall(line):
                if re.match(r"[a-z]+:", link):
                    continue
                name, _, anchor = link.partition("#")
                target = (page.parent / name).resolve() if name else page
                if not target.exists():
                    self.tell(page, number, f"the link {link} leads nowhere", "there is no such file", "correct the link")
                elif anchor and target.suffix == ".md" and anchor not in anchors_of(target.read_text(encoding="utf-8")):
                    self.tell(page, number, f"the link {link} leads nowhere", f"{target.name} has no heading of that name", "correct the anchor")


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    pages = sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md")])
    finder = Finder(root)
    for page in pages:
        finder.check_page(page)
    index = root / "docs" / "README.md"
    if index.exists():
        if index.parent / "words.md" not in pages:
            finder.tell(index, 1, "there is no docs/words.md", "a reader looks there for the words that are ours alone", "write it: one line a word")
        listed = {(index.parent / link.partition("#")[0]).resolve() for link in LINK.findall(index.read_text(encoding="utf-8"))}
        for page in pages:
            if page != index and "docs" in page.relative_to(root).parts and page not in listed:
                finder.tell(page, 1, "the page is not in docs/README.md", "nobody would find it", "add a line there")
    for one in finder.found:
        print(one)
    print(f"pages: {len(pages)} looked at, {finder.counted} tests named, {len(finder.found)} broken", file=sys.stderr)
    return 1 if finder.found else 0


if __name__ == "__main__":
    sys.exit(main())

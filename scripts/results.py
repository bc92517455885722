#!/usr/bin/env python3
"""scripts/results.py [--check] [ROOT] -- writes what was measured (docs/results/*.json) into the pages.

A page names a table between two comments, and the lines between them are made here:
    <!-- table: dqn_speed -->
    <!-- end of table -->
--check changes nothing and exits with 1 if a page differs from the data, or if a row does not say what, when, where
and by which command.

A data file has "machines" (name -> description) and "tables". A table has "rows", and "columns" as [heading, field], or
"form": "list" (one item per row) or "inline" (figures one after the other). "machine", "date", "command" and "minutes"
of a table hold for all its rows. A row has "what", then "figure" with "unit", or "result", or "digest". "baselines" are
figures of the same unit; ratios are computed here.
"""
import json
import pathlib
import re
import sys
import textwrap

WIDTH = 120
BLOCK = re.compile(r"(<!-- table: ([\w-]+) -->\n)(.*?)(<!-- end of table -->)", re.S)
BEGIN = re.compile(r"<!-- table: ")
DATE = re.compile(r"\d{4}-\d\d-\d\d$")
REQUIRED = ("machine", "date", "command")
PLANNED = "planned"  # a table of what is still to be shown: nothing was measured, so nothing is required


def number(value):
    return value if isinstance(value, str) else f"{value:,}"


def with_unit(value, unit):
    return f"{number(value)} {unit}" if unit else number(value)


def ratio(row, baseline, table):
    """How many times as fast (or as long) as the baseline, two digits; three where they are nearly equal."""
    slower = table.get("ratio", "times as fast") == "times as long"
    quotient = row["figure"] / baseline["figure"]
    faster_is_less = row.get("unit") in ("us", "ms", "s")
    value = quotient if slower or not faster_is_less else 1 / quotient
    return f"{value:.2f}x" if value < 2 else f"{value:.2g}x"


def cell(row, field, table, baseline):
    if field == "figure":
        return with_unit(row["figure"], row.get("unit"))
    if field == "baseline":
        return f"{baseline['name']}: {with_unit(baseline['figure'], row.get('unit'))}" if baseline else ""
    if field == "ratio":
        return ratio(row, baseline, table) if baseline else ""
    if field in ("free", "exact"):  # an operator of libtorch (tests/gpu/test_gpu.py --only operators)
        seen = row[field]
        return "refused" if "refused" in seen else f"{'equal' if seen['equal'] else 'differs'}, {number(seen['us'])}"
    value = row.get(field, table.get(field, ""))
    if field in ("command", "digest") and value:
        return f"`{value}`"
    return number(value)


def as_table(table):
    columns = table["columns"]
    lines = ["| " + " | ".join(heading for heading, _ in columns) + " |", "|" + "---|" * len(columns)]
    for row in table["rows"]:
        for index, baseline in enumerate(row.get("baselines", [None])):
            fields = [field if not index or field in ("baseline", "ratio") else None for _, field in columns]
            cells = [cell(row, field, table, baseline) if field else "" for field in fields]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def as_list(table):
    """One item per row, wrapped; text in back-ticks stays on one line."""
    lines = []
    for row in table["rows"]:
        of = lambda field: row.get(field, table.get(field))  # noqa: E731
        machine = row.get("machine", [])
        where = [*([machine] if isinstance(machine, str) else machine), of("date")]
        where += [f"{of('minutes')} min"] if of("minutes") else []
        command = of("command") if "`" in of("command") else f"`{of('command')}`"
        text = f"{row['what']}: **{row['result']}**. {command} ({', '.join(where)})"
        text = re.sub(r"`[^`]*`", lambda quoted: quoted.group(0).replace(" ", "\0"), text)
        lines += textwrap.wrap(text, WIDTH, initial_indent="- ", subsequent_indent="  ", break_long_words=False,
                               break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines]


def as_text(table):
    """Names and figures one after the other, wrapped; all rows have one unit."""
    text = "; ".join(f"{row['what']} {number(row['figure'])}" for row in table["rows"])
    return textwrap.wrap(f"{text} {table['rows'][0]['unit']}", WIDTH, break_long_words=False, break_on_hyphens=False)


FORMS = {"table": as_table, "list": as_list, "inline": as_text}


class Results:
    def __init__(self, root):
        self.root, self.found = root, []
        self.tables = {}  # by name; "machines" is made from all files

    def tell(self, where, what, why, do):
        self.found.append(f"{where}: [results] {what}\n  why    {why}\n  do     {do}")

    def read(self):
        machines = {}
        for path in sorted((self.root / "docs" / "results").glob("*.json")):
            data = json.loads(path.read_text(encoding="utf-8"))
            machines.update(data["machines"])
            for name, table in data["tables"].items():
                where = f"{path.relative_to(self.root)}: {name}"
                if name in self.tables:
                    self.tell(where, "the name is taken", "a page could not say which one it means", "choose another")
                self.tables[name] = table
                for index, row in enumerate(table["rows"], 1):
                    self.check_row(f"{where}, row {index}", table, row, data["machines"])
        self.tables["machines"] = {"columns": [["machine", "name"], ["what it is", "text"]],
                                   "rows": [{"name": name, "text": text} for name, text in machines.items()]}

    def check_row(self, where, table, row, machines):
        if table.get(PLANNED):
            return
        for field in REQUIRED:
            if not row.get(field, table.get(field)):
                self.tell(where, f"no {field}", "nobody could measure it again",
                          f"add \"{field}\" to the row or its table")
        of = row.get("machine", table.get("machine", []))
        for machine in of if isinstance(of, list) else [of]:
            if machine not in machines:
                self.tell(where, f"machine '{machine}' is not known", "a figure means nothing without it",
                          "describe it under \"machines\"")
        if not DATE.match(str(row.get("date", table.get("date", "")))):
            self.tell(where, "the date is not YYYY-MM-DD", "the newest figure counts", "write it so")
        if not isinstance(row.get("figure", ""), str) and not row.get("unit"):
            self.tell(where, "a figure without a unit", "a reader would guess", "add \"unit\"")

    def write(self, page, check):
        text = page.read_text(encoding="utf-8")
        name = page.relative_to(self.root)
        if len(BEGIN.findall(text)) != len(BLOCK.findall(text)):
            self.tell(name, "a table is not closed", "the rest of the page would be taken for it",
                      "put <!-- end of table --> below it")
            return 0

        def made(match):
            table = self.tables.get(match.group(2))
            if table is None:
                self.tell(name, f"there is no table {match.group(2)}", "no file of docs/results/ has it",
                          "correct the name")
                return match.group(0)
            lines = FORMS[table.get("form", "table")](table)
            for line in lines:
                if len(line) > WIDTH and " " in line.strip():
                    self.tell(name, f"{match.group(2)}: a line of {len(line)} characters: {line[:60]}...",
                              f"lines have at most {WIDTH}", "shorten the row")
            return match.group(1) + "\n".join(lines) + "\n" + match.group(4)

        new = BLOCK.sub(made, text)
        if new != text and check:
            before, after = text.split("\n"), new.split("\n")
            number = next((i for i, (a, b) in enumerate(zip(before, after), 1) if a != b), min(len(before), len(after)))
            self.tell(f"{name}:{number}", "the table is not what the data says", "figures are in docs/results/ alone",
                      "run scripts/results.py")
        elif new != text:
            page.write_text(new, encoding="utf-8")
        return len(BLOCK.findall(text))


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--check"]
    results = Results(pathlib.Path(arguments[0] if arguments else ".").resolve())
    results.read()
    pages = sorted([*results.root.glob("*.md"), *(results.root / "docs").rglob("*.md")])
    count = sum(results.write(page, "--check" in sys.argv) for page in pages)
    for one in results.found:
        print(one)
    print(f"results: {len(results.tables)} tables of data, {count} in pages, {len(results.found)} broken",
          file=sys.stderr)
    return 1 if results.found else 0


if __name__ == "__main__":
    sys.exit(main())

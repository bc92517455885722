#!/usr/bin/env python3
"""packaging/man_page.py TANDEM -- the manual page tandem(1), printed: the help of the program and of each of its commands."""
import re
import subprocess
import sys


def escaped(text):
    lines = text.replace("\\", "\\e").replace("-", "\\-").splitlines()
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in lines)


def main():
    program = sys.argv[1]

    def output(*words):
        return subprocess.run([program, *words, "--help"], capture_output=True, text=True, check=True).stdout

    overview = output()
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0].strip()
    commands = re.findall(r"^  ([a-z-]+) ", overview.split("\ncommands:\n", 1)[1].split("\n\n", 1)[0], re.M)
    print(f'.TH TANDEM 1 "" "{version}" "User Commands"\n.SH NAME\ntandem \\- trains models on all your devices, with the same result on any of them')
    print(f".SH SYNOPSIS\n.B tandem\n.I command\n[options]\n.SH DESCRIPTION\n.nf\n{escaped(overview)}\n.fi")
    for command in commands:
        print(f".SH {command.upper()}\n.nf\n{escaped(output(command))}\n.fi")
    print(".SH SEE ALSO\ntandem\\-torch \\-\\-help; the pages in /usr/share/doc/tandem/docs")


if __name__ == "__main__":
    main()

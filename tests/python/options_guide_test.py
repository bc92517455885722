"""Every command of docs/guides/options.md, as it stands there, in one folder where settings are tiny.

    python3 options_guide_test.py <folder with tandem and tandem-worker> [unittest arguments]

A line of `train` that names GPUs may be refused where there are none: exit code 2, and the message names them.
"""
import csv
import math
import pathlib
import random
import re
import shlex
import unittest

from run_test import Case  # noqa: E402  (takes the folder from the command line)

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "guides" / "options.md"
FENCE = re.compile(r"^```\n(.*?)^```", re.S | re.M)
NAMES_GPUS = ("--num_gpus", "--num-gpus", "--gpus")
TINY = """
[recipes.options]
shards = 8
environments = 8
batch_size = 512
ppo.horizon = 16
ppo.epochs = 1
net.width = 8
net.layers = 1
net.heads = 2
net.head_hidden = [8]
market.symbols = 2
market.days = 600
env.episode_days = 1
"""


def commands_of(page):
    """The lines of its fenced blocks that begin with `tandem `, comments taken off."""
    lines = [line for block in FENCE.findall(page) for line in block.splitlines() if line.startswith("tandem ")]
    return [shlex.split(line, comments=True) for line in lines]


class Guide(Case):
    def prices(self, symbols=("AAA", "BBB"), days=620):
        """Daily bars that walk at random, enough of them for four folds."""
        import datetime
        folder = self.dir / "prices"
        folder.mkdir()
        for symbol in symbols:
            luck, close, day = random.Random(symbol), 100.0, datetime.date(2021, 1, 4)
            with open(folder / f"{symbol}.csv", "w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(["date", "open", "high", "low", "close", "volume"])
                for _ in range(days):
                    begin = close * math.exp(luck.gauss(0, 0.004))
                    close = begin * math.exp(luck.gauss(0, 0.012))
                    writer.writerow([day.isoformat(), round(begin, 2), round(max(begin, close) * 1.004, 2),
                                     round(min(begin, close) * 0.996, 2), round(close, 2), luck.randrange(900000, 1500000)])
                    day += datetime.timedelta(days=3 if day.weekday() == 4 else 1)

    def test_every_command_of_the_page_works_or_names_the_gpus_that_are_not_there(self):
        commands = commands_of(PAGE.read_text(encoding="utf-8"))
        self.assertGreater(len(commands), 20)
        self.prices()
        (self.dir / "tandem.toml").write_text(TINY)
        failed = []
        for command in commands:
            done = self.tandem(*command[1:], code=None, env={"XDG_CACHE_HOME": str(self.dir / "cache")})
            without = "CUDA device" in done.stderr or "this build has no CUDA" in done.stderr
            refused = command[1] == "train" and done.returncode == 2 and without and any(word in NAMES_GPUS for word in command)
            if done.returncode != 0 and not refused:
                failed.append(f"{shlex.join(command)}\nexit code {done.returncode}\n{done.stderr[-2000:]}")
        self.assertEqual(failed, [], "\n\n".join(failed))


if __name__ == "__main__":
    unittest.main()

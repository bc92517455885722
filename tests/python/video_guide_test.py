"""Every command of docs/guides/video.md and docs/video.md, as it stands there, in one folder where settings are tiny.

    python3 video_guide_test.py <folder with tandem and tandem-worker> [unittest arguments]

A line that names GPUs may be refused where there are none: exit code 2, and the message names them. Lines of torchrun
must say what video_test.py runs under a real one.
"""
import os
import pathlib
import re
import shlex
import shutil
import unittest

import skips
from run_test import BIN, Case  # noqa: E402  (takes the folder from the command line)

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
FENCE = re.compile(r"^```\n(.*?)^```", re.S | re.M)
NAMES_GPUS = ("--num_gpus", "--num-gpus", "--gpus")
OF_A_LAUNCHER = ("torchrun", "python")
RANK = "build/bin/tandem-worker train video"
TINY = """
[recipes.video]
size = 16
clip.frames = 9
clip.stride = 4
net.kind = "light"
net.width = 4
augment.shift = 1
generated.videos = 6
generated.trials = 2
generated.frames = 100
epochs = 1
validation.patience = 0
checkpoint.every = "never"
"""
QUICK = ["--set", "epochs=1", "--set", "size=16", "--set", "clip.frames=9", "--set", "net.width=4", "--set", "clip.stride=4",
         "--set", "augment.shift=1", "--set", "generated.videos=6", "--set", "generated.trials=2", "--set", "generated.frames=100",
         "--batch-size", "16"]  # of --quick, whose own settings are stronger than those of the folder


def lines_of(page):
    return [line for block in FENCE.findall(page.read_text(encoding="utf-8"))
            for line in block.replace("\\\n", " ").splitlines() if line.strip()]


class Guide(Case):
    def runs(self, line):
        """The line's end, or nothing where it did as it should."""
        words = shlex.split(line, comments=True)
        if words[0] in OF_A_LAUNCHER:
            return "" if line.endswith(RANK) and "--no-python" in words else f"{line}\nends otherwise than with `{RANK}`"
        more = QUICK if words[1:4] == ["train", "video", "--quick"] else []
        done = self.tandem(*words[1:], *more, code=None, env={"XDG_CACHE_HOME": str(self.dir / "cache")})
        without = "CUDA device" in done.stderr or "this build has no CUDA" in done.stderr
        refused = done.returncode == 2 and without and any(word in NAMES_GPUS for word in words)
        return "" if done.returncode == 0 or refused else f"{line}\nexit code {done.returncode}\n{done.stderr[-2000:]}"

    def test_every_command_of_the_pages_works_or_names_the_gpus_that_are_not_there(self):
        (self.dir / "tandem.toml").write_text(TINY)
        self.tandem("train", "video", "--steps", 1, env={"XDG_CACHE_HOME": str(self.dir / "cache")})
        made = next(path for path in (self.dir / "cache" / "tandem").glob("videos-*") if path.is_dir())
        shutil.copytree(made, self.dir / "mice")
        videos = sorted(made.rglob("*.mp4"))
        if not videos or not os.access(BIN / "tandem-video", os.X_OK):
            self.skipTest("this build has no FFmpeg")
        shutil.copy(videos[0], self.dir / "mouse.mp4")
        failed, seen = [], set()
        for page in (DOCS / "guides" / "video.md", DOCS / "video.md"):
            for line in lines_of(page):
                command = line.split("#")[0].strip()
                if command not in seen:
                    failed.append(self.runs(command))
                    seen.add(command)
        self.assertGreater(len(seen), 25)
        failed = [one for one in failed if one]
        self.assertEqual(failed, [], "\n\n".join(failed))


if __name__ == "__main__":
    skips.main()

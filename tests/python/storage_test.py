"""How checkpoints lie on the disk: compressed states, checkpoints of versions before, and links in their place.

    python3 storage_test.py <folder with tandem and tandem-worker> [unittest arguments]
"""
import json
import pathlib
import subprocess
import unittest

from run_test import BIN, Case, QUICK, QUICK_RL

TOOL = BIN.parent / "tests/safetensors_tool"


class Storage(Case):
    def checkpoints(self, run):
        return pathlib.Path(run["dir"]) / "checkpoints"

    def test_a_run_with_checkpoints_of_format_1_resumes_to_the_same_digest_and_prunes_them(self):
        for recipe, quick in (("tiny", QUICK), ("tiny-rl", QUICK_RL)):
            whole = self.train(*quick, "--steps", 30, recipe=recipe)
            part = self.train(*quick, "--steps", 20, "--checkpoint-every", "5 steps", recipe=recipe)
            subprocess.run([TOOL, "format1", self.checkpoints(part)], check=True)
            for step in self.checkpoints(part).glob("step-*"):
                self.assertEqual(json.loads((step / "manifest.json").read_text())["format"], 1)
                self.assertEqual(sorted(p.name for p in step.iterdir()), ["manifest.json", "model.safetensors", "state.safetensors"])
            self.assertEqual(json.loads(self.tandem("digest", part["run"], "--json").stdout)["digest"], part["digest"])
            rest = json.loads(self.tandem("resume", part["run"], "--steps", 30, "--json").stdout)
            self.assertEqual((rest["step"], rest["digest"]), (30, whole["digest"]))
            newest = self.checkpoints(part) / "step-00000030"
            self.assertEqual(json.loads((newest / "manifest.json").read_text())["format"], 2)
            self.assertTrue((newest / "state.safetensors.zst").exists())
            self.assertFalse((self.checkpoints(part) / "step-00000010").exists(), "the oldest goes as ever")

    def test_a_damaged_cut_or_longer_state_is_named_and_the_one_before_is_used(self):
        whole = self.train(*QUICK_RL, "--steps", 12, recipe="tiny-rl")

        def flip(data):
            data[len(data) // 2] ^= 4
            return data

        for damage in (flip, lambda data: data[:-9], lambda data: data + b"more", lambda data: b""):
            run = self.train(*QUICK_RL, "--steps", 8, "--checkpoint-every", "4 steps", recipe="tiny-rl")
            state = self.checkpoints(run) / "step-00000008/state.safetensors.zst"
            state.write_bytes(damage(bytearray(state.read_bytes())))
            done = self.tandem("resume", run["run"], "--steps", 12, "--json")
            self.assertEqual(json.loads(done.stdout)["digest"], whole["digest"])
            self.assertIn("refused checkpoint step-00000008: state.safetensors.zst: ", done.stderr)

    def test_checkpoints_that_are_a_link_are_refused_by_name_and_nothing_behind_changes(self):
        others = self.train(*QUICK_RL, "--steps", 8, "--checkpoint-every", "2 steps", recipe="tiny-rl")
        own = self.train(*QUICK_RL, "--steps", 8, "--checkpoint-every", "2 steps", recipe="tiny-rl")
        theirs, mine = self.checkpoints(others), self.checkpoints(own)
        (theirs / ".tmp-step-00000300").mkdir()

        def seen():
            return {p: p.read_bytes() if p.is_file() else None for p in theirs.rglob("*")}

        before = seen()
        for link, target in ((mine / "step-00000099", theirs / "step-00000008"), (mine, theirs)):
            if link.is_dir():
                link.rename(link.with_name("aside"))
            link.symlink_to(target)
            for words in (["resume", own["run"], "--steps", 20], ["eval", own["run"]], ["digest", own["run"]],
                          ["export", own["run"], "--output", "x.safetensors"], ["runs", "rm", own["run"], "--yes"],
                          ["train", "tiny-rl", "--run-dir", own["dir"], "--resume"]):
                done = self.tandem(*words, code=2)
                self.assert_explains(done, f"{link.parent.name}/{link.name} is a symbolic link")
            self.tandem("runs", "prune", "--older-than", "0s", "--recipe", "nothing", "--yes")
            self.assertEqual(seen(), before)
            link.unlink()
        self.checkpoints(own).with_name("aside").rename(mine)
        self.assertEqual(json.loads(self.tandem("resume", own["run"], "--steps", 10, "--json").stdout)["step"], 10)
        self.assertEqual(seen(), before)


if __name__ == "__main__":
    unittest.main(verbosity=2)

"""The video recipe on a GPU, for test_gpu.py: where frames lie, batch norm over the batch, poses, the full net, prediction.

It needs tandem and tandem-worker alone. On a CPU, to try this file: python3 tests/gpu/video_runs.py <build folder>
"""
import csv
import json
import pathlib
import subprocess
import sys

from gpu_runs import Checks, Runs

SMALL = ["--quick", "--steps", 20, "--set", "validation.every=10 steps"]
FULL = ["--steps", 6, "--precision", "bf16", "--set", "generated.videos=4", "--set", "generated.trials=2",
        "--set", "validation.every=6 steps"]  # 256 x 256, clips of 17 frames, four blocks, batches of 128: the defaults
TINY = ["--set", "size=32", "--set", "net.kind=light", "--set", "net.width=4", "--set", "clip.frames=9", "--set", "augment.shift=2",
        "--batch-size", "16"]  # of the full net, on a CPU
WAYS = (("", []), ("batch norm over the batch", ["--set", "sync_bn=true"]), ("poses", ["--set", "poses=true"]),
        ("smoothed labels", ["--set", "loss.label_smoothing=0.1"]), ("bf16", ["--precision", "bf16"]))


def said(runs, *words):
    """The object that a verb prints; an empty one where it failed."""
    done = subprocess.run([runs.program("video"), *map(str, words), "--json"], cwd=runs.dir, capture_output=True, text=True)
    if done.returncode != 0:
        runs.c.check(False, " ".join(map(str, words)), f"code {done.returncode}: {done.stderr[-600:]}")
        return {}
    return json.loads(done.stdout)


def validations(runs, run):
    """Every metric of every validation of a run: they are counted in whole numbers, so they are equal too."""
    lines = (runs.dir / run["dir"] / "metrics.jsonl").read_text().splitlines() if run else []
    return [{name: value for name, value in record["metrics"].items() if name.startswith("validation/")}
            for record in map(json.loads, lines) if "validation/loss" in record["metrics"]]


def one_result(runs, name, ways):
    """Runs of the same settings, however they were computed: one digest, one set of metrics. The first of them."""
    digests = {way: run.get("digest", "none") for way, run in ways.items()}
    metrics = [validations(runs, run) for run in ways.values()]
    runs.c.check(len(set(digests.values())) == 1 and "none" not in digests.values() and all(one == metrics[0] != [] for one in metrics),
                 f"video {name}: one digest and one set of metrics", {way: digest[:12] for way, digest in digests.items()})
    return next(iter(ways.values()))


def predicts(runs, run, name, frames, poses, device):
    """eval gives the run's own last validation; predict labels each frame, twice alike."""
    found = said(runs, "eval", run["run"], "--checkpoint", "last", "--device", device)
    last = validations(runs, run)[-1]
    runs.c.check(found and (found["macro"]["f1"], found["accuracy"]) == (last["validation/macro_f1"], last["validation/accuracy"]),
                 f"video {name}: eval agrees with the run", f"macro F1 {last['validation/macro_f1']:.3f}")
    texts = []
    for _ in range(2):
        answer = said(runs, "predict", run["run"], frames, "--csv", "labels.csv", "--device", device, *(["--pose", poses] if poses else []))
        texts.append((runs.dir / "labels.csv").read_text() if answer else "")
    with open(runs.dir / "labels.csv", newline="") as rows:
        labels = [row["Action"] for row in csv.DictReader(rows)]
    runs.c.check(texts[0] == texts[1] != "" and len(labels) == answer.get("frames"), f"video {name}: each frame has a label, twice the same",
                 f"{len(labels)} frames, {answer.get('frames_per_second') or 0:.0f} a second")


def video(c, device="cuda:0", full=()):
    runs = Runs(c)
    cache = runs.dir / "cache"
    env = {"XDG_CACHE_HOME": str(cache)}

    def train(*args, workers=1, more=None):
        devices = f"cpu:{workers}" if device == "cpu" else ",".join([device] * workers)
        return runs.train("video", *args, "--devices", devices, env={**env, **(more or {})})

    def data_of(run):
        """Frames and poses of a video that validates or trains, whichever comes first."""
        settings = [folder for folder in (cache / "tandem").glob("videos-*") if folder.is_dir()]
        newest = max(settings, key=lambda folder: folder.stat().st_mtime)
        frames = sorted(newest.rglob("*.frames"))[0]
        return frames, next(iter(sorted(newest.rglob(f"{frames.name.split('.')[0]}DLC*.csv"))), None)

    for name, more in WAYS:
        shown = f"--quick {name}".strip()
        ways = {"one worker": train(*SMALL, *more), "two": train(*SMALL, *more, workers=2),
                "eager": train(*SMALL, *more, more={"TANDEM_GRAPHS": "off"}),
                "from the cache": train(*SMALL, *more, "--set", "frames_on_device=off"),
                "on the device": train(*SMALL, *more, "--set", "frames_on_device=on")}
        run = one_result(runs, shown, ways)
        if not run:
            continue
        frames, poses = data_of(run)
        if "poses" in name or not name:
            predicts(runs, run, shown, frames, poses if "poses" in name else None, device)
    ways = {"one worker": train(*FULL, *full), "two": train(*FULL, *full, workers=2),
            "from the cache": train(*FULL, *full, "--set", "frames_on_device=off")}
    run = one_result(runs, "256 x 256, full net, bf16", ways)
    if run:
        losses = [json.loads(line)["loss"] for line in (runs.dir / run["dir"] / "metrics.jsonl").read_text().splitlines()]
        c.check(all(loss is not None and loss < 20 for loss in losses), "video 256 x 256: its losses are numbers", [round(loss, 3) for loss in losses])
        predicts(runs, run, "256 x 256, full net, bf16", data_of(run)[0], None, device)


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    c = Checks(build / "bin", build / "tests")
    video(c, "cpu", TINY)
    sys.exit(c.failed > 0)


if __name__ == "__main__":
    main()

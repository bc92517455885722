#!/usr/bin/env python3
"""A campaign of random plans and faults against the real programs: every run must end with the digest of a quiet one.

    campaign.py <folder with tandem> [--plane local|nccl|peer|net] [--recipe tiny] [--trials 500] [--seed 1] [--jobs 2] [--minutes 5]

Each trial starts a run on random devices, or as plain ranks over the network, and does harm to it: faults planted at
named points (base/fault_points.h), signals at random moments to random workers, workers that join and leave, launchers
and supervisors that are stopped or killed, and a resume on other devices. Afterwards: the digest, every step recorded
once, nothing left running, nothing left in memory or among the temporary files. A trial is a function of its number:
`--trial N --verbose` repeats one.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import sys
import threading
import time

from local_trial import LocalTrial, NcclTrial, PeerTrial
from net_trial import NetTrial
from trial import SIZES, Failure, put_away, quiet_digest, strays, strays_since

PLANES = {"local": LocalTrial, "nccl": NcclTrial, "peer": PeerTrial, "net": NetTrial}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--plane", default="local", choices=PLANES)
    parser.add_argument("--recipe", default="tiny", choices=SIZES)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--trial", type=int, help="this one only")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--minutes", type=float, default=0, help="stop after this time")
    parser.add_argument("--device", help="of all workers, such as cuda:0; otherwise CPUs of random speeds")
    parser.add_argument("--patience", type=float, default=600, help="seconds after which a run is called hanging")
    parser.add_argument("--strict", action="store_true", help="files that a supervisor killed -9 leaves are failures too")
    parser.add_argument("--keep", action="store_true", help="the folder of a failed trial stays")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    options.tandem = options.bin.resolve() / "tandem"
    before = strays()
    want = quiet_digest(options)
    numbers = [options.trial] if options.trial is not None else list(range(options.trials))
    begin, done, failed, sums = time.monotonic(), 0, 0, {}
    over = threading.Event()

    def one(number):
        if over.is_set() or (options.minutes and time.monotonic() - begin > options.minutes * 60):
            return None
        trial, failure, output = PLANES[options.plane](options, number, want), None, None
        try:
            output = trial.run()
        except Failure as seen:
            failure = seen
        finally:
            put_away(trial.mark)
            if failure and options.keep:
                trial.story.append(f"kept: {trial.dir}")
            else:
                shutil.rmtree(trial.dir, ignore_errors=True)
        return number, output, failure, trial

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for result in pool.map(one, numbers):
            if result is None:
                continue
            number, output, failure, trial = result
            done += 1
            if failure:
                failed += 1
                print(f"trial {number}: {failure}", *trial.story, sep="\n    ", flush=True)
                print(f"    again: {sys.argv[0]} {options.bin} --plane {options.plane} --recipe {options.recipe} "
                      f"--seed {options.seed} --trial {number} --verbose")
                if failed >= 5:
                    over.set()
            for key, value in trial.sums.items():
                sums[key] = sums.get(key, 0) + value
            if done % 50 == 0:
                print(f"{options.plane} {options.recipe}: {done} trials, {failed} failed, {sums}", file=sys.stderr, flush=True)
    if left := strays_since(before):
        failed += 1
        print(f"files left behind: {sorted(left)}")
    print(json.dumps({"plane": options.plane, "recipe": options.recipe, "trials": done, "failed": failed,
                      "seed": options.seed, "seconds": round(time.monotonic() - begin, 1), **sums}))
    if done >= 20 and (sums["ended"] > done * 0.03 or sums["deaths"] < done / 4):
        print(f"{sums['ended']} runs ended for good in {done} trials, {sums['deaths']} deaths were survived: this shows no recovery")
        return 1
    return 1 if failed or done == 0 else 0


if __name__ == "__main__":
    sys.exit(main())

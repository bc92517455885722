#!/usr/bin/env python3
"""However a launcher ends, nothing of its run is left: SIGINT, SIGTERM and SIGKILL at random moments, many times.

    ends.py <folder with tandem> [--times 500] [--jobs 8] [--seed 1]

Each time a run on cpu:3 is started; once it trains and a random time has passed, its launcher gets the signal. Demanded:
the right exit code, no process of the run after 5 s, nothing left in shared memory or among the temporary files.
"""
import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import random
import select
import shutil
import signal
import subprocess
import sys
import time

from trial import GONE_SECONDS, SIZES, Failure, Place, marked, put_away, strays, strays_since, wait_until_gone, workers_of

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}


def begin(tandem, place):
    """A run, returned once it has said that it trains, with its workers."""
    process = subprocess.Popen([tandem, "train", "tiny", *SIZES["tiny"], "--steps", "10000000", "--devices", "cpu:3",
                                "--run-dir", "run"], cwd=place.dir, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               stdin=subprocess.DEVNULL, text=True, env=place.environment())
    said = []
    for line in process.stderr:
        said.append(line)
        if "exact " in line:
            break
    workers = workers_of(process.pid)
    if len(workers) != 3:
        raise Failure(f"{len(workers)} workers: {''.join(said)}")
    return process, workers


def wait_for_ends(handles):
    """Waits until the processes of these handles have ended; wakes at each end, so the time is theirs."""
    poll, end = select.poll(), time.monotonic() + GONE_SECONDS
    for handle in handles:
        poll.register(handle, select.POLLIN)
    left = set(handles)
    while left and (now := time.monotonic()) < end:
        for handle, _ in poll.poll((end - now) * 1000):
            poll.unregister(handle)
            left.discard(handle)


def one(options, number, nth):
    """Seconds from the signal to the launcher's end, and from there to the last worker's; or what went wrong."""
    chance, place = random.Random(f"{options.seed} {number.name} {nth}"), Place("tandem-ends-")
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, place.dir, ignore_errors=True)
        stack.callback(put_away, place.mark)
        try:
            process, workers = begin(options.tandem, place)
            stack.callback(process.stderr.close)
            handles = [os.pidfd_open(pid) for pid in workers]
            for handle in handles:
                stack.callback(os.close, handle)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0, options.spread))
                raise Failure(f"ended by itself with {process.returncode}")
            sent = time.monotonic()
            process.send_signal(number)
            try:
                code = process.wait(options.patience)
            except subprocess.TimeoutExpired:
                raise Failure(f"still runs {options.patience:.0f} s after {number.name}: {marked(place.mark)}")
            ended = time.monotonic()
            wait_for_ends(handles)
            gone = time.monotonic() - ended
            wait_until_gone(place.mark)  # nothing but the workers was there, and they are gone
            if gone > GONE_SECONDS:
                raise Failure(f"workers outlived their launcher by {gone:.1f} s")
            if code != CODES[number]:
                raise Failure(f"exit {code} instead of {CODES[number]}: {process.stderr.read()[-800:]}")
            if left := place.left_behind():
                raise Failure(f"left behind: {left}")
            return ended - sent, gone, None
        except Failure as failure:
            return 0, 0, f"{number.name} {nth}: {failure}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--times", type=int, default=500, help="of each signal")
    parser.add_argument("--jobs", type=int, default=8, help="runs at the same time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--spread", type=float, default=1, help="the signal comes up to this many seconds after the first step")
    parser.add_argument("--patience", type=float, default=60, help="seconds after which a launcher is called hanging")
    options = parser.parse_args()
    options.tandem = options.bin.resolve() / "tandem"
    before, failed = strays(), 0
    print(f"{'signal':<9}{'times':>6}{'failed':>8}{'code':>6}{'launcher ended after (median, worst)':>40}{'workers gone after (worst)':>30}")
    for number, code in CODES.items():
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            results = list(pool.map(lambda nth: one(options, number, nth), range(options.times)))
        failures = [why for _, _, why in results if why]
        for why in failures[:10]:
            print(why, file=sys.stderr)
        failed += len(failures)
        ends = sorted(ended for ended, _, why in results if not why) or [0]
        print(f"{number.name:<9}{len(results):>6}{len(failures):>8}{code:>6}{f'{ends[len(ends) // 2]:.3f} s, {ends[-1]:.3f} s':>40}"
              f"{f'{max(gone for _, gone, _ in results):.3f} s':>30}", flush=True)
    if left := strays_since(before):
        print(f"files left behind: {sorted(left)}")
        failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

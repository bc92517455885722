#!/usr/bin/env python3
"""Metrics of frames and segments beside scikit-learn's, over trials with classes that are rare, missing or invented.

usage: video_metrics_test.py <video_metrics_tool>      exit code 77: skipped, with the reason
"""
import json
import random
import subprocess
import sys

from frame_metrics import frame_scores

try:
    import sklearn  # noqa: F401
except ImportError as error:
    print(f"skipped: no scikit-learn in {sys.executable} ({error})")
    sys.exit(77)

CASES = 300


def stretches(luck, classes, length):
    """Labels in runs, as an animal's are."""
    labels = []
    while len(labels) < length:
        labels += [luck.choice(classes)] * luck.randrange(1, 12)
    return labels[:length]


def cases():
    for number in range(CASES):
        luck = random.Random(number)
        classes = luck.randrange(1, 9)
        occurring = luck.sample(range(classes), luck.randrange(1, classes + 1))
        guessed = luck.sample(range(classes), luck.randrange(1, classes + 1))
        trials = []
        for _ in range(luck.randrange(1, 5)):
            truth = stretches(luck, occurring, luck.randrange(1, 80))
            wrong = stretches(luck, guessed, len(truth))
            share = luck.random()
            trials.append((truth, [w if luck.random() < share else t for t, w in zip(truth, wrong)]))
        yield classes, trials


def flat(value):
    return [x for part in value for x in flat(part)] if isinstance(value, list) else [value]


def main():
    asked = list(cases())
    lines = []
    for classes, trials in asked:
        numbers = [classes, len(trials)]
        for truth, predicted in trials:
            numbers += [len(truth), *truth, *predicted]
        lines.append(" ".join(map(str, numbers)))
    done = subprocess.run([sys.argv[1]], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(asked), f"{len(answers)} answers to {len(asked)} cases"
    compared = 0
    for number, ((classes, trials), ours) in enumerate(zip(asked, answers)):
        theirs = frame_scores(classes, trials)
        for name, value in theirs.items():
            for mine, other in zip(flat(ours[name]), flat(value), strict=True):
                assert abs(mine - other) < 1e-12, f"case {number}: {name} is {ours[name]}, not {value}"
                compared += 1
    print(f"{compared} numbers of {CASES} cases agree with scikit-learn {sklearn.__version__} within 1e-12")


main()

"""What frames and segments are judged by, with scikit-learn and plain loops: the judge of our own metrics."""
import itertools


def segments(labels):
    """[(label, first, last + 1)] of a trial."""
    found, at = [], 0
    for label, group in itertools.groupby(labels):
        length = len(list(group))
        found.append((label, at, at + length))
        at += length
    return found


def segment_counts(truth, predicted, overlap=0.3):
    """(right, wrong, missed), as MS-TCN's F1@k counts them, every label taking part."""
    real, taken, right, wrong = segments(truth), set(), 0, 0
    for label, first, last in segments(predicted):
        overlaps = []
        for i, (other, a, b) in enumerate(real):
            common = max(0, min(last, b) - max(first, a)) if other == label else 0
            overlaps.append((common / (last - first + b - a - common), -i))
        best, index = max(overlaps) if overlaps else (0, 0)
        if best >= overlap and best > 0 and -index not in taken:
            taken.add(-index)
            right += 1
        else:
            wrong += 1
    return right, wrong, len(real) - len(taken)


def segment_f1(trials):
    right, wrong, missed = (sum(column) for column in zip(*(segment_counts(t, p) for t, p in trials)))
    return 2 * right / (2 * right + wrong + missed) if right + wrong + missed else 0.0


def frame_scores(classes, trials):
    """Every metric of tandem::ClassificationScores."""
    from sklearn.metrics import accuracy_score, precision_recall_fscore_support
    truth = [label for t, _ in trials for label in t]
    predicted = [label for _, p in trials for label in p]

    def scores(**how):
        return precision_recall_fscore_support(truth, predicted, zero_division=0, **how)
    each = scores(labels=list(range(classes)))
    return {"accuracy": accuracy_score(truth, predicted), "macro": list(scores(average="macro")[:3]),
            "weighted": list(scores(average="weighted")[:3]), "precision": list(each[0]), "recall": list(each[1]),
            "f1": list(each[2]), "support": [int(n) for n in each[3]], "segment_f1": segment_f1(trials)}

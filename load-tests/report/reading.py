"""What the samples of `sample.py` say. As a program: `reading.py SAMPLES TURNS` prints CPU ms a turn of each process."""

import json
import sys


def rows(path):
    with open(path) as file:
        return [json.loads(line) for line in file if line.endswith("}\n")]


def cpu(samples):
    """CPU seconds of each process over the whole time."""
    first, last = samples[0], samples[-1]
    names = [key for key in last if key.endswith("_cpu")]
    return {name[: -len("_cpu")]: last[name] - first.get(name, 0.0) for name in names}


def quantile(buckets, q):
    """Of a histogram's (bound, count) pairs, as Prometheus does: interpolated within the bucket. `None` if it is empty."""
    total = buckets[-1][1] if buckets else 0
    if total <= 0:
        return None
    low, below = 0.0, 0.0
    for bound, count in buckets:
        bound = float(bound.replace("+Inf", "inf")) if isinstance(bound, str) else bound
        if count >= q * total and count > below:
            return low if bound == float("inf") else low + (bound - low) * (q * total - below) / (count - below)
        low, below = bound, count
    return low


def between(earlier, later):
    """The part of a histogram that came between two samples."""
    before = dict(earlier or [])
    return [(bound, count - before.get(bound, 0.0)) for bound, count in later or []]


def main():
    path, turns = sys.argv[1], float(sys.argv[2].replace("-", "0") or 0)
    samples = rows(path)
    spent = cpu(samples)
    print(" ".join(f"{name}={seconds * 1000 / turns if turns else 0:.3f}" for name, seconds in spent.items()))


if __name__ == "__main__":
    main()

"""halves.py SAMPLES: whether a soak's second half was slower than its first."""

import sys

from reading import between, quantile, rows


def main():
    samples = [row for row in rows(sys.argv[1]) if row.get("added")]
    if len(samples) < 4:
        return
    middle, last = samples[len(samples) // 2], samples[-1]
    for name, earlier, later in [("first half", samples[0], middle), ("second half", middle, last)]:
        part = between(earlier.get("added"), later.get("added"))
        p50, p99 = quantile(part, 0.5), quantile(part, 0.99)
        if p50 is not None:
            grown = later["server_rss"] / 2**20
            print(f"    {name:<18} p50 {p50 * 1000:.2f} ms, p99 {p99 * 1000:.2f} ms, server resident {grown:.0f} MiB at its end")


main()

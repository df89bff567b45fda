"""halves.py SAMPLES: whether a soak's second half was slower than its first. Ends with 1 if it was, by more than half, in its mean or
its p95, or if there is nothing to compare."""

import sys

from reading import between, quantile, rows

MOST = 1.5
# Seconds. Below this value, a rise by half is noise of the machine.
FELT = 0.001


def main():
    samples = [row for row in rows(sys.argv[1]) if row.get("added")]
    if len(samples) < 4:
        print("    too few samples to compare the halves")
        return 1
    middle, last = samples[len(samples) // 2], samples[-1]
    halves = []
    for name, earlier, later in [("first half", samples[0], middle), ("second half", middle, last)]:
        part = between(earlier.get("added"), later.get("added"))
        turns = part[-1][1] if part else 0
        if turns <= 0:
            print(f"    {name:<18} no turns")
            return 1
        mean = (later["added_sum"] - earlier.get("added_sum", 0.0)) / turns
        p50, p95, p99 = (quantile(part, q) for q in (0.5, 0.95, 0.99))
        grown = later["server_rss"] / 2**20
        print(
            f"    {name:<18} mean {mean * 1000:.2f} ms, p50 {p50 * 1000:.2f} ms, p95 {p95 * 1000:.2f} ms, p99 {p99 * 1000:.2f} ms, "
            f"server resident {grown:.0f} MiB at its end"
        )
        halves.append((mean, p95))
    slower = [later / max(earlier, FELT) for earlier, later in zip(*halves)]
    print(f"    times as slow      mean {slower[0]:.2f}, p95 {slower[1]:.2f} (at most {MOST})")
    return int(max(slower) > MOST)


sys.exit(main())

"""Reads lines of JSON as `record` of lib.sh writes them. `--label NAME ROUND` adds the name of a build and the number
of the round to each line. Without it, prints a table of the medians of the builds `this` and `other`, and the median of the
ratios of the rounds that both builds finished."""

import json
import statistics
import sys

# What a row is called, and its key. CPU is in ms a turn, times are in ms.
ROWS = {
    "steady": [
        ("server CPU a turn, ms", "cpu_server"),
        ("Postgres CPU a turn, ms", "cpu_postgres"),
        ("say to reply.done at the client, p50, ms", "reply_p50"),
        ("say to reply.done at the client, p99, ms", "reply_p99"),
        ("resident, MiB", "resident_mib"),
    ],
    "peak": [("turns/s", "rate"), ("server CPU a turn, ms", "cpu_server"), ("Postgres CPU a turn, ms", "cpu_postgres")],
    "soak": [
        ("server CPU a turn, ms", "cpu_server"),
        ("Postgres CPU a turn, ms", "cpu_postgres"),
        ("said to recallable, p50, ms", "said_p50"),
        ("said to recallable, p99, ms", "said_p99"),
    ],
    "first-word": [("first word at the client, p50, ms", "first_p50"), ("first word at the client, p99, ms", "first_p99")],
    "where": [("statements a turn", "statements"), ("trips a turn", "trips"), ("time inside Postgres a turn, ms", "inside")],
}


def value_of(line, key):
    if key == "rate":
        return line["turns"] / line["seconds"]
    return line.get(key)


def values(lines, build, stack, test, key):
    """The values of a build, by round."""
    of_build = [line for line in lines if (line["build"], line["stack"], line["test"]) == (build, stack, test)]
    found = {line["round"]: value_of(line, key) for line in of_build}
    return {number: value for number, value in found.items() if isinstance(value, (int, float))}


def main():
    lines = [json.loads(line) for line in sys.stdin]
    if sys.argv[1:2] == ["--label"]:
        for line in lines:
            print(json.dumps({**line, "build": sys.argv[2], "round": int(sys.argv[3])}))
        return
    print(f"\n{'test':10} {'stack':9} {'':42} {'this':>9} {'other':>9} {'ratio':>7}")
    for stack in sorted({line["stack"] for line in lines}):
        for test, rows in ROWS.items():
            for name, key in rows:
                this, other = (values(lines, build, stack, test, key) for build in ("this", "other"))
                if not this or not other:
                    continue
                ratios = [this[number] / other[number] for number in this if other.get(number)]
                ratio = f"{statistics.median(ratios):.2f}" if ratios else "-"
                print(f"{test:10} {stack:9} {name:42} {statistics.median(this.values()):9.2f} {statistics.median(other.values()):9.2f} {ratio:>7}")


if __name__ == "__main__":
    main()

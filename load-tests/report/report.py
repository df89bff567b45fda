"""report.py FOLDER VERSION: writes FOLDER/report.md and its plots from what the tests left there."""

import json
import os
import platform
import sys

from plots import bars, lines
from reading import between, quantile, rows

WINDOW_S = 5


def results(folder):
    with open(f"{folder}/results.jsonl") as file:
        return [json.loads(line) for line in file]


def samples(folder, stack, test):
    path = f"{folder}/{stack}-{test}.samples"
    return rows(path) if os.path.exists(path) else []


def over_time(found, q):
    """The quantile `q` of what was added, in ms, in each window."""
    points, since = [], None
    for row in found:
        if not row.get("added"):
            continue
        if since is None:
            since = row
        elif row["at"] - since["at"] >= WINDOW_S:
            value = quantile(between(since["added"], row["added"]), q)
            if value is not None:
                points.append((row["at"], value * 1000))
            since = row
    return points


def shown(value, digits=1):
    return "–" if value is None else f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def table(out, found, test, columns):
    chosen = [one for one in found if one["test"] == test]
    if not chosen:
        return
    out.append("| what | " + " | ".join(one["stack"] for one in chosen) + " |")
    out.append("| --- |" + " --- |" * len(chosen))
    for label, key, digits in columns:
        cells = [one.get(key) for one in chosen]
        if any(cell is not None for cell in cells):
            out.append(f"| {label} | " + " | ".join(shown(cell, digits) for cell in cells) + " |")
    out.append("")


def machine():
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.processor())
    memory = next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemTotal"))
    return f"{os.cpu_count()} cores of {model}, {memory / 2**20:.0f} GiB; k6, the mock model, the stores and the server share them"


def main():
    folder, version = sys.argv[1:3]
    found = results(folder)
    for one in found:
        if one.get("turns") and one.get("seconds"):
            one["rate"] = one["turns"] / one["seconds"]
    stacks = list(dict.fromkeys(one["stack"] for one in found))
    out = [f"# Load report: {version}", "", machine() + ".", ""]
    out += ["The mock model answers at once, in eight pieces. `embedded`: SQLite and buffers in process. `full`: Postgres and Redis, and Qdrant where QDRANT_URL named one.", ""]
    cpu = [(f"CPU a turn, {name}, ms", f"cpu_{name}", 2) for name in ("server", "postgres", "redis", "model", "k6")]
    turns = [
        ("asked, turns/s", "asked", 0), ("turns/s", "rate", 0), ("share that failed", "failed", 4),
        ("added by the server, p50, ms", "added_p50", 2), ("added by the server, p99, ms", "added_p99", 2),
        ("say to reply.done at the client, p50, ms", "reply_p50", 1), ("say to reply.done at the client, p99, ms", "reply_p99", 1),
        ("say to turn.committed, p50, ms", "committed_p50", 1), ("say to turn.committed, p99, ms", "committed_p99", 1),
        ("request to answer, p50, ms", "answer_p50", 1), ("request to answer, p99, ms", "answer_p99", 1),
        *cpu, ("resident, MiB", "resident_mib", 0),
    ]
    for test, title in [
        ("steady", "Turns at a steady rate"), ("peak", "As many turns as there can be"), ("rest", "Turns over REST"),
    ]:
        if any(one["test"] == test for one in found):
            out += [f"## {title}", ""]
            table(out, found, test, turns)
        if test == "steady" and any(one["test"] == "highest" for one in found):
            out += ["## The highest steady rate that holds the bars", ""]
            table(out, found, "highest", [
                ("turns/s", "rate", 0), ("added by the server, p50, ms", "added_p50", 2), ("added by the server, p99, ms", "added_p99", 2),
                ("at most, ms", "bar_p99", 0), ("seconds at each rate", "seconds", 0),
            ])
    with_cost = [one for one in found if one["test"] == "steady" and one.get("cpu_server")]
    if with_cost:
        stacked = {one["stack"]: {key[4:]: value for key, value in one.items() if key.startswith("cpu_") and value} for one in with_cost}
        open(f"{folder}/cpu.svg", "w").write(bars("CPU of a turn, its jobs included", "ms", stacked))
        out += ["![CPU of a turn](cpu.svg)", ""]
    for test, name in [("steady", "latency"), ("soak", "soak")]:
        series = {}
        for stack in stacks:
            for q in (0.5, 0.99):
                series[f"{stack}, p{q * 100:.0f}"] = over_time(samples(folder, stack, test), q)
        if any(series.values()):
            open(f"{folder}/{name}.svg", "w").write(lines(f"Added by the server, {test}, in windows of {WINDOW_S} s", "ms", series))
            out += [f"![Added by the server over time]({name}.svg)", ""]
    out += ["## NPC conversations that are cut into", ""]
    table(out, found, "conversations", [
        ("conversations", "count", 0), ("lines said", "lines", 0), ("interrupts", "interrupts", 0), ("share that failed", "failed", 4),
        ("interrupt to acknowledgement, p50, ms", "ack_p50", 1), ("p95, ms", "ack_p95", 1), ("p99, ms", "ack_p99", 1),
        ("of 50 lines, p50, ms", "deep_p50", 1), ("of 50 lines, at most, ms", "deep_most", 1), *cpu,
    ])
    out += ["## Players who cut in and go back", ""]
    table(out, found, "barge-in", [
        ("sessions", "count", 0), ("turns", "turns", 0), ("replies cut", "cuts", 0), ("moves back", "rewinds", 0), ("share that failed", "failed", 4),
        ("cut to committed, p50, ms", "cut_p50", 1), ("p99, ms", "cut_p99", 1), ("back to rewound, p50, ms", "back_p50", 1), ("p99, ms", "back_p99", 1),
        ("of 50 turns, p50, ms", "deep_p50", 1), ("of 50 turns, at most, ms", "deep_most", 1), *cpu,
    ])
    out += ["## Idle sockets", ""]
    table(out, found, "idle", [("open at once", "sockets", 0), ("empty server, MiB", "empty_mib", 0), ("with them, MiB", "held_mib", 0), ("each, KiB", "kib_each", 1)])
    out += ["## Dialogues that are touched once", ""]
    table(out, found, "touched", [
        ("dialogues", "dialogues", 0), ("in so many seconds", "seconds", 0), ("idle actors go after, s", "idle_s", 0),
        ("actors in memory at most", "most", 0), ("left", "left", 0), ("after, s", "waited", 0),
        ("empty server, MiB", "empty_mib", 0), ("at the end of them, MiB", "held_mib", 0), ("after, MiB", "after_mib", 0),
    ])
    out += ["## A tenant beside one that floods", ""]
    table(out, found, "flood", [
        ("quota of each, requests/s", "quota", 0), ("p50 without, ms", "before_p50", 1), ("p50 beside the flood, ms", "after_p50", 1),
        ("p95 without, ms", "before_p95", 1), ("p95 beside the flood, ms", "after_p95", 1), ("times", "rise", 2),
        ("of the flood served", "served", 0), ("refused", "refused", 0),
    ])
    out += ["## Memories that grow", ""]
    table(out, found, "soak", turns)
    memory = {stack: [(row["at"], row["server_rss"] / 2**20) for row in samples(folder, stack, "soak")] for stack in stacks}
    if any(memory.values()):
        open(f"{folder}/memory.svg", "w").write(lines("Resident memory of the server, soak", "MiB", memory))
        out += ["![Resident memory](memory.svg)", ""]
    if os.path.exists(f"{folder}/where.md"):
        out += ["## Where a turn of the full stack goes", "", open(f"{folder}/where.md").read()]
    with open(f"{folder}/report.md", "w") as file:
        file.write("\n".join(out) + "\n")


main()

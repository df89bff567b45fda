"""sample.py BASE NAME=PID…: a line of JSON a second, and a last one when it is told to end (SIGTERM): the CPU seconds and resident bytes of each process with
its children, and the turns that the server has counted with the histogram of what it added to them."""

import json
import os
import re
import signal
import sys
import time
import urllib.request

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
BUCKET = re.compile(r'colloquy_turn_added_seconds_bucket\{le="([^"]+)"\} (\S+)')
KEPT = {
    "colloquy_turn_added_seconds_sum": "added_sum",
    "colloquy_sockets_open": "sockets",
    "colloquy_jobs_held": "jobs",
    "colloquy_outbox_rows": "outbox",
    "colloquy_ledger_writes": "writes",
}


def processes():
    """By pid: its parent, CPU seconds (those of children that have ended included) and resident bytes."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rsplit(") ", 1)[1].split()
        except OSError:
            continue
        found[int(name)] = (int(fields[1]), sum(map(int, fields[11:15])) / TICK, int(fields[21]) * PAGE)
    return found


def tree(root, found):
    members, grown = {root}, True
    while grown:
        more = {pid for pid, (parent, _, _) in found.items() if parent in members} - members
        members |= more
        grown = bool(more)
    return [found[pid] for pid in members if pid in found]


def metrics(base):
    kept = {}
    try:
        text = urllib.request.urlopen(f"{base}/metrics", timeout=2).read().decode()
    except OSError:
        return kept
    kept["added"] = [(bound, float(count)) for bound, count in BUCKET.findall(text)]
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name in KEPT:
            kept[KEPT[name]] = float(value)
    return kept


def main():
    base, *named = sys.argv[1:]
    roots = [(name, int(pid)) for name, pid in (pair.split("=") for pair in named)]
    began, ending = time.monotonic(), []
    signal.signal(signal.SIGTERM, lambda *_: ending.append(True))
    while True:
        last = bool(ending)
        found = processes()
        row = {"at": round(time.monotonic() - began, 2)}
        for name, pid in roots:
            members = tree(pid, found)
            row[f"{name}_cpu"] = round(sum(cpu for _, cpu, _ in members), 3)
            # Postgres processes share their buffers and count them individually, so the largest process is reported.
            sizes = [size for _, _, size in members]
            row[f"{name}_rss"] = max(sizes, default=0) if name == "postgres" else sum(sizes)
        row.update(metrics(base))
        print(json.dumps(row), flush=True)
        if last:
            return
        due = time.monotonic() + 1.0 - (time.monotonic() - began) % 1.0
        while not ending and time.monotonic() < due:
            time.sleep(min(0.05, max(0.0, due - time.monotonic())))


main()

"""where.py FOLDER TURNS [--markdown|--figures]: what the stores did for a turn, from FOLDER/statements.tsv (calls, ms, rows,
statement), commands.txt (Redis's commandstats) and metrics.txt. `--figures`: statements, trips and ms inside Postgres a turn."""

import re
import sys


def statements(path, turns):
    found = []
    with open(path) as file:
        for line in file:
            calls, ms, rows, query = line.rstrip("\n").split("\t", 3)
            found.append((float(calls) / turns, float(ms) / turns, float(rows) / turns, query))
    return found


def commands(path, turns):
    found = []
    with open(path) as file:
        for line in file:
            match = re.match(r"cmdstat_(\S+?):calls=(\d+),usec=(\d+)", line)
            if match:
                found.append((match[1], int(match[2]) / turns, int(match[3]) / 1000 / turns))
    return sorted(found, key=lambda command: -command[1])


def phases(path):
    sums, counts = {}, {}
    with open(path) as file:
        for line in file:
            match = re.match(r'colloquy_turn_phase_seconds_(sum|count)\{phase="(\w+)"\} (\S+)', line)
            if match:
                (sums if match[1] == "sum" else counts)[match[2]] = float(match[3])
    return {name: 1000 * sums[name] / counts[name] for name in sums if counts.get(name)}


def main():
    folder, turns = sys.argv[1], float(sys.argv[2])
    markdown = "--markdown" in sys.argv
    found = statements(f"{folder}/statements.tsv", turns)
    calls, ms = sum(one[0] for one in found), sum(one[1] for one in found)
    # BEGIN and the tenant share one message. COMMIT is a separate message.
    begun = sum(one[0] for one in found if one[3].upper().startswith("BEGIN"))
    transactions = sum(one[0] for one in found if one[3].upper().startswith("COMMIT"))
    head = (
        f"{calls:.1f} statements, {ms:.2f} ms inside Postgres and {transactions:.2f} write transactions a turn, its jobs included; "
        f"about {calls - begun:.1f} trips to Postgres"
    )
    if "--figures" in sys.argv:
        return print(f"{calls:.2f} {calls - begun:.2f} {ms:.3f}")
    sent = commands(f"{folder}/commands.txt", turns)
    spent = sorted(phases(f"{folder}/metrics.txt").items(), key=lambda phase: -phase[1])
    if markdown:
        print(head + ".\n\n| calls a turn | ms a turn | statement |\n| --- | --- | --- |")
        for count, took, _, query in found[:15]:
            print(f"| {count:.2f} | {took:.3f} | `{query[:140].replace('|', '¦').replace('`', '')}` |")
        print("\n| Redis command | calls a turn | ms a turn |\n| --- | --- | --- |")
        for name, count, took in sent[:8]:
            print(f"| `{name}` | {count:.2f} | {took:.4f} |")
        print("\n| phase | mean, ms |\n| --- | --- |")
        for name, took in spent:
            print(f"| {name} | {took:.2f} |")
        return
    print(f"  {head}")
    for count, took, _, query in found[:12]:
        print(f"    {count:7.2f} calls {took:7.3f} ms  {query[:110]}")
    print("  Redis, calls a turn: " + ", ".join(f"{name} {count:.2f} ({took * 1000:.0f} µs)" for name, count, took in sent[:6]))
    print("  phases, mean ms: " + ", ".join(f"{name} {took:.2f}" for name, took in spent))


main()

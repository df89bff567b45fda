#!/usr/bin/env python3
"""What a turn costs through the doors of the server: the OpenAI API beside REST, in turns on one server.

    load-tests/door-cost.py [ROUNDS]      (12 by default)

In each round, players say TURNS lines (300) over REST, and then as many by `POST /v1/chat/completions`, which carries the whole
talk each time. A talk has LENGTH turns (20). The doors change places from round to round. The mock model answers at once.
COLLOQUY_BIN names an existing binary. Python's standard library is enough.

Prints the CPU of the server for a turn, and the client's latency, of both doors. Fails if the CPU through the OpenAI API is
more than 1.1 times that over REST (the medians of the rounds).
"""
import http.client
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from local_http import free_port, send, wait_for

ROOT = pathlib.Path(__file__).resolve().parent.parent
TURNS = int(os.environ.get("TURNS", "300"))
LENGTH = int(os.environ.get("LENGTH", "20"))
PLAYERS = 2
MAX_RATIO = 1.1
CLOCK_TICK = os.sysconf("SC_CLK_TCK")


class Client:
    """One connection to the server, with a token."""

    def __init__(self, port, token):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}

    def post(self, path, body):
        self.connection.request("POST", path, json.dumps(body), self.headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{path}: {answer.status} {text.decode()}")
        return json.loads(text)


def line_of(player, number):
    return f"Player {player} says that song {number} of the evening was long."


def talk_over_rest(client, player, lines, latencies):
    body = {"world_id": "vale", "npc_id": "mira", "player_id": player, "playback": "ack"}
    session = client.post("/v1/sessions", body)["id"]
    for line in lines:
        began = time.monotonic()
        client.post(f"/v1/sessions/{session}/turns", {"text": line})
        latencies.append(time.monotonic() - began)


def talk_by_completions(client, player, lines, latencies):
    messages = []
    for line in lines:
        messages.append({"role": "user", "content": line})
        began = time.monotonic()
        answer = client.post("/v1/chat/completions", {"model": "vale/mira", "user": player, "messages": messages})
        latencies.append(time.monotonic() - began)
        messages.append(answer["choices"][0]["message"])


DOORS = {"REST": talk_over_rest, "chat completions": talk_by_completions}


def play(port, token, talk, player, first, count, latencies):
    client = Client(port, token)
    for number in range(first, first + count, LENGTH):
        lines = [line_of(player, nth) for nth in range(number, min(number + LENGTH, first + count))]
        talk(client, player, lines, latencies)


def cpu_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICK


def wait_for_jobs(base):
    """Waits until no job can run: what is left waits for the playback of the last replies."""
    import urllib.request

    last = None
    for _ in range(60):
        text = urllib.request.urlopen(f"{base}/metrics").read().decode()
        pending = [line for line in text.splitlines() if line.startswith("colloquy_jobs_pending")]
        if pending == last:
            return
        last = pending
        time.sleep(0.5)


def measure(port, token, server, door, first):
    """Returns the CPU milliseconds of a turn, its learning included, and the latencies in seconds."""
    base, latencies = f"http://127.0.0.1:{port}", []
    name = door.replace(" ", "-").lower()
    before = cpu_seconds(server)
    players = [
        threading.Thread(target=play, args=(port, token, DOORS[door], f"{name}-{nth}-{first}", first, TURNS // PLAYERS, latencies))
        for nth in range(PLAYERS)
    ]
    for player in players:
        player.start()
    for player in players:
        player.join()
    wait_for_jobs(base)
    turns = len(latencies)
    if turns != TURNS // PLAYERS * PLAYERS:
        sys.exit(f"{door}: {turns} turns were answered")
    return (cpu_seconds(server) - before) * 1000 / turns, latencies


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 12
    binary = os.environ.get("COLLOQUY_BIN")
    if not binary:
        subprocess.run(["cargo", "build", "--release", "--locked"], cwd=ROOT, check=True)
        binary = str(pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "colloquy")
    with tempfile.TemporaryDirectory() as folder:
        port, mock_port = free_port(), free_port()
        env = dict(
            os.environ,
            COLLOQUY__DATA_DIR=folder,
            COLLOQUY__SERVER__LISTEN=f"127.0.0.1:{port}",
            COLLOQUY__AUTH__HS256_SECRET="load-test-secret-load-test-secret",
            COLLOQUY__LLM__BASE_URL=f"http://127.0.0.1:{mock_port}/v1",
            COLLOQUY__LLM__MODEL="mock",
            COLLOQUY__DEMO__WORDS_PER_S="0",
            COLLOQUY__LIMITS__PLAYER_REQUESTS_PER_S="0",
            COLLOQUY__LIMITS__PLAYER_TURNS_PER_MIN="0",
            COLLOQUY__LIMITS__PLAYER_SESSIONS_PER_MIN="0",
            COLLOQUY__LIMITS__TENANT_REQUESTS_PER_S="0",
            COLLOQUY__TELEMETRY__LOG="warn",
        )
        mock = subprocess.Popen([binary, "mock-llm", "--listen", f"127.0.0.1:{mock_port}", "--intent", "chat"], stdout=subprocess.DEVNULL)
        server = subprocess.Popen([binary, "serve"], env=env, cwd=folder, stdout=subprocess.DEVNULL)
        try:
            wait_for(f"http://127.0.0.1:{mock_port}/", mock)
            wait_for(f"http://127.0.0.1:{port}/readyz", server)
            token = subprocess.run(
                [binary, "token", "--tenant", "demo", "--role", "backend", "--ttl", "2h"], env=env, cwd=folder, check=True, text=True, capture_output=True
            ).stdout.strip()
            sys.exit(compare(port, token, server, rounds))
        finally:
            for process in (server, mock):
                process.terminate()
                process.wait()


def compare(port, token, server, rounds):
    cpu = {door: [] for door in DOORS}
    latencies = {door: [] for door in DOORS}
    # The first round warms the server.
    for number in range(rounds + 1):
        for door in sorted(DOORS, reverse=number % 2 == 1):
            spent, taken = measure(port, token, server, door, number * TURNS)
            if number > 0:
                cpu[door].append(spent)
                latencies[door] += taken
    medians = {door: statistics.median(spent) for door, spent in cpu.items()}
    for door, spent in cpu.items():
        ordered = sorted(latencies[door])
        p50, p99 = (ordered[int(share * (len(ordered) - 1))] * 1000 for share in (0.5, 0.99))
        print(f"{door:>17}: {medians[door]:.2f} ms of CPU a turn ({min(spent):.2f} to {max(spent):.2f}); p50 {p50:.1f} ms, p99 {p99:.1f} ms")
    ratio = medians["chat completions"] / medians["REST"]
    print(f"{rounds} rounds of {TURNS} turns, talks of {LENGTH}: ratio {ratio:.2f} (at most {MAX_RATIO})")
    return 0 if ratio <= MAX_RATIO else "a turn by chat completions costs too much"


if __name__ == "__main__":
    main()

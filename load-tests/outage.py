#!/usr/bin/env python3
"""Players teach one NPC facts while the index or the embedder is away, and ask for each at once.

    load-tests/outage.py [SECONDS]      (300 by default, for each outage)

The embedder is the mock model's, which answers with errors meanwhile. With QDRANT_URL (the gRPC address of an empty Qdrant),
the index is there, behind a proxy of this script that refuses connections meanwhile; otherwise the index is the server's and
never away. PLAYERS (8) say a line every EVERY seconds (1). COLLOQUY_BIN names an existing binary. Python's standard library
is enough.

Prints, for the time before, during and after each outage: the time until a prompt has a fact, and the latency added by the
server, with the wait for memory. Fails if a fact needs more than two seconds, if the p99 is above its bar, if a line is
refused, or if a fact is there twice or not at all after the outage.
"""
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

from local_http import free_port, send, wait_for

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLAYERS = int(os.environ.get("PLAYERS", "8"))
EVERY = float(os.environ.get("EVERY", "1"))
# Seconds before and after each outage, and the bars.
AROUND, MAX_DELAY, MAX_ADDED_P99_MS = 20, 2.0, 50.0
# For the server to notice that what was away is back, and to move and compare what was taught.
SETTLE = 120


class Proxy:
    """Forwards connections to an address, and refuses and cuts them while it is closed."""

    def __init__(self, target):
        self.target, self.port, self.open_sockets = target, free_port(), []
        self.listener = None
        self.open()

    def open(self):
        self.listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self.accept, args=(self.listener,), daemon=True).start()

    def close(self):
        # Wakes the thread that accepts.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for side in self.open_sockets:
            try:
                side.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            side.close()
        self.open_sockets = []

    def accept(self, listener):
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            far = socket.create_connection(self.target)
            self.open_sockets += [near, far]
            for ends in [(near, far), (far, near)]:
                threading.Thread(target=self.copy, args=ends, daemon=True).start()

    @staticmethod
    def copy(source, sink):
        try:
            while data := source.recv(65_536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass


class Figures:
    """What the players measured in the current phase."""

    def __init__(self):
        self.lock = threading.Lock()
        self.phases, self.phase, self.refused = {}, None, []

    def enter(self, phase):
        with self.lock:
            self.phase = phase
            self.phases[phase] = {"delays": [], "added": []}

    def record(self, phase, kind, value):
        with self.lock:
            self.phases[phase][kind].append(value)


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def word_of(number):
    """A word of its own for each number, without a vowel pattern that the vocabulary knows."""
    letters = ""
    for _ in range(5):
        number, letter = divmod(number, 20)
        letters += "bcdfghjklmnpqrstvwxz"[letter] + "aeiou"[letter % 5]
    return letters


def play(base, token, player, figures, taught, stop):
    body = {"world_id": "ergen", "npc_id": "aria", "player_id": f"p{player}"}
    session = send("POST", f"{base}/v1/sessions", body, token)["id"]
    turns = f"{base}/v1/sessions/{session}/turns"
    number = player

    def say(phase, line):
        turn = send("POST", turns, {"text": line}, token)["turn"]
        trace = send("GET", f"{turns}/{turn}/trace", None, token)
        trace = trace.get("trace", trace)
        figures.record(phase, "added", trace["timings"]["added"])
        return trace

    while not stop.is_set():
        fruit, phase = f"{word_of(number)} pears", figures.phase
        number += PLAYERS
        try:
            say(phase, f"I like {fruit}.")
            taught.append(f"The player likes {fruit}.")
            began = time.monotonic()
            while True:
                candidates = say(phase, f"What about {fruit}?")["candidates"]
                content = f"The player likes {fruit}."
                if any(known["content"] == content and known["fate"] == "used" for known in candidates):
                    figures.record(phase, "delays", time.monotonic() - began)
                    break
                if time.monotonic() - began > 10 * MAX_DELAY:
                    figures.record(phase, "delays", float("inf"))
                    break
        except OSError as error:
            figures.refused.append(f"{phase}: {error}")
        stop.wait(EVERY)


def valid_contents(base, token):
    contents, after = [], ""
    while True:
        page = send("GET", f"{base}/v1/worlds/ergen/npcs/aria/facts?limit=200{after}", None, token)
        contents += [fact["content"] for fact in page["items"] if not fact.get("invalid_at")]
        if not page.get("next"):
            return contents
        after = "&after=" + urllib.parse.quote(page["next"])


def run_outages(base, token, outages, seconds):
    figures, taught, stop = Figures(), [], threading.Event()
    figures.enter("before")
    players = [threading.Thread(target=play, args=(base, token, n, figures, taught, stop)) for n in range(PLAYERS)]
    for player in players:
        player.start()
    time.sleep(AROUND)
    for name, (begin, end) in outages.items():
        figures.enter(f"{name} away")
        begin()
        time.sleep(seconds)
        end()
        figures.enter(f"{name} back")
        time.sleep(AROUND)
    stop.set()
    for player in players:
        player.join()
    faults = list(figures.refused)
    for phase, measured in figures.phases.items():
        delays, added = measured["delays"], measured["added"]
        print(
            f"{phase:>15}: {len(delays):5} facts, found after p50 {percentile(delays, .5):.2f} s, max {max(delays, default=0):.2f} s;"
            f" added p50 {percentile(added, .5):.1f} ms, p99 {percentile(added, .99):.1f} ms, max {max(added, default=0):.1f} ms"
        )
        if max(delays, default=0) > MAX_DELAY:
            faults.append(f"{phase}: a fact was found after {max(delays):.1f} s")
        if percentile(added, 0.99) > MAX_ADDED_P99_MS:
            faults.append(f"{phase}: p99 of the added latency {percentile(added, 0.99):.0f} ms")
    wanted, began = sorted(taught), time.monotonic()
    while (valid := sorted(valid_contents(base, token))) != wanted:
        if time.monotonic() - began > SETTLE:
            twice = {content for content in valid if valid.count(content) > 1}
            lost = set(wanted) - set(valid)
            faults.append(f"{len(twice)} facts are there twice, and {len(lost)} not at all")
            break
        time.sleep(1)
    else:
        print(f"{len(wanted)} facts, each once, {time.monotonic() - began:.0f} s after the last line")
    return faults


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 300
    binary = os.environ.get("COLLOQUY_BIN")
    if not binary:
        subprocess.run(["cargo", "build", "--release", "--locked"], cwd=ROOT, check=True)
        binary = str(ROOT / "target/release/colloquy")
    mock, server = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"

    def set_faults(faults):
        return lambda: send("POST", f"http://{mock}/control", {"faults": faults})

    outages = {"embedder": (set_faults(["embedding=500"]), set_faults([]))}
    settings = {}
    if qdrant := os.environ.get("QDRANT_URL"):
        address = urllib.parse.urlparse(qdrant)
        proxy = Proxy((address.hostname, address.port))
        settings["COLLOQUY__VECTORS__URL"] = f"http://127.0.0.1:{proxy.port}"
        outages["index"] = (proxy.close, proxy.open)
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("COLLOQUY__")},
            "COLLOQUY__AUTH__HS256_SECRET": "outage-secret-outage-secret-outage-secret",
            "COLLOQUY__DATA_DIR": f"{folder}/data",
            "COLLOQUY__SERVER__LISTEN": server,
            "COLLOQUY__TELEMETRY__LOG": "error",
            "COLLOQUY__LLM__BASE_URL": f"http://{mock}/v1",
            "COLLOQUY__LLM__MODEL": "mock",
            "COLLOQUY__EMBEDDER__BASE_URL": f"http://{mock}/v1",
            "COLLOQUY__EMBEDDER__MODEL": "text-embedding-3-small",
            "COLLOQUY__EMBEDDER__DIMENSIONS": "384",
            "COLLOQUY__LIMITS__PLAYER_TURNS_PER_MIN": "0",
            **settings,
        }
        processes = []
        try:
            options = ["--listen", mock, "--intent", "memory"]
            processes.append(subprocess.Popen([binary, "mock-llm", *options], stdout=subprocess.DEVNULL))
            wait_for(f"http://{mock}/", processes[-1])
            processes.append(subprocess.Popen([binary, "serve"], env=environment, cwd=folder, stdout=subprocess.DEVNULL))
            base = f"http://{server}"
            wait_for(f"{base}/readyz", processes[-1])
            made = [binary, "token", "--tenant", "demo", "--role", "backend", "--ttl", "2h"]
            token = subprocess.run(made, env=environment, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()
            send("PUT", f"{base}/v1/worlds/ergen", {"name": "Ergen"}, token)
            send("PUT", f"{base}/v1/worlds/ergen/npcs/aria", {"name": "Aria", "persona": {"description": "A guide."}}, token)
            faults = run_outages(base, token, outages, seconds)
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait()
    if faults:
        sys.exit("\n".join(faults[:20]))


if __name__ == "__main__":
    main()

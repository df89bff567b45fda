"""Ten turns with mira on a real small model, and what became of each: talk.py OUT.json"""
import json, os, subprocess, sys, time, urllib.request, urllib.error
from websockets.sync.client import connect

BASE, BIN = os.environ["BASE"], os.environ["BIN"]
SECONDS = float(os.environ.get("TALK_SECONDS", "600"))
LINES = [
    "Good evening. My name is Rowan and I come from Oakford.",
    "I like grapes more than any other fruit.",
    "I have a younger sister named Lina. She is a weaver.",
    "Please remember that I am allergic to peanuts.",
    "Do you have a room for tonight?",
    "What is my name?",
    "I promise to bring you a lantern on Friday.",
    "I don't like grapes any more. Now I like apples.",
    "What fruit do I like?",
    "Thank you, Mira. Good night.",
]


def token(role, *more):
    return subprocess.run([BIN, "token", "--tenant", "demo", "--role", role, *more, "--ttl", "2h"],
                          check=True, capture_output=True, text=True).stdout.strip()


def get(path, auth):
    request = urllib.request.Request(BASE + path, headers={"Authorization": "Bearer " + auth})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def main():
    backend = token("backend")
    out = {"turns": [], "events": []}
    began = time.time()
    with connect(BASE.replace("http", "ws") + "/v1/ws", additional_headers={"Authorization": "Bearer " + backend},
                 max_size=None, ping_interval=None) as ws:
        ws.send(json.dumps({"type": "session.create", "world_id": "vale", "npc_id": "mira", "player_id": "rowan",
                            "include": ["memory.updated", "state.changed"]}))
        session = None
        while session is None:
            event = json.loads(ws.recv(30))
            if event["type"] == "session.created":
                session = event["session_id"]
        for number, line in enumerate(LINES, 1):
            if time.time() - began > SECONDS:
                print("out of time after", number - 1, "turns")
                break
            said = time.time()
            row = {"line": line, "deltas": 0, "first_delta_s": None, "gaps": []}
            ws.send(json.dumps({"type": "player.say", "session_id": session, "text": line, "key": f"k{number}"}))
            last = None
            while True:
                try:
                    event = json.loads(ws.recv(150))
                except TimeoutError:
                    row["end"] = "nothing for 150 s"
                    break
                now = time.time() - said
                kind = event["type"]
                out["events"].append({"t": round(time.time() - began, 3), **event})
                if kind == "reply.delta":
                    row["deltas"] += 1
                    if last is None:
                        row["first_delta_s"] = round(now, 3)
                    else:
                        row["gaps"].append(now - last)
                    last = now
                if kind == "reply.done":
                    row["done_s"] = round(now, 3)
                    row["status"] = event.get("status")
                if kind == "turn.committed":
                    row["committed_s"] = round(now, 3)
                    row["end"] = "committed"
                    break
                if kind in ("error", "turn.failed"):
                    row["end"] = event
                    break
            gaps = sorted(row.pop("gaps"))
            row["gap_p50_ms"] = round(1e3 * gaps[len(gaps) // 2], 1) if gaps else None
            row["gap_max_ms"] = round(1e3 * gaps[-1], 1) if gaps else None
            out["turns"].append(row)
            print(json.dumps(row, ensure_ascii=False), flush=True)
        # Jobs run after the turn.
        until = time.time() + float(os.environ.get("SETTLE_SECONDS", "60"))
        while time.time() < until:
            jobs = get("/v1/jobs", backend)["items"]
            if not [j for j in jobs if j["status"] in ("pending", "running", "queued")]:
                break
            time.sleep(2)
        try:
            while True:
                out["events"].append({"t": round(time.time() - began, 3), **json.loads(ws.recv(0.2))})
        except TimeoutError:
            pass
    out["traces"] = []
    for number in range(1, len(out["turns"]) + 1):
        try:
            out["traces"].append(get(f"/v1/sessions/{session}/turns/{number}/trace", backend))
        except urllib.error.HTTPError as error:
            out["traces"].append({"error": error.code})
    out["saved"] = get(f"/v1/sessions/{session}/turns", backend)["items"]
    out["facts"] = get("/v1/worlds/vale/npcs/mira/facts?player_id=rowan&include_invalid=true", backend)["items"]
    out["summaries"] = get(f"/v1/sessions/{session}/summaries", backend)["items"]
    out["jobs"] = get("/v1/jobs", backend)["items"]
    out["usage"] = get("/v1/usage", backend)["items"]
    json.dump(out, open(sys.argv[1], "w"), ensure_ascii=False, indent=1)


main()

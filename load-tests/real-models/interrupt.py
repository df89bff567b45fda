"""Cuts a reply on a real model server, mid-stream and before its first token, and asks the server whether it stopped.
interrupt.py OUT.json; needs BASE, BIN and MODEL (the model server's address; it has /metrics and /slots)."""
import json, os, subprocess, sys, time, urllib.request
from websockets.sync.client import connect

BASE, BIN, MODEL = os.environ["BASE"], os.environ["BIN"], os.environ["MODEL"]


def slots():
    with urllib.request.urlopen(MODEL + "/slots", timeout=10) as answer:
        return sum(s["is_processing"] for s in json.load(answer))


def idle(limit=30):
    """Seconds until no slot works. Asked seldom: in llama.cpp every answered request wakes the waiting ones
    and puts off their look whether the caller is still there, so asking often hides a cancelled call."""
    began = time.time()
    while time.time() - began < limit:
        time.sleep(1.5)
        if slots() == 0:
            return round(time.time() - began, 1)
    return None


def main():
    backend = subprocess.run([BIN, "token", "--tenant", "demo", "--role", "backend", "--ttl", "2h"], check=True, capture_output=True, text=True).stdout.strip()
    out = []
    for case in ("after 10 deltas", "before the first delta", "the socket is closed after 10 deltas"):
        idle()
        with connect(BASE.replace("http", "ws") + "/v1/ws", additional_headers={"Authorization": "Bearer " + backend}, ping_interval=None) as ws:
            ws.send(json.dumps({"type": "session.create", "world_id": "vale", "npc_id": "mira", "player_id": "cut-" + str(len(out))}))
            session = None
            while session is None:
                event = json.loads(ws.recv(30))
                session = event.get("session_id")
            ws.send(json.dumps({"type": "player.say", "session_id": session, "text": f"Story {len(out)}: tell me a long one about the village, with many people and places in it." + " And then?" * 150 * case.startswith("before")}))
            row = {"case": case, "deltas": 0}
            if case.startswith("before"):
                time.sleep(float(os.environ.get("BEFORE_SECONDS", "1.5")))
                row["busy_before"] = slots()
                cut = time.time()
                ws.send(json.dumps({"type": "player.interrupt", "session_id": session}))
            while True:
                try:
                    event = json.loads(ws.recv(60))
                except TimeoutError:
                    row["end"] = "nothing for 60 s"
                    break
                if event["type"] == "reply.delta":
                    row["deltas"] += 1
                    if row["deltas"] == 10 and not case.startswith("before"):
                        row["busy_before"] = slots()
                        cut = time.time()
                        if case.startswith("the socket"):
                            break
                        ws.send(json.dumps({"type": "player.interrupt", "session_id": session}))
                if event["type"] == "reply.done":
                    row.update(done_after_ms=round(1e3 * (time.time() - cut), 1), status=event["status"], text=event["text"], usage=event["usage"])
                    row["model_idle_after_s"] = idle()
                    if not event["text"]:
                        row["end"] = "nothing was said: nothing is committed"
                        break
                if event["type"] == "turn.committed":
                    row["end"] = "committed"
                    break
                if event["type"] == "error":
                    row["end"] = event
                    break
        if case.startswith("the socket"):
            row["model_idle_after_s"] = idle()
            row["since_close_s"] = round(time.time() - cut, 2)
        out.append(row)
        print(json.dumps(row, ensure_ascii=False), flush=True)
        time.sleep(1)
    json.dump(out, open(sys.argv[1], "w"), ensure_ascii=False, indent=1)


main()

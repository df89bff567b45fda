"""Recall on real embeddings: recall.py SET.tsv OUT.json. Needs BASE and BIN; the server runs the scripted model."""
import json, os, statistics, subprocess, sys, time, urllib.error, urllib.parse, urllib.request
from datetime import datetime, timedelta, timezone

BASE, BIN = os.environ["BASE"], os.environ["BIN"]


def token(role, *more):
    return subprocess.run([BIN, "token", "--tenant", "demo", "--role", role, *more, "--ttl", "2h"],
                          check=True, capture_output=True, text=True).stdout.strip()


def call(method, path, auth, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(BASE + path, data, {"Authorization": "Bearer " + auth, "Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{method} {path}: {error.code} {error.read().decode()}")


def read(path):
    facts, asks = [], []
    for line in open(path, encoding="utf-8"):
        row = line.rstrip("\n").split("\t")
        if row[0] == "fact":
            facts.append(dict(zip("id lang kind importance subject predicate object content keywords".split(), row[1:])))
        elif row[0] == "ask":
            asks.append(dict(zip("lang how line answers".split(), row[1:])))
    return facts, asks


def rank(items, wanted, key):
    """The place of the best wanted fact; of equals, the middle place."""
    scores = {item["id"]: key(item["score"]) for item in items}
    best = None
    for one in wanted:
        mine = scores.get(one)
        if mine is None:
            continue
        above = sum(score > mine + 1e-9 for other, score in scores.items() if other not in wanted)
        equal = sum(abs(score - mine) <= 1e-9 for other, score in scores.items() if other not in wanted)
        place = 1 + above + equal / 2
        best = place if best is None else min(best, place)
    return best


def metrics(ranks):
    n = len(ranks)
    return {"n": n,
            "hit@1": round(sum(r is not None and r <= 1 for r in ranks) / n, 3),
            "hit@3": round(sum(r is not None and r <= 3 for r in ranks) / n, 3),
            "hit@8": round(sum(r is not None and r <= 8 for r in ranks) / n, 3),
            "mrr": round(sum(0 if r is None else 1 / r for r in ranks) / n, 3)}


def mix(recency, importance, relevance, keyword, floor=None, ceiling=None):
    def total(s):
        rel = s["relevance"] if floor is None else min(1, max(0, (s["cosine"] - floor) / (ceiling - floor)))
        return recency * s["recency"] + importance * s["importance"] + relevance * rel + keyword * s["keyword"]
    return total


KEYS = {
    "hybrid (total)": lambda s: s["total"],
    "relevance alone (cosine)": lambda s: s["cosine"],
    "keyword alone": lambda s: s["keyword"],
    "relevance .7 + keyword .3": mix(0, 0, .7, .3),
    "hybrid with importance .05, relevance .60": mix(.15, .05, .60, .20),
    "hybrid with recency/importance .05": mix(.05, .05, .70, .20),
}


def main():
    facts, asks = read(sys.argv[1])
    auth = token("backend")
    out = {"asks": []}
    npcs = ["ergen"]
    bare = call("GET", "/v1/worlds/vale/npcs/ergen", auth)
    body = {key: bare[key] for key in ("name", "language", "persona") if key in bare}
    call("PUT", "/v1/worlds/vale/npcs/ergen-bare", auth, body)
    npcs.append("ergen-bare")
    now = datetime.now(timezone.utc)
    report = {}
    for npc in npcs:
        ids, began = {}, time.time()
        for at, fact in enumerate(facts):
            made = call("POST", f"/v1/worlds/vale/npcs/{npc}/facts", auth, {
                "subject": fact["subject"], "predicate": fact["predicate"], "object": fact["object"],
                "content": fact["content"], "kind": fact["kind"], "importance": int(fact["importance"]),
                "keywords": fact["keywords"].split(",") if npc == "ergen" else [],
                # The facts' times spread over the last 200 days, independent of the answers.
                "valid_at": (now - timedelta(days=(at * 37) % 200, hours=1)).isoformat(),
            })
            ids[fact["id"]] = made["id"]
        print(f"{npc}: {len(facts)} facts in {time.time() - began:.1f} s")
        names = {value: key for key, value in ids.items()}
        rows = []
        for ask in asks:
            wanted = [ids[one] for one in ask["answers"].split(",")]
            began = time.time()
            items = call("GET", f"/v1/worlds/vale/npcs/{npc}/facts?limit=200&q=" + urllib.parse.quote(ask["line"]), auth)["items"]
            row = {**ask, "npc": npc, "ms": round(1e3 * (time.time() - began), 1), "found": len(items),
                   "ranks": {name: rank(items, wanted, key) for name, key in KEYS.items()},
                   "top": [{"id": names.get(item["id"], "?"), **{k: round(v, 3) for k, v in item["score"].items()}} for item in items[:3]],
                   "wanted": [{"id": names[item["id"]], **{k: round(v, 3) for k, v in item["score"].items()}} for item in items if item["id"] in wanted],
                   "raw": [{"id": names.get(item["id"], "?"), **item["score"]} for item in items]}
            rows.append(row)
        out["asks"] += rows
        groups = {"all": rows, "Korean questions (25, no cross)": [r for r in rows if r["lang"] == "ko" and r["how"] != "cross"],
                  **{how: [r for r in rows if r["how"] == how] for how in ("words", "category", "meaning", "cross")}}
        for group, members in groups.items():
            for name in KEYS:
                report[f"{npc} | {group} | {name}"] = metrics([r["ranks"][name] for r in members])
        print(f"GET facts?q=: p50 {statistics.median(r['ms'] for r in rows)} ms with the embedder")

    # The same questions as turns: the facts in the prompt, and the cost of recall.
    turns = []
    for at, ask in enumerate(asks):
        session = call("POST", "/v1/sessions", auth, {"world_id": "vale", "npc_id": "ergen", "player_id": f"p{at}"})["id"]
        turn = call("POST", f"/v1/sessions/{session}/turns", auth, {"text": ask["line"]})
        trace = call("GET", f"/v1/sessions/{session}/turns/1/trace", auth)
        contents = {f["content"]: f["id"] for f in facts}
        fates = {contents.get(c["content"], "?"): c["fate"] for c in trace["candidates"]}
        order = [contents.get(c["content"], "?") for c in trace["candidates"]]
        wanted = ask["answers"].split(",")
        turns.append({"line": ask["line"], "answers": wanted, "intent": trace["intent"], "source": trace["intent_source"],
                      "fate": {one: fates.get(one, "not a candidate") for one in wanted},
                      "used": sum(f == "used" for f in fates.values()), "candidates": len(order), "order": order[:5],
                      "timings": trace["timings"], "notes": trace.get("notes"), "reply": turn.get("reply") or turn.get("reply_text") or turn})
    out["turns"] = turns
    used = sum(bool({"used", "pinned", "in_state_block"} & set(t["fate"].values())) for t in turns)
    print(f"turns: the answer is in the prompt in {used} of {len(turns)}")
    for name in ("embed", "recall", "intent", "assemble", "added"):
        values = sorted(t["timings"][name] for t in turns)
        print(f"  {name}: p50 {statistics.median(values):.2f} ms, max {values[-1]:.2f} ms")
    out["report"] = report
    json.dump(out, open(sys.argv[2], "w"), ensure_ascii=False, indent=1)
    for name, row in report.items():
        print(f"{name:75} {row}")


main()

"""What the calls of a conversation did: summary.py TALK.json CALLS.jsonl"""
import json, statistics, sys
from collections import Counter, defaultdict

talk = json.load(open(sys.argv[1]))
calls = [json.loads(line) for line in open(sys.argv[2])]
tasks = defaultdict(list)
for call in calls:
    tasks[call["task"]].append(call)
print("turns:", Counter(str(t.get("end")) + "/" + str(t.get("status")) for t in talk["turns"]))
print("first delta s:", [t["first_delta_s"] for t in talk["turns"]], "deltas:", [t["deltas"] for t in talk["turns"]])
for task, rows in tasks.items():
    ends = Counter("no answer in time" if not r.get("answer") else (r.get("finish") or r.get("status")) for r in rows)
    print(f"{task}: {len(rows)} calls, {dict(ends)}, schema {Counter(r['schema'] for r in rows)}, seconds p50 {statistics.median(r['seconds'] for r in rows)} max {max(r['seconds'] for r in rows)}")
    if task != "reply":
        for r in rows[:12]:
            print("    ", r["seconds"], r.get("finish"), (r.get("usage") or {}).get("completion_tokens"), repr(r.get("answer"))[:400])
for at, trace in enumerate(talk["traces"], 1):
    print(at, trace.get("intent"), "|", trace.get("intent_source"), "|", {k: round(v) for k, v in trace.get("timings", {}).items()},
          "|", trace.get("notes"), "| prompt", trace.get("prompt_tokens"), "| used", [c["content"] for c in trace.get("candidates", []) if c["fate"] == "used"])
print("facts:", len(talk["facts"]))
for fact in talk["facts"]:
    print("    ", {k: fact[k] for k in ("subject", "predicate", "object", "content", "kind", "importance", "keywords", "invalid_reason")})
print("summaries:", [{k: s.get(k) for k in ("from_turn", "to_turn", "text", "source")} for s in talk["summaries"]])
print("jobs:", Counter((j["kind"], j["status"], j["attempts"], j["last_error"]) for j in talk["jobs"]))
print("usage:", [(u["task"], u["calls"], u["prompt_tokens"], u["cached_tokens"], u["completion_tokens"]) for u in talk["usage"]])

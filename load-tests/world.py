"""Fills the demo world for the test `world`: state, attributes, actions, a clock, places and 10,000 entries of lore.

    python3 world.py BASE TOKEN PLAYERS
"""
import json
import sys
import urllib.request

base, token, players = sys.argv[1], sys.argv[2], int(sys.argv[3])
WORLD = "/v1/worlds/vale"
ENTRIES, BATCH = 10_000, 1_000
NOUNS = ["lantern", "orchard", "ferry", "blacksmith", "market", "tower", "meadow", "bridge"]


def send(method, path, body=None):
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(base + path, data, headers, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


world = send("GET", WORLD)
kept = {key: world[key] for key in ("name", "premise", "language", "rules") if key in world}
settings = {
    **world.get("settings", {}),
    "places": ["Inn", "Bridge", "Old tower", "Market"],
    "adjacent": {"Inn": ["Bridge", "Market"], "Bridge": ["Old tower"]},
    "items": ["lantern", "rope", "key"],
    "state": [
        {"name": "siege", "type": "flag", "of": "world", "changed_by": "backend"},
        {"name": "bounty", "type": "number", "min": 0, "max": 500, "of": "players"},
    ],
    "actions": [
        {
            "name": f"bring_{thing}",
            "description": f"Brings {thing} to the player.",
            "npcs": ["mira"],
            "arguments": {"type": "object", "properties": {"count": {"type": "integer", "minimum": 1}}},
            "when": [{"not": {"attribute": "siege", "is": True}}],
        }
        for thing in ("soup", "bread", "ale")
    ],
    "clock": {"start": "1024-03-05 08:00", "ratio": 12},
}
send("PUT", WORLD, {**kept, "settings": settings})

entries = []
for n in range(ENTRIES):
    noun = NOUNS[n % len(NOUNS)]
    entry = {
        "name": f"landmark{n}",
        "keys": [f"way{n}"] + (["inn", "bridge", "fox"] if n < 4 else []),
        "content": f"A {noun} stood at place{n % 500} before the {noun} of landmark{n // 2} burned.",
    }
    entries.append(entry)
for start in range(0, ENTRIES, BATCH):
    book = {"spec": "lorebook_v3", "data": {"name": f"Landmarks {start}", "entries": entries[start : start + BATCH]}}
    send("POST", f"{WORLD}/lore:import", book)

events = [{"type": "location", "who": "mira", "to": "Inn"}, {"type": "event", "text": "A storm broke the old tower."}]
for player in range(1, players + 1):
    who = f"player:load-{player}"
    events += [
        {"type": "location", "who": who, "to": "Inn"},
        {"type": "item_gained", "who": who, "item": "lantern"},
        {"type": "relationship", "who": "mira", "whom": who, "kind": "trust", "value": 10},
    ]
for start in range(0, len(events), 50):
    send("POST", f"{WORLD}/events", {"events": events[start : start + 50]})

# The first turn of a world loads its lore. The test measures the later turns.
made = send("POST", "/v1/sessions", {"world_id": "vale", "npc_id": "mira", "player_id": "load-0"})
send("POST", f"/v1/sessions/{made['id']}/turns", {"text": "Is the way to the ferry safe?"})

"""Which refusals of allowed data tests/schemathesis.sh expects: those by rules that the OpenAPI document cannot state.

The server names every field at fault. Each fault must be of a rule below; any other refusal fails the run.
"""
import json
import re

import schemathesis
from schemathesis.openapi.checks import RejectedPositiveData

# Rules of many operations, by the words of the fault.
DETAILS = re.compile(
    # Characters that nobody sees: no pattern that every program reads can name them all.
    "has nothing that can be seen|, which nobody sees"
    # Conditions exclude each other.
    "|does not go together with If-Match"
    # A key came with another body before.
    "|this Idempotency-Key was used with another body"
)

# The models of the operator's list; weights with the sum 1, in place of a preset.
TIER = r"models\.\w+|recall"
# Two times of day differ, and `not` takes no `not`.
CONDITIONS = r"((layers\[\d+\]|tell)\.)?when"

# The fields with rules of their own, by operation.
FIELDS = {
    # A list continues after the row of its cursor.
    "GET /v1/npc-conversations": "after",
    "GET /v1/sessions": "after",
    # A span of at most 366 days.
    "GET /v1/usage": "from",
    "GET /v1/usage/worlds": "from",
    "GET /v1/worlds/{world}/usage": "from",
    # As for other lists; and a search (`q`) goes without filters.
    "GET /v1/worlds/{world}/npcs/{npc}/facts": "after|subject|kind|from|to|include_invalid|flagged",
    # A turn of a dialogue: both, or none.
    "GET /v1/worlds/{world}/state": "dialogue|turn",
    # Only a player's token stands for a player.
    "POST /v1/sessions": rf"player_id|settings\.({TIER})",
    # The operator's longest life of a token.
    "POST /v1/tokens": "ttl_s",
    # An address that the server may call.
    "PATCH /v1/webhooks/{webhook}": "url",
    "POST /v1/webhooks": "url",
    # One of three choices.
    "POST /v1/webhooks/{webhook}:replay": "message_id",
    # A moment that has passed.
    "POST /v1/tokens:revoke": "before",
    # The type says which fields are needed, and the world has its own words, items, places and attributes.
    "POST /v1/worlds/{world}/events": r"events\[\d+\]\.\w+",
    # Files of other programs, and the picture that gets a card.
    "POST /v1/worlds/{world}/npcs/{npc}:export": "body",
    "POST /v1/worlds/{world}/lore:import": "body",
    "POST /v1/worlds/{world}/npcs/{npc}:import": "body",
    # NPCs that exist.
    "POST /v1/worlds/{world}/npcs/{npc}/facts": "knowers",
    # Names that differ, NPCs that exist, and rows of either kind with the settings of a world.
    "PUT /v1/chat-models": rf"models\[\d+\]\.(name|world_id|npc_id|upstream|settings(\.(actions|clock|state|synonyms|{TIER}))?)",
    # Another NPC than the one that adopts.
    "POST /v1/worlds/{world}/npcs/{npc}:adopt": "npc_id",
    "PUT /v1/settings": TIER,
    # JSON Schemas of arguments, names of a calendar, values of an attribute's type, synonyms of listed words.
    "PUT /v1/worlds/{world}": rf"settings\.(actions|clock|state|synonyms|{TIER})",
    # Patterns of keys of this world.
    "PUT /v1/worlds/{world}/directives/{directive}": "keys",
    # `sticky` and `cooldown` have a sum of at most 8.
    "PUT /v1/worlds/{world}/lore/{lore}": f"{CONDITIONS}|sticky",
    "PUT /v1/worlds/{world}/npcs/{npc}": rf"model|settings\.({TIER})",
    "PUT /v1/worlds/{world}/npcs/{npc}/scenarios/{scenario}": CONDITIONS,
}


def has_whole_float(value):
    """Whether a whole number is written as `5.0`: an integer for a JSON Schema, and none for the server."""
    if isinstance(value, dict):
        return any(map(has_whole_float, value.values()))
    if isinstance(value, list):
        return any(map(has_whole_float, value))
    return isinstance(value, float) and value.is_integer()


def is_expected(case, response):
    try:
        problem = json.loads(response.content)
    except ValueError:
        return False
    faults = problem.get("errors") or [{"param": problem.get("param") or "", "detail": problem["detail"]}]
    fields = re.compile(FIELDS.get(case.operation.label, "(?!)"))
    by_rule = (DETAILS.search(fault["detail"]) or fields.fullmatch(fault["param"]) for fault in faults)
    return all(by_rule) or has_whole_float(case.body)


@schemathesis.hook
def filter_failure(context, failure, case, response):
    return not (isinstance(failure, RejectedPositiveData) and is_expected(case, response))

#!/usr/bin/env python3
"""Plays a role-play of 50 turns against the mock model, and measures how much of each prompt a provider's cache can serve.

    load-tests/prompt-cost.py [FOLDER]      (./prompt-cost by default)

The play runs twice: with the whole history in every prompt, and with the default settings (summaries, and 8,000 tokens at
most). Writes FOLDER/prompt-cost.svg and prints a table. COLLOQUY_BIN names an existing binary. Python's standard library is
enough.
"""
import os
import pathlib
import random
import subprocess
import sys
import tempfile

from local_http import free_port, send, wait_for

sys.path.insert(0, str(pathlib.Path(__file__).parent / "report"))
import plots  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
TURNS, FROM = 50, 5
# The model's name selects the vocabulary that counts the tokens.
MODEL = "gpt-4.1-mini"
# From the price lists of the providers in November 2026: US dollars per million tokens of a prompt, read from the cache, and
# written to the cache; and the fewest tokens that the provider caches.
PRICES = {
    "GPT-4.1 mini": (0.40, 0.10, 0.40, 1_024),
    "GPT-5 mini": (0.25, 0.025, 0.25, 1_024),
    "Claude Haiku 4.5": (1.00, 0.10, 1.25, 4_096),
}
WHOLE_HISTORY = {
    "COLLOQUY__PROMPT__TOTAL_TOKENS": "64000",
    "COLLOQUY__PROMPT__HISTORY_TOKENS": "60000",
    "COLLOQUY__SUMMARIES__FIRST_AFTER_TURNS": "1000",
    "COLLOQUY__SUMMARIES__FORCE_TURNS": "1000",
    "COLLOQUY__SUMMARIES__FORCE_TOKENS": "60000",
}

PLACES = ["the Dark Forest", "the Silver Citadel", "the old mill", "the goblin camp", "the drowned chapel", "the salt road"]
THINGS = ["the flame sword", "a healing potion", "the broken seal", "a raven's feather", "the captain's map", "a silver key"]
PEOPLE = ["Krug, the goblin king", "Ergen", "the ferrywoman Ise", "old Tamsin", "the captain of the citadel", "the miller's son"]
ASKED = [
    "I walk toward {place} and keep my hand on {thing}. What do I hear?",
    "\"Tell me what {person} wanted with {thing},\" I say, and watch your face.",
    "I put {thing} on the table between us. \"Where did this come from?\"",
    "We rest near {place}. I ask you about {person} and the night of the collapse.",
    "I whisper: \"{person} is behind us. Do we run to {place}, or do we fight?\"",
]
SAID = [
    "Aria lifts the lantern until the light reaches {place}, and for a moment neither of you speaks.",
    "\"I have seen {thing} once before,\" she says, \"and the hand that held it did not shake as yours does.\"",
    "Somewhere behind the trees a branch breaks, and she counts the breaths until the silence comes back.",
    "She kneels, draws a line in the wet ash with one finger, and marks {place} with a small cross.",
    "\"{person} never forgave the citadel for the winter of the collapse. Remember that before you make a promise.\"",
    "The rain comes harder now, and the water runs from her hood onto the stones of the path.",
    "\"If it comes to a fight, stay on my left,\" she says. \"My right eye is the better one, but not by night.\"",
    "She turns {thing} over twice, finds the mark that she feared, and gives it back without a word.",
    "From {place} comes the sound of a bell that nobody has rung for eleven years.",
    "\"We can reach {place} before dawn, if you trust the marsh more than you trust {person}.\"",
]
WORLD_SENTENCES = [
    "The Vale of Ergen lies between two mountain chains, and its roads end at the Silver Citadel.",
    "Eleven years ago, in the night of the collapse, the seal below the citadel broke and the northern half of the city sank.",
    "Since then goblins hold the Dark Forest, and King Krug sells the right of way to those who can pay in iron.",
    "Magic exists, but each spell costs its speaker a memory, so that old mages do not know their own names.",
    "The ferry at the drowned chapel is the only safe crossing, and the ferrywoman Ise takes no coins, only stories.",
    "Nobody in the vale says the name of the dead queen after dark.",
    "The Silver Citadel stands on three terraces: the ward of the guard above, the market in the middle, and below it the drowned quarter, whose towers still show at low water.",
    "Its lord, the old regent Caspar Vey, has not left the upper terrace since the collapse, and his orders come down on slips of blue paper.",
    "The guard wears grey, counts its arrows every evening, and closes the northern gate at the first bell of the night, whoever stands before it.",
    "Bells are rung for three things only: a fire, a death of the regent's house, and goblins on the salt road.",
    "The Dark Forest is older than the citadel. Its firs grow so close that snow does not reach the ground, and its paths move by a few steps each year.",
    "In the middle of the forest lies the goblin camp, a village of tents and pits around a fallen oak, with a forge that burns day and night.",
    "Goblins keep their word to the letter and no further, bury their dead with a coin under the tongue, and call every stranger by the name of an animal.",
    "King Krug took his crown from a human captain. He limps, laughs loudly, hates flutes, and remembers every debt, his own first of all.",
    "The salt road runs from the old mill past the drowned chapel to the sea. Carters travel it in groups of six and pay the ferrywoman with a story that she has not heard.",
    "At the old mill lives the miller's son, who grinds no flour any more but keeps a list of all who passed, with the hour and the weather.",
    "Old Tamsin sells herbs, maps and small lies on the market. What she tells for nothing is false; what she tells for silver is true.",
    "The broken seal was made of five pieces. Two are in the citadel, one is with the goblins, one lies under the water of the drowned quarter, and nobody knows of the fifth.",
    "Whoever holds a piece of the seal dreams of a stair that leads down, and wakes with wet feet.",
    "The dead queen was the regent's sister. She opened the seal, or she died to close it; in taverns there are fights about that.",
    "Healing potions come from one cellar in the ward, are blue, taste of iron, and close a wound at the price of a fever in the next night.",
    "A flame sword burns only in the hand of somebody who has lost a home, and its light does not warm.",
    "Silver turns black in the forest within a day, so that goblins take no silver, and citadel folk wear it to know how near they are.",
    "Ravens belong to the king of the goblins. A single feather is a safe-conduct for one person and one night.",
    "In winter the marsh freezes for eleven days, and in these days the vale trades, marries, and settles its feuds.",
    "The year is counted from the collapse, in months of the fish, the reed, the wolf and the bell, and each begins at a new moon.",
]
PERSONA_SENTENCES = [
    "Aria is a scout of the Silver Citadel, thirty-one years old, with one grey eye and one that was taken by the fire of the collapse.",
    "She left the guard after the captain let the northern gate close on her brother, and she has not gone back to the gate since.",
    "She knows every path of the Dark Forest, reads tracks better than letters, and distrusts whoever smiles before speaking.",
    "She owes Krug, the goblin king, a life, which is a debt that she tells nobody and pays in small favours.",
    "In danger she becomes calm and exact, and afterwards her hands shake so much that she hides them under her cloak.",
    "She loves old songs, salted plums and the hour before sunrise, and she hates bells, locked doors and promises.",
    "As a child she kept the lists of the tide at the drowned quarter, and to this day she knows the hour by the smell of the water.",
    "Her brother Joren was a bell-ringer. He was the last who came from the salt road in the night of the collapse, and she heard him knock.",
    "The captain who kept the gate closed was Isolde Marr, her teacher with the bow. They have spoken twice since then, both times about arrows.",
    "When Aria was wounded in the first winter after the collapse, goblins found her, and Krug had her carried to the edge of the forest. Why he did so, she has never asked.",
    "She carries a short bow of yew, two knives, a lantern with one cracked pane, a coil of thin rope, and a flute without a mouthpiece that was her brother's.",
    "She has a habit of counting: steps, breaths, windows, the fingers of those who sit across from her. When she loses count, something is wrong.",
    "She believes that places remember. She does not enter a house without touching its doorpost, and she asks a path for leave before she takes a stone from it.",
    "She reads slowly and aloud, with one finger under the words, and becomes angry if somebody offers to read for her.",
    "She was to marry the miller's son once. It came to nothing, without a quarrel, and he still writes the hour of her visits in red.",
    "She does not believe that the queen was a traitor, because the queen once gave her a pair of boots and tied the laces herself.",
    "Of magic she knows one spell, which puts out a fire. She has spoken it twice, and does not know which two memories it took.",
    "She pays for information with errands and not with coins, and she keeps both ends of such a bargain in a knotted string on her belt.",
    "Strangers call her cold. Those who have walked with her know that she gives her cloak away first and eats last.",
    "She fears deep water, since in dreams somebody knocks from below. She does not speak of this, but she will always take the long way around a lake.",
    "Her plan, if she has one, is to find the fifth piece of the seal before the regent does, and to throw it where nobody dives.",
    "With children and animals she speaks as with grown people, and with grown people who flatter her she speaks not at all.",
    "She lies badly, and therefore says nothing where others would lie.",
    "She narrates what the party sees, hears and smells in full sentences, and she never decides what the player does.",
]


def fill(sentence, chance):
    return sentence.format(place=chance.choice(PLACES), thing=chance.choice(THINGS), person=chance.choice(PEOPLE))


def play(binary, settings):
    """Returns the traces of the turns, and the tokens of the answers."""
    chance = random.Random(7)
    mock, server = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("COLLOQUY__")},
            "COLLOQUY__AUTH__HS256_SECRET": "prompt-cost-secret-prompt-cost-secret",
            "COLLOQUY__DATA_DIR": f"{folder}/data",
            "COLLOQUY__SERVER__LISTEN": server,
            "COLLOQUY__TELEMETRY__LOG": "warn",
            "COLLOQUY__LLM__BASE_URL": f"http://{mock}/v1",
            "COLLOQUY__LLM__MODEL": MODEL,
            "COLLOQUY__LIMITS__PLAYER_TURNS_PER_MIN": "0",
            "COLLOQUY__LIMITS__PLAYER_CUTS_PER_MIN": "0",
            **settings,
        }
        mock_options = ["--listen", mock, "--intent", "memory", "--facts-per-turn", "0.5"]
        processes = []
        try:
            processes.append(subprocess.Popen([binary, "mock-llm", *mock_options], stdout=subprocess.DEVNULL))
            wait_for(f"http://{mock}/", processes[-1])
            processes.append(subprocess.Popen([binary, "serve"], env=environment, cwd=folder, stdout=subprocess.DEVNULL))
            base = f"http://{server}"
            wait_for(f"{base}/readyz", processes[-1])
            made = [binary, "token", "--tenant", "demo", "--role", "backend", "--ttl", "1h"]
            token = subprocess.run(made, env=environment, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()
            return play_turns(base, token, mock, chance)
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait()


def play_turns(base, token, mock, chance):
    places = [place.removeprefix("the ") for place in PLACES]
    world = {
        "name": "Vale of Ergen",
        "premise": " ".join(WORLD_SENTENCES),
        "rules": WORLD_SENTENCES[3:6],
        "settings": {"places": places, "items": ["flame sword", "healing potion", "silver key"]},
    }
    send("PUT", f"{base}/v1/worlds/ergen", world, token)
    persona = {
        "description": " ".join(PERSONA_SENTENCES),
        "speech_style": "Full sentences in the present tense, five to ten a turn, with spoken words in quotation marks.",
        "boundaries": ["Never decides what the player does.", "Never names the dead queen after dark."],
    }
    send("PUT", f"{base}/v1/worlds/ergen/npcs/aria", {"name": "Aria", "persona": persona}, token)
    events = [
        {"type": "location", "who": "player:hero", "to": places[0]},
        {"type": "location", "who": "aria", "to": places[0]},
        {"type": "item_gained", "who": "player:hero", "item": "flame sword"},
    ]
    send("POST", f"{base}/v1/worlds/ergen/events", {"events": events}, token)
    session = send("POST", f"{base}/v1/sessions", {"world_id": "ergen", "npc_id": "aria", "player_id": "hero"}, token)["id"]
    turns = f"{base}/v1/sessions/{session}/turns"
    traces = []
    for number in range(1, TURNS + 1):
        reply = " ".join(fill(sentence, chance) for sentence in chance.sample(SAID, 7))
        send("POST", f"http://{mock}/control", {"reply": reply})
        line = fill(ASKED[number % len(ASKED)], chance)
        send("POST", turns, {"text": line}, token)
        trace = send("GET", f"{turns}/{number}/trace", None, token)
        traces.append(trace.get("trace", trace))
    return traces


def cost(traces, price):
    """Returns the price of the replies' prompts in dollars: with a cache, and without."""
    prompt, read, write, fewest = price
    cached = 0.0
    for trace in traces:
        size, unchanged = trace["prompt_tokens"], trace.get("unchanged_tokens", 0)
        served = unchanged if unchanged >= fewest else 0
        cached += served * read + (size - served) * (write if size >= fewest else prompt)
    whole = sum(trace["prompt_tokens"] for trace in traces) * prompt
    return cached / 1_000_000, whole / 1_000_000


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "prompt-cost")
    folder.mkdir(parents=True, exist_ok=True)
    binary = os.environ.get("COLLOQUY_BIN")
    if not binary:
        subprocess.run(["cargo", "build", "--release", "--locked"], cwd=ROOT, check=True)
        binary = f"{os.environ.get('CARGO_TARGET_DIR', ROOT / 'target')}/release/colloquy"
    shares = {}
    for name, settings in [("whole history", WHOLE_HISTORY), ("default settings", {})]:
        traces = play(binary, settings)
        sizes = [trace["prompt_tokens"] for trace in traces]
        share = [100 * trace.get("unchanged_tokens", 0) / trace["prompt_tokens"] for trace in traces]
        shares[name] = list(enumerate(share, 1))
        mean = sum(share[FROM - 1 :]) / len(share[FROM - 1 :])
        grown = sizes[TURNS - 1] / sizes[14]
        print(f"{name}: {mean:.1f} % of the prompt tokens unchanged, on average from turn {FROM}")
        print(f"  prompt of turn {FROM}: {sizes[FROM - 1]} tokens, of 15: {sizes[14]}, of {TURNS}: {sizes[-1]} ({grown:.2f} times turn 15)")
        for model, price in PRICES.items():
            cached, whole = cost(traces, price)
            print(f"  {model}: ${cached:.3f} for the prompts of {TURNS} turns, ${whole:.3f} without a cache ({100 * (1 - cached / whole):.0f} % less)")
    plot = plots.lines("Share of the prompt that a cache can serve", "%", shares).replace(" s</text>", "</text>")
    (folder / "prompt-cost.svg").write_text(plot)
    print(f"plot: {folder / 'prompt-cost.svg'}")


if __name__ == "__main__":
    main()

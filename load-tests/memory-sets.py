#!/usr/bin/env python3
"""Turns public data into sets for `colloquy eval`, and reads its report.

    load-tests/memory-sets.py supersession FILE.jsonl > set.jsonl     MemoryAgentBench, FactConsolidation (single hop)
    load-tests/memory-sets.py precision FOLDER > set.jsonl            precisionMemBench: beliefs.seed.json, *.cases.json
    load-tests/memory-sets.py chats FOLDER [odd|even] > set.jsonl     REALTALK, LoCoMo: Chat_*.json, all or each second file
    colloquy eval set.jsonl --json report.json
    load-tests/memory-sets.py newest report.json                  is the newest of contradicting facts shown, and first?

The data are not part of this repository. Python's standard library is enough.
"""
import datetime
import json
import pathlib
import re
import sys

SMALL_WORDS = set("a an the is are was in of to what which who did does do by with for on at".split())


def words(text):
    return [word for word in re.findall(r"\w+", text.lower()) if word not in SMALL_WORDS]


def dump(kind, row):
    print(json.dumps({kind: row}, ensure_ascii=False))


def supersession(path):
    """Numbered facts, of which the later one counts. The answer is the newest fact that has the answer's words."""
    for line in open(path, encoding="utf-8"):
        source = json.loads(line)
        if "_sh_" not in source["source"]:
            continue
        memory = source["source"].replace("factconsolidation_", "").replace("_", "-")
        facts = re.findall(r"^(\d+)\. (.+)$", source["context"], re.M)
        for number, content in facts:
            at = f"2026-01-{1 + int(number) // 1440:02d}T{int(number) // 60 % 24:02d}:{int(number) % 60:02d}:00Z"
            dump("fact", {"id": f"{memory}-{number}", "memory": memory, "content": content, "valid_at": at})
        for index, (question, answers) in enumerate(zip(source["questions"], source["answers"])):
            asked = set(words(question))

            def fit(fact):
                number, content = fact
                named = any(f" {' '.join(words(answer))} " in f" {' '.join(words(content))} " for answer in answers)
                return (named, len(asked & set(words(content))), int(number))

            number = max(facts, key=fit)[0]
            row = {"id": f"{memory}-q{index}", "memory": memory, "text": question, "answers": [f"{memory}-{number}"]}
            dump("question", {**row, "tags": [memory]})


def precision(folder):
    """Beliefs as facts; cases as questions. A case without relevant beliefs is a line without an answer."""
    folder = pathlib.Path(folder)
    beliefs = json.loads((folder / "beliefs.seed.json").read_text(encoding="utf-8"))
    scopes = {}
    for belief in beliefs:
        if belief["user_id"] != "test-user" or belief["superseded_by"] or belief["resolved_at"]:
            continue
        # An NPC has one memory, so each scope is a memory. What holds everywhere is in all of them.
        for scope in belief["scope"]:
            for memory in ("code", "writing") if scope == "user:universal" else (scope.split(":")[1],):
                scopes.setdefault(memory, set()).add(belief["_id"])
                row = {
                    "id": f"{memory}.{belief['_id']}"[:64],
                    "memory": memory,
                    "content": belief["content"],
                    "keywords": [belief["canonical_name"].replace("_", " ")] + belief["aliases"],
                    "valid_at": belief["created_at"],
                }
                dump("fact", row)
    cases = json.loads((folder / "retrieval.cases.json").read_text(encoding="utf-8"))
    for case in cases:
        memory = case["scope"][0].split(":")[1]
        relevant = case["expect"].get("relevantBeliefs", {})
        if len(case["scope"]) != 1 or memory not in scopes or "shouldOnlyInclude" not in relevant:
            continue
        if not case["query"].strip():
            continue
        wanted = set(relevant["shouldOnlyInclude"])
        for part in ("pinnedFacts", "openQuestions"):
            wanted.update(case["expect"].get(part, {}).get("mustInclude", []))
        row = {"id": case["caseId"][:64], "memory": memory, "text": case["query"][:2000]}
        answers = [f"{memory}.{belief}"[:64] for belief in sorted(wanted & scopes[memory])]
        dump("question", {**row, "tags": [case["category"][:64]], "answers": answers})


def chats(folder, half="all"):
    """Each message of a chat as a fact. A question is answered by the messages that its evidence names."""
    paths = sorted(pathlib.Path(folder).glob("Chat_*.json"), key=lambda path: int(path.stem.split("_")[1]))
    for number, path in enumerate(paths, 1):
        if half != "all" and half != ("odd" if number % 2 else "even"):
            continue
        source = json.loads(path.read_text(encoding="utf-8"))
        chat = source.get("conversation", source)
        memory = f"chat-{number}"
        known = set()
        sessions = [name for name in chat if re.fullmatch(r"session_\d+", name)]
        for session in sorted(sessions, key=lambda name: int(name.split("_")[1])):
            for message in chat[session]:
                row = message_fact(memory, message, chat.get(f"{session}_date_time", ""))
                if row and row["id"] not in known:
                    known.add(row["id"])
                    dump("fact", row)
        for index, question in enumerate(source["qa"]):
            evidence = re.findall(r"D\d+:\d+", " ".join(question["evidence"]))
            answers = sorted({f"{memory}-{name}" for name in evidence} & known)
            row = {"id": f"{memory}-q{index}", "memory": memory, "text": question["question"], "answers": answers}
            if answers:
                dump("question", {**row, "tags": [memory, f"category-{question['category']}"]})


def message_fact(memory, message, session_time):
    text = message.get("clean_text", message.get("text", "")).strip()
    if not text:
        return None
    row = {"id": f"{memory}-{message['dia_id']}", "memory": memory, "content": text[:2000]}
    for form in ("%d.%m.%Y, %H:%M:%S", "%I:%M %p on %d %B, %Y"):
        try:
            at = datetime.datetime.strptime(message.get("date_time", session_time), form)
        except ValueError:
            continue
        row["valid_at"] = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {**row, "subject": message["speaker"]}


def newest(report_path):
    report = json.loads(pathlib.Path(report_path).read_text(encoding="utf-8"))
    shown = first = 0
    for question in report["by_question"]:
        answer = question["answers"][0]["fact"]
        shown += answer in question["shown"]
        first += question["answers"][0]["place"] == 1
    count = len(report["by_question"])
    print(f"{count} questions: the newest fact is shown for {shown / count:.3f}, and first for {first / count:.3f}")


if __name__ == "__main__":
    commands = {"supersession": supersession, "precision": precision, "chats": chats, "newest": newest}
    if not sys.argv[1:] or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](*sys.argv[2:])

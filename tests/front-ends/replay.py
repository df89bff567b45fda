#!/usr/bin/env python3
"""Replays a recorded front end against a running server, as that front end would behave.

    BASE_URL=http://127.0.0.1:8080/v1 TOKEN=... MODEL=npc-mira tests/front-ends/replay.py sillytavern.jsonl
    ... replay.py sillytavern.jsonl --chat talk --chat stop      only these chats
    ... replay.py sillytavern.jsonl --transcripts lines.json     also writes what each chat shows at its end

A recorded body repeats the replies of its recording. Each reply is replaced by the text that this server has sent, and
a stopped reply by the part that arrived before the stop. So edits, swipes, and stops mean the same here. Needs only
Python 3.9. The last line counts passed and failed requests.
"""

import argparse
import http.client
import json
import os
import pathlib
import re
import sys
import urllib.parse

TIMEOUT_S = 60


class Server:
    """One API address with a token. Each request has a connection of its own, so a stop closes nothing else."""

    def __init__(self, base_url, token):
        self.url = urllib.parse.urlsplit(base_url.rstrip("/"))
        self.token = token

    def request(self, method, path, body, headers=None):
        connection = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=TIMEOUT_S)
        fields = {"Content-Type": "application/json", **(headers or {})}
        if method != "OPTIONS":
            fields["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        connection.request(method, self.url.path + path, data, fields)
        return connection, connection.getresponse()


def events(response):
    """Yields the decoded JSON of each event. Ends at `[DONE]`; a stream without one is an error."""
    for raw in response:
        line = raw.decode().rstrip("\n")
        if not line or line.startswith(":"):
            continue
        if line.endswith("\r"):
            raise AssertionError("a line ends with a carriage return, which RisuAI does not read")
        if not line.startswith("data: "):
            raise AssertionError(f"a line that some front ends do not read: {line[:60]!r}")
        if line == "data: [DONE]":
            return
        yield json.loads(line[len("data: ") :])
    raise AssertionError("the stream ended without [DONE]")


def streamed(response, stop_after):
    """The text of each choice. With `stop_after`, closes after so many characters of the first choice."""
    kind = response.getheader("Content-Type", "")
    if "text/event-stream" not in kind:
        raise AssertionError(f"content type {kind!r}: {response.read(300)!r}")
    texts, reasons = {}, {}
    for event in events(response):
        if event.get("error"):
            raise AssertionError(f"error in the stream: {event['error']}")
        if not isinstance(event.get("choices"), list):
            raise AssertionError("an event has no list of choices")
        if len(event["choices"]) > 1:
            raise AssertionError("an event has several choices, of which SillyTavern reads one")
        for choice in event["choices"]:
            if not isinstance(choice.get("delta"), dict):
                raise AssertionError("a choice has no delta")
            index = choice["index"]
            texts[index] = texts.get(index, "") + (choice["delta"].get("content") or "")
            if choice.get("finish_reason"):
                reasons[index] = choice["finish_reason"]
        if stop_after is not None and len(texts.get(0, "")) >= stop_after:
            return texts, None
    return texts, reasons


def answered(response):
    answer = json.loads(response.read())
    texts = {choice["index"]: choice["message"]["content"] for choice in answer["choices"]}
    reasons = {choice["index"]: choice["finish_reason"] for choice in answer["choices"]}
    return texts, reasons


def substitute(value, replies):
    """Replaces each recorded reply in the text of a message, longest first, in one pass."""
    if not replies:
        return value
    pattern = "|".join(re.escape(recorded) for recorded in sorted(replies, key=len, reverse=True))
    return re.sub(pattern, lambda match: replies[match.group()], value)


def ask(server, line, body):
    """Sends one request, and returns the text of each choice."""
    stop_after = len(line["sent"]) if "sent" in line else None
    connection, response = server.request("POST", "/chat/completions", body)
    try:
        if response.status != 200:
            raise AssertionError(f"status {response.status}: {response.read(300).decode(errors='replace')}")
        if stop_after == 0:
            return {0: ""}
        texts, reasons = streamed(response, stop_after) if body.get("stream") else answered(response)
        count = body.get("n") or 1
        if sorted(texts) != list(range(count)):
            raise AssertionError(f"choices {sorted(texts)} of {count}")
        if any(not text.strip() for text in texts.values()):
            raise AssertionError("a reply without text")
        if stop_after is None and sorted(reasons) != list(range(count)):
            raise AssertionError(f"finish reasons {reasons}")
        return texts
    finally:
        connection.close()


def shown(text):
    """A reply as the front ends keep it: without blanks at the ends of its lines."""
    return "\n".join(part.rstrip() for part in text.split("\n"))


def simple_request(server, line):
    path = "/models" if line["kind"] == "models" else "/chat/completions"
    connection, response = server.request(line["method"], path, None, line.get("headers"))
    try:
        if line["kind"] == "models":
            identifiers = [entry["id"] for entry in json.loads(response.read())["data"]]
            if os.environ["MODEL"] not in identifiers:
                raise AssertionError(f"models: {identifiers}")
            return
        allowed = (response.getheader("Access-Control-Allow-Headers") or "").lower()
        if response.status not in (200, 204):
            raise AssertionError(f"status {response.status}")
        if response.getheader("Access-Control-Allow-Origin") not in ("*", line["headers"]["Origin"]):
            raise AssertionError("the origin is not allowed")
        if "authorization" not in allowed or "content-type" not in allowed:
            raise AssertionError(f"allowed headers: {allowed!r}")
    finally:
        connection.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("recording")
    parser.add_argument("--chat", action="append", help="replay only this chat")
    parser.add_argument("--transcripts", help="write what each chat shows at its end to this file")
    options = parser.parse_args()
    path = pathlib.Path(options.recording)
    if not path.exists():
        path = pathlib.Path(__file__).parent / path
    server = Server(os.environ["BASE_URL"], os.environ["TOKEN"])

    passed = failed = 0
    replies, transcripts = {}, {}
    for number, text in enumerate(path.read_text().splitlines(), 1):
        line = json.loads(text)
        chat = line["chat"]
        if options.chat and chat not in options.chat:
            continue
        name = f"{path.name}:{number} {chat}: {line['action']}"
        try:
            if line["method"] != "POST":
                simple_request(server, line)
            else:
                body = json.loads(text)["body"]
                body["model"] = os.environ["MODEL"]
                known = replies.setdefault(chat, {})
                for message in body["messages"]:
                    message["content"] = substitute(message["content"], known)
                texts = ask(server, line, body)
                if "sent" in line:
                    # A reply that was stopped before its first word has no text to replace later.
                    if line["sent"]:
                        known[shown(line["sent"])] = shown(texts[0])
                else:
                    for index, recorded in enumerate(line["reply"]):
                        known[shown(recorded)] = shown(texts[index])
                if line["kind"] != "aside":
                    said = [m for m in body["messages"] if m["role"] != "system" and "example_" not in m.get("name", "")]
                    transcripts[chat] = {"messages": said, "reply": shown(texts[0]), "kind": line["kind"]}
        except (AssertionError, KeyError, ValueError, OSError, http.client.HTTPException) as error:
            failed += 1
            print(f"FAIL {name}: {type(error).__name__}: {error}", flush=True)
        else:
            passed += 1
            print(f"PASS {name}", flush=True)
    if options.transcripts:
        pathlib.Path(options.transcripts).write_text(json.dumps(transcripts, ensure_ascii=False, indent=1) + "\n")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())

"""The official client for Python on the Realtime API: a talk, a cancelled and a truncated reply, and an error."""

import os

from openai import OpenAI

client = OpenAI(base_url=os.environ["BASE_URL"], api_key=os.environ["TOKEN"], max_retries=0)
MODEL = os.environ["MODEL"]


def check(name, run):
    try:
        run()
        print(f"PASS python realtime: {name}", flush=True)
    except Exception as error:  # A failed check is counted, and the others run.
        print(f"FAIL python realtime: {name}: {type(error).__name__}: {str(error).splitlines()[:1]}", flush=True)


def until(connection, kind):
    for event in connection:
        if event.type == kind:
            return event
        assert event.type != "error", event.error
    raise AssertionError(f"closed before {kind}")


def say(connection, text):
    content = [{"type": "input_text", "text": text}]
    connection.conversation.item.create(item={"type": "message", "role": "user", "content": content})
    connection.response.create()


def run(connection):
    reply = {}

    def session():
        created = until(connection, "session.created")
        assert created.session.model == MODEL and created.session.type == "realtime", created
        connection.session.update(
            session={"type": "realtime", "output_modalities": ["text"], "instructions": "It is a rainy evening."}
        )
        assert until(connection, "session.updated").session.instructions == "It is a rainy evening."

    def streamed_reply():
        say(connection, "Good evening. Who are you?")
        text = ""
        for event in connection:
            assert event.type != "error", event
            if event.type == "response.output_text.delta":
                text += event.delta
            if event.type == "response.done":
                break
        item = event.response.output[0]
        assert event.response.status == "completed" and item.content[0].text == text != "", event
        assert event.response.usage.output_tokens > 0, event
        reply.update(id=item.id, text=text)

    def truncated_reply():
        item = connection.conversation.item
        item.truncate(item_id=reply["id"], content_index=0, audio_end_ms=3_600_000)
        assert until(connection, "conversation.item.truncated").item_id == reply["id"]
        item.truncate(item_id=reply["id"], content_index=0, audio_end_ms=400)
        assert until(connection, "conversation.item.truncated").audio_end_ms == 400
        item.retrieve(item_id=reply["id"])
        text = until(connection, "conversation.item.retrieved").item.content[0].text
        assert text and text != reply["text"] and reply["text"].startswith(text), text

    def cancelled_reply():
        say(connection, "Tell me of the winter.")
        until(connection, "response.created")
        connection.response.cancel()
        done = until(connection, "response.done")
        assert done.response.status in ("cancelled", "completed"), done
        if done.response.status == "completed":
            # The reply had ended before.
            assert next(iter(connection)).error.code == "response_cancel_not_active"

    def refused_audio():
        connection.input_audio_buffer.append(audio="AAAA")
        refused = next(iter(connection))
        assert refused.type == "error" and refused.error.code == "not_supported", refused
        say(connection, "Are you still there?")
        assert until(connection, "response.done").response.status == "completed"

    check("the session", session)
    check("a streamed reply", streamed_reply)
    check("a truncated reply", truncated_reply)
    check("a cancelled reply", cancelled_reply)
    check("audio is refused, and the talk goes on", refused_audio)


with client.realtime.connect(model=MODEL) as opened:
    run(opened)

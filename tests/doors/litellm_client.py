"""LiteLLM with its generic provider: one answer, one streamed talk, an error.

LiteLLM reads a `/` in a model's name as the prefix of a provider, so the name gets the prefix `openai/` here.
"""

import os

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
os.environ.setdefault("LITELLM_TELEMETRY", "False")

import litellm  # noqa: E402

litellm.telemetry = False
litellm.suppress_debug_info = True
MODEL = os.environ["MODEL"]
SETTINGS = {
    "api_base": os.environ["BASE_URL"],
    "api_key": os.environ["TOKEN"],
    "max_retries": 0,
    "num_retries": 0,
    "timeout": 60,
}


def check(name, run):
    try:
        run()
    except Exception as error:  # every failure is one line
        print(f"FAIL {name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}", flush=True)
    else:
        print(f"PASS {name}", flush=True)


def expect(condition, message):
    if not condition:
        raise AssertionError(message)


messages = [{"role": "user", "content": "Good evening. Who are you?"}]


def one_answer():
    answer = litellm.completion(model=f"openai/{MODEL}", messages=messages, **SETTINGS)
    text = answer.choices[0].message.content
    expect(text.strip(), "no text")
    expect(answer.usage.total_tokens > 0, "no usage")
    messages.append({"role": "assistant", "content": text})
    messages.append({"role": "user", "content": "And what is your trade?"})


def streamed_turn():
    stream = litellm.completion(
        model=f"openai/{MODEL}",
        messages=messages,
        stream=True,
        stream_options={"include_usage": True},
        **SETTINGS,
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    expect(text.strip(), "no text")
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices and chunk.choices[0].finish_reason]
    expect(reasons in (["stop"], ["length"]), f"finish reasons {reasons}")
    whole = litellm.stream_chunk_builder(chunks, messages=messages)
    expect(whole.choices[0].message.content == text, "the collected stream has another text")


def unknown_model():
    try:
        litellm.completion(model="openai/no-such-npc", messages=messages, **SETTINGS)
    except litellm.NotFoundError:
        return
    raise AssertionError("the request was accepted")


check("litellm: one answer", one_answer)
check("litellm: a streamed second turn", streamed_turn)
check("litellm: an unknown model is an error 404", unknown_model)

"""Servers of text."""

from typing import Any

from adapters.requests import AppRequest, ModelRequest
from adapters.wire.anthropic import requests as anthropic
from adapters.wire.openai import chat as wire
from adapters.wire.responses import requests as responses
from tests.hostile.sample import EVENTS, JSON, Sample, dump, events

USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
CHOICE = {"index": 0, "message": {"role": "assistant", "content": "Hello, said the server."}, "finish_reason": "stop"}
CHAT = dump(id="1", object="chat.completion", created=1, model="m", choices=[CHOICE], usage=USAGE)
PIECES = [dump(id="1", choices=[{"index": 0, "delta": {"content": word}}]) for word in ("Hello, ", "said ", "it.")]
LAST = dump(id="1", choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])
STREAM = events(*PIECES, LAST, dump(id="1", choices=[], usage=USAGE), b"[DONE]")
OVERLOADED = dump(error={"message": "no", "type": "server_error", "param": None, "code": None})


def chat(**fields: Any) -> ModelRequest:
    return wire.decode_chat(dump(model="m", messages=[{"role": "user", "content": "hi"}], **fields))


def completion(**fields: Any) -> ModelRequest:
    return wire.decode_completion(dump(model="m", prompt="hi", **fields))


def respond(**fields: Any) -> ModelRequest:
    return responses.decode_native(dump(model="m", input="hi", **fields))


OPENAI = [
    Sample(
        "chat",
        chat,
        CHAT,
        wrong={
            "an error inside": OVERLOADED,
            "no choices": dump(id="1"),
            "choices of another kind": dump(choices="x"),
        },
    ),
    Sample(
        "chat stream",
        lambda: chat(stream=True),
        STREAM,
        EVENTS,
        wrong={
            "an error inside": events(OVERLOADED, b"[DONE]"),
            "no end": events(*PIECES, LAST)[:-2] + b"\n",
            "chunks of another kind": events(b'{"choices": 7}'),
            "not a stream": CHAT,
        },
    ),
    Sample(
        "completion",
        completion,
        dump(id="1", choices=[{"index": 0, "text": "Hello, said the server.", "finish_reason": "stop"}], usage=USAGE),
        wrong={"an error inside": OVERLOADED},
    ),
    Sample(
        "embeddings",
        lambda: wire.decode_embedding(dump(model="m", input="hi")),
        dump(object="list", data=[{"object": "embedding", "index": 0, "embedding": [0.5] * 16}], usage=USAGE),
        wrong={"an error inside": OVERLOADED, "no data": dump(object="list"), "data of another kind": dump(data={})},
    ),
    Sample(
        "rerank",
        lambda: AppRequest(model="m", path="/v1/rerank", content_type=JSON, body=dump(model="m", query="q")),
        dump(results=[{"index": 0, "relevance_score": 0.5}]),
        options={"passes": ["rerank"]},
        opaque=True,
        open_ended=True,
    ),
    Sample(
        "chat over completions",
        chat,
        dump(id="1", choices=[{"index": 0, "text": "Hello, said the server.", "finish_reason": "stop"}], usage=USAGE),
        options={"only": "completions", "chat_template": "chatml"},
        wrong={"an error inside": OVERLOADED, "no choices": dump(id="1")},
    ),
    Sample(
        "responses",
        respond,
        dump(id="r", status="completed", output=[{"type": "message"}], usage={"input_tokens": 1, "output_tokens": 1}),
        options={"responses": True},
        wrong={
            "an error inside": dump(id="r", status="failed", error={"code": "server_error", "message": "no"}),
            "no output": dump(id="r", status="completed"),
        },
    ),
    Sample(
        "responses stream",
        lambda: respond(stream=True),
        events(dump(type="response.created"), dump(type="response.output_text.delta", delta="Hello, said the server."),
               dump(type="response.completed", response={"output": []})),
        EVENTS,
        options={"responses": True},
        wrong={
            "an error inside": events(dump(type="error", code="server_error", message="no")),
            "failed": events(dump(type="response.created"), dump(type="response.failed", response={"error": {}})),
        },
    ),
]  # fmt: skip


ANTHROPIC_USAGE = {"input_tokens": 1, "output_tokens": 1}
MESSAGE = {"id": "1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": ANTHROPIC_USAGE}
CONTENT = {"content": [{"type": "text", "text": "Hello, said the server."}], "stop_reason": "end_turn"}


def anthropic_event(type_: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (type_.encode(), dump(type=type_, **fields))


DELTA = anthropic_event("content_block_delta", index=0, delta={"type": "text_delta", "text": "Hello, said the server."})
BEGUN = anthropic_event("message_start", message=MESSAGE) + anthropic_event(
    "content_block_start", index=0, content_block={"type": "text", "text": ""}
)
ENDED = anthropic_event(
    "message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2}
) + anthropic_event("message_stop")
REFUSED = dump(type="error", error={"type": "api_error", "message": "no"})


def message(**fields: Any) -> ModelRequest:
    encoded = dump(model="m", max_tokens=5, messages=[{"role": "user", "content": "hi"}], **fields)
    return anthropic.decode_message(encoded)


OF_MESSAGES = {"an error inside": REFUSED, "no content": dump(type="message"), "content of another kind":
               dump(**{**MESSAGE, "content": 7})}  # fmt: skip
OF_EVENTS = {
    "an error inside": anthropic_event("error", error={"type": "api_error", "message": "no"}),
    "no end": BEGUN + DELTA,
    "events of another kind": anthropic_event("message_start", message=7),
}
ANTHROPIC = [
    Sample("chat", chat, dump(**{**MESSAGE, **CONTENT}), wrong=OF_MESSAGES),
    Sample("chat stream", lambda: chat(stream=True), BEGUN + DELTA + ENDED, EVENTS, wrong=OF_EVENTS),
    Sample("message", message, dump(**{**MESSAGE, **CONTENT}), wrong=OF_MESSAGES),
    Sample("message stream", lambda: message(stream=True), BEGUN + DELTA + ENDED, EVENTS, wrong=OF_EVENTS),
]


GENERATED = {"finish_reason": "length", "generated_tokens": 3, "seed": None}
TOKENS = [{"token": {"id": i, "text": word, "logprob": -0.1, "special": False}} for i, word in enumerate("abc")]
TGI = [
    Sample(
        "completion",
        completion,
        dump(generated_text="Hello, said the server.", details={**GENERATED, "prefill": [], "tokens": []}),
        wrong={
            "an error inside": dump(error="no", error_type="generation"),
            "no text": dump(details=GENERATED),
            "a text of another kind": dump(generated_text=7, details=GENERATED),
        },
    ),
    Sample(
        "completion stream",
        lambda: completion(stream=True),
        events(*[dump(**one) for one in TOKENS], dump(**TOKENS[0], generated_text="abca", details=GENERATED)),
        EVENTS,
        wrong={
            "an error inside": events(dump(error="no", error_type="generation")),
            "no end": events(*[dump(**one) for one in TOKENS]),
            "events of another kind": events(dump(token=7)),
        },
    ),
]

TEXT = {"data_type": "TYPE_STRING", "dims": [1]}
CONFIG = dump(
    name="m",
    max_batch_size=0,
    input=[{"name": "text_input", **TEXT}, {"name": "max_tokens", "data_type": "TYPE_INT32", "dims": [1]},
           {"name": "stream", "data_type": "TYPE_BOOL", "dims": [1]}],
    output=[{"name": "text_output", **TEXT}],
    model_transaction_policy={"decoupled": True},
)  # fmt: skip
OF_TRITON = {"/v2/models/m/config": CONFIG}
TRITON_GENERATE = [
    Sample(
        "completion",
        completion,
        dump(model_name="m", model_version="1", text_output="Hello, said the server."),
        good=OF_TRITON,
        wrong={
            "an error inside": dump(error="no"),
            "no text": dump(model_name="m"),
            "another kind": dump(text_output={}),
        },
    ),
    Sample(
        "completion stream",
        lambda: completion(stream=True),
        events(*[dump(model_name="m", text_output=word) for word in ("Hello, ", "said ", "it.")]),
        EVENTS,
        good=OF_TRITON,
        open_ended=True,
        wrong={"an error inside": events(dump(error="no")), "another kind": events(dump(text_output={}))},
    ),
]

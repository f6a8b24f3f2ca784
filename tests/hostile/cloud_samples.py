"""Gemini's API, Vertex AI and Bedrock."""

from adapters.requests import ModelRequest
from adapters.wire.anthropic import requests as anthropic
from adapters.wire.bedrock.event_stream import encode_event, encode_exception
from adapters.wire.gemini import requests as gemini
from adapters.wire.openai import chat as openai
from tests.hostile.sample import EVENTS, FRAMES, Sample, dump, events
from tests.hostile.text_samples import chat, message

TEXT = "Hello, said the server."
EMBEDDED = dump(model="m", input="hi")
HUGE = [1e300] * 4
"""Numbers that fit in no vector."""
NO_COUNTS = {"a text": "x", "a negative one": -1, "a huge one": 10**30, "a list": [1]}


def content(*, stream: bool = False) -> ModelRequest:
    return gemini.decode_content(dump(contents=[{"role": "user", "parts": [{"text": "hi"}]}]), "m", stream=stream)


def answered(text: str, counted: object = 1, **fields: object) -> bytes:
    candidate = {"index": 0, "content": {"role": "model", "parts": [{"text": text}]}, **fields}
    usage = {"promptTokenCount": counted, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return dump(candidates=[candidate], usageMetadata=usage, modelVersion="m", responseId="1")


WHOLE = answered(TEXT, finishReason="STOP")
CHUNKS = [answered(word) for word in ("Hello, ", "said ", "it.")]
GENERATED = events(*CHUNKS, answered("", finishReason="STOP"))
INTERNAL = dump(error={"code": 500, "message": "no", "status": "INTERNAL"})
OF_ANSWERS = {
    "an error inside": INTERNAL,
    "no candidates": dump(modelVersion="m"),
    "candidates of another kind": dump(candidates="x"),
    "a huge index": answered(TEXT, index=10**30),
}
OF_REPORTS = {name: answered(TEXT, count, finishReason="STOP") for name, count in NO_COUNTS.items()} | {
    "likelihoods of another kind": answered(
        TEXT, finishReason="STOP", logprobsResult={"chosenCandidates": [{"token": "a"}], "topCandidates": [7]}
    )
}
OF_CHUNKS = {
    "an error inside": events(INTERNAL),
    "an error after a chunk": events(CHUNKS[0], INTERNAL),
    "an error in place of an event": events(CHUNKS[0]) + INTERNAL,
    "no end": events(*CHUNKS),
    "a part of the last event": events(*CHUNKS) + b'data: {"candidates": [{"fini',
    "chunks of another kind": events(dump(candidates=7)),
}
GENERATES = [
    Sample("chat", chat, WHOLE, wrong=OF_ANSWERS, unreadable=OF_REPORTS),
    Sample(
        "chat stream",
        lambda: chat(stream=True),
        GENERATED,
        EVENTS,
        wrong=OF_CHUNKS,
        unreadable={name: events(body) for name, body in OF_REPORTS.items()},
    ),
    Sample("content", content, WHOLE, wrong=OF_ANSWERS),
    Sample("content stream", lambda: content(stream=True), GENERATED, EVENTS, wrong=OF_CHUNKS),
    Sample(
        "count",
        lambda: anthropic.decode_count(dump(model="m", messages=[{"role": "user", "content": "hi"}])),
        dump(totalTokens=7),
        wrong={"an error inside": INTERNAL, "no count": dump(), "a huge one": dump(totalTokens=10**30)},
    ),
]


def embedded(right: bytes, **wrong: bytes) -> Sample:
    return Sample("embeddings", lambda: openai.decode_embedding(EMBEDDED), right, wrong={"an error": INTERNAL, **wrong})


def predicted(values: object) -> bytes:
    return dump(predictions=[{"embeddings": {"values": values, "statistics": {"token_count": 1}}}])


GEMINI = [
    *GENERATES,
    embedded(
        dump(embeddings=[{"values": [0.5] * 16}]),
        none=dump(embeddings=[]),
        another=dump(embeddings={}),
        huge=dump(embeddings=[{"values": HUGE}]),
    ),
]
VERTEX = [
    *GENERATES,
    embedded(predicted([0.5] * 16), none=dump(predictions=[]), another=predicted("x"), huge=predicted(HUGE)),
]

COUNTED = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}
NO_REPORTS: dict[str, object] = {name: {**COUNTED, "inputTokens": count} for name, count in NO_COUNTS.items()} | {
    "no object": 7,
    "details of another kind": {**COUNTED, "cacheDetails": [{"ttl": ["5m"], "inputTokens": 1}, {"ttl": {}}, 7]},
}


def conversed(usage: object = COUNTED) -> bytes:
    message = {"role": "assistant", "content": [{"text": TEXT}]}
    return dump(output={"message": message}, stopReason="end_turn", usage=usage, metrics={"latencyMs": 1})


OF_USAGE = {name: conversed(usage) for name, usage in NO_REPORTS.items()}
OF_CONVERSE = {
    "an error inside": dump(message="no"),
    "no output": dump(stopReason="end_turn", usage=COUNTED),
    "no message": dump(output={}, stopReason="end_turn", usage=COUNTED),
    "content of another kind": dump(output={"message": {"content": 7}}, stopReason="end_turn"),
    "a broken call": dump(output={"message": {"content": []}}, stopReason="malformed_tool_use"),
}


def delta(index: int = 0, **fields: object) -> bytes:
    return encode_event("contentBlockDelta", dump(contentBlockIndex=index, delta=fields))


STARTED = encode_event("messageStart", dump(role="assistant"))
SPOKEN = b"".join([delta(text=word) for word in ("Hello, ", "said ", "it.")])
STOPPED = encode_event("contentBlockStop", dump(contentBlockIndex=0)) + encode_event(
    "messageStop", dump(stopReason="end_turn")
)
METADATA = encode_event("metadata", dump(usage=COUNTED, metrics={"latencyMs": 1}))
STREAMED = STARTED + SPOKEN + STOPPED + METADATA
OF_METADATA = {
    name: STARTED + SPOKEN + STOPPED + encode_event("metadata", dump(usage=usage)) for name, usage in NO_REPORTS.items()
}
FAILED = encode_exception("internalServerException", dump(message="no"))
OF_FRAMES = {
    "an exception first": FAILED,
    "an exception inside": STARTED + SPOKEN + FAILED,
    "no start": SPOKEN + STOPPED + METADATA,
    "no end": STARTED + SPOKEN,
    "a part of a frame": STARTED + SPOKEN + STOPPED[:-1],
    "a wrong checksum": STARTED + SPOKEN[:-1] + b"\0" + STOPPED,
    "a wrong checksum of the lengths": STARTED + b"\0\0\0\x20\0\0\0\x05\0\0\0\0",
    "lengths that do not fit": STARTED + b"\0" * 16,
    "deltas of another kind": STARTED + encode_event("contentBlockDelta", dump(delta=7)),
    "no frames": events(WHOLE),
}
BEDROCK = [
    Sample("chat", chat, conversed(), wrong=OF_CONVERSE, unreadable=OF_USAGE),
    Sample("chat stream", lambda: chat(stream=True), STREAMED, FRAMES, wrong=OF_FRAMES, unreadable=OF_METADATA),
    Sample("message", message, conversed(), wrong=OF_CONVERSE, unreadable=OF_USAGE),
    Sample("message stream", lambda: message(stream=True), STREAMED, FRAMES, wrong=OF_FRAMES, unreadable=OF_METADATA),
    Sample(
        "count",
        lambda: anthropic.decode_count(dump(model="m", messages=[{"role": "user", "content": "hi"}])),
        dump(inputTokens=7),
        wrong={"an error inside": dump(message="no"), "a huge one": dump(inputTokens=10**30)},
    ),
    Sample(
        "embeddings",
        lambda: openai.decode_embedding(EMBEDDED),
        dump(embedding=[0.5] * 16, inputTextTokenCount=1),
        options={"family": "titan-v2"},
        wrong={
            "an error inside": dump(message="no"),
            "another kind": dump(embedding="x"),
            "huge": dump(embedding=HUGE),
        },
        unreadable={"a huge count": dump(embedding=[0.5] * 16, inputTextTokenCount=10**30)},
    ),
]

"""Answers of every wire, in the parts that are compared."""

from typing import Any

import msgspec
import pytest

from adapters.tensors import Inferred, Tensor
from adapters.types import ANTHROPIC, APP, OIP_GRPC, OIP_JSON, PREDICT_V1, Form
from adapters.wire.oip import proto_responses, responses
from config.schema.config import CompareConfig
from gateway.features.shadow.answers import WholeAnswer, compared, content_of

encode = msgspec.json.Encoder().encode
EVENTS = "text/event-stream"


def events(*values: Any, end: bytes = b"data: [DONE]\n\n") -> bytes:
    return b"".join(b"data: " + encode(value) + b"\n\n" for value in values) + end


def chunk(delta: dict[str, Any]) -> dict[str, Any]:
    return {"id": "1", "choices": [{"index": 0, "delta": delta}]}


CALL = {"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a"'}}
CALLED = {"id": "x", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
CHAT = {"choices": [{"index": 0, "message": {"content": "hello", "tool_calls": [CALLED]}}]}
PARTS = {"choices": [{"message": {"content": [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]}}]}
STREAM = events(
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "hel"}),
    chunk({"content": "lo"}),
    chunk({"tool_calls": [CALL]}),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]}),
)
MESSAGE = {"content": [{"type": "text", "text": "hello"}, {"type": "tool_use", "name": "f", "input": {"a": 1}}]}
OUTPUT = [
    {"type": "message", "content": [{"type": "output_text", "text": "hello"}]},
    {"type": "function_call", "name": "f", "arguments": '{"a": 1}'},
]
MESSAGE_EVENTS = events(
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello"}},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "name": "f", "input": {}}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"a": 1}'}},
    end=b"",
)
RESPONSE_EVENTS = events(
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "hel"},
    {"type": "response.completed", "response": {"output": OUTPUT}},
    end=b"",
)


@pytest.mark.parametrize(
    "answer",
    [
        WholeAnswer(200, "chat", data=encode(CHAT)),
        WholeAnswer(200, "chat", content_type=EVENTS, is_stream=True, data=STREAM),
        WholeAnswer(200, "chat", ANTHROPIC, data=encode(MESSAGE)),
        WholeAnswer(200, "chat", ANTHROPIC, EVENTS, True, MESSAGE_EVENTS),
        WholeAnswer(200, "chat", data=encode({"output": OUTPUT})),
        WholeAnswer(200, "chat", content_type=EVENTS, is_stream=True, data=RESPONSE_EVENTS),
    ],
    ids=["chat", "stream", "message", "message stream", "response", "response stream"],
)
def test_generated_answers_have_a_text_and_tool_calls(answer: WholeAnswer) -> None:
    content = content_of(answer)
    assert (content.kind, content.texts) == ("text", ("hello",))
    (tool,) = content.tools
    assert tool.name == "f"
    assert msgspec.json.decode(tool.arguments) == {"a": 1}


def test_completions_and_parts_are_texts() -> None:
    completion = {"choices": [{"index": 0, "text": "one"}, {"index": 1, "text": "two"}]}
    assert content_of(WholeAnswer(200, "text_completion", data=encode(completion))).texts == ("one", "two")
    assert content_of(WholeAnswer(200, "chat", data=encode(PARTS))).texts == ("hello",)


def test_ids_times_and_usage_do_not_count() -> None:
    one, other = (
        {**CHAT, "id": id, "created": time, "usage": {"total_tokens": time}} for id, time in (("a", 1), ("b", 2))
    )
    answers = [WholeAnswer(200, "chat", data=encode(value)) for value in (one, other)]
    assert compared(answers[0], answers[1], CompareConfig()).differences == {}


def inferred(*values: float) -> Inferred:
    import struct

    data = struct.pack(f"<{len(values)}f", *values)
    return Inferred("m", outputs=[Tensor("scores", "FP32", (len(values),), data)])


@pytest.mark.parametrize("wire", ["json", "binary", "grpc", "stream"])
def test_tensors_of_each_wire_are_compared_within_tolerances(wire: str) -> None:
    def answer(*values: float) -> WholeAnswer:
        if wire == "grpc":
            return WholeAnswer(200, "infer", OIP_GRPC, data=proto_responses.encode_infer_response(inferred(*values)))
        body, length = responses.encode_response(inferred(*values), wire == "binary")
        if wire == "stream":
            return WholeAnswer(200, "infer", OIP_JSON, EVENTS, True, b"data: " + body + b"\n\n")
        return WholeAnswer(200, "infer", Form("oip-http", length), data=body)

    config = CompareConfig()
    assert content_of(answer(1.0)).kind == "tensors"
    assert compared(answer(1.0, 2.0), answer(1.0, 2.0001), config).differences == {}
    (name,) = compared(answer(1.0, 2.0), answer(1.0, 2.01), config).differences
    assert name == ("0.scores" if wire == "stream" else "scores")


def test_predictions_and_embeddings_have_the_tolerances_of_tensors() -> None:
    def predictions(value: float) -> WholeAnswer:
        return WholeAnswer(200, "infer", PREDICT_V1, data=encode({"predictions": [[value, 1]]}))

    def embedding(value: float) -> WholeAnswer:
        data = [{"index": 0, "embedding": [value, 1.0]}]
        return WholeAnswer(200, "embeddings", data=encode({"data": data, "usage": {"total_tokens": value}}))

    for answer in (predictions, embedding):
        assert compared(answer(2.0), answer(2.0001), CompareConfig()).differences == {}
        assert len(compared(answer(2.0), answer(2.01), CompareConfig()).differences) == 1


def test_answers_of_apps_are_json_or_bytes() -> None:
    ignoring = CompareConfig.model_validate({"json": {"ignore": ["$.at"]}})
    one, other = (WholeAnswer(200, "app", APP, data=encode({"ok": True, "at": at})) for at in (1, 2))
    assert compared(one, other, CompareConfig()).differences == {"$.at": "another number"}
    assert compared(one, other, ignoring).differences == {}
    binary = WholeAnswer(200, "app", APP, data=b"\xff\x00")
    assert content_of(binary).kind == "bytes"
    assert compared(one, binary, ignoring).differences == {"bytes": "18 and 2 bytes"}
    exact = CompareConfig(exact=True)
    assert compared(one, other, exact).differences == {"bytes": "18 and 18 bytes"}


def test_statuses_count_by_class() -> None:
    answers = {status: WholeAnswer(status, "chat", data=encode({"error": status})) for status in (400, 404, 500)}
    fine, config = WholeAnswer(200, "chat", data=encode(CHAT)), CompareConfig()
    assert compared(answers[400], answers[404], config).differences == {}
    assert compared(fine, answers[500], config).differences == {"status": "200 and 500"}


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[" * 100_000, b'{"choices": 5}', b'{"choices": [5]}', b'"\xff"', b"null"]
)
def test_broken_answers_are_bytes(data: bytes) -> None:
    for wire in (Form(), ANTHROPIC, OIP_JSON, Form("oip-http", 3), OIP_GRPC, PREDICT_V1, APP):
        for is_stream in (False, True):
            content = content_of(WholeAnswer(200, "chat", wire, EVENTS if is_stream else "", is_stream, data))
            assert content.body == data


def test_tools_are_compared_as_json() -> None:
    one, other = (
        WholeAnswer(200, "chat", data=encode(_calling(text))) for text in ('{"a": 1, "b": 2}', '{"b":2,"a":1}')
    )
    assert compared(one, other, CompareConfig()).differences == {}
    another = WholeAnswer(200, "chat", data=encode(_calling('{"a": 2}')))
    assert compared(one, another, CompareConfig()).differences == {"tools": "the arguments of f"}
    assert compared(one, another, CompareConfig(tools=False)).differences == {}


def _calling(arguments: str) -> dict[str, Any]:
    call = {"function": {"name": "f", "arguments": arguments}}
    return {"choices": [{"message": {"content": None, "tool_calls": [call]}}]}

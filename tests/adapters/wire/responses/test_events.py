"""A chat's stream as a Response's, read back by the official client's own state and models."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response

from adapters.errors import BackendError, TransportError
from adapters.types import Usage
from adapters.wire.responses import answers as responses_answers
from adapters.wire.responses import requests as responses
from adapters.wire.responses.events import MAX_ANSWER, ResponseEvents
from adapters.wire.responses.events import whole as whole_response
from tests.support.door_events import STREAM_EVENT, response_events

COUNTED = Usage(3, 2)
DONE = b"data: [DONE]\n\n"


def shell(**fields: Any) -> responses_answers.Shell:
    body = {"model": "chat", "input": "hi", "instructions": "Be brief.", **fields}
    _, decoded, given = responses.decode(json.dumps(body, indent=1).encode())
    return responses_answers.Shell(decoded, given)


def chunk(delta: dict[str, Any], finish: str | None = None, **fields: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, **fields}
    body = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def usage(prompt: int, completion: int, **more: Any) -> bytes:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, **more}
    return b"data: " + json.dumps({"choices": [], "usage": counts}).encode() + b"\n\n"


def call(index: int | None, arguments: str, id_: str | None = None, name: str | None = None) -> bytes:
    function = {"arguments": arguments} | ({"name": name} if name else {})
    piece = {"index": index, "id": id_, "type": "function", "function": function}
    return chunk({"tool_calls": [{key: value for key, value in piece.items() if value is not None}]})


def streamed(*pieces: bytes, **fields: Any) -> list[dict[str, Any]]:
    events = ResponseEvents(shell(**fields))
    out = b"".join(events.take(piece) for piece in pieces)
    assert events.done
    return response_events(out + events.end(COUNTED))


def short(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


ITEM = ["output_item.added", "content_part.added", "{0}.delta", "{0}.delta", "{0}.done", "content_part.done"]
TEXT = ["created", "in_progress", *[one.format("output_text") for one in ITEM], "output_item.done"]


def test_a_text_has_the_sequence_that_clients_expect() -> None:
    chunks = [chunk({"role": "assistant", "content": ""}), chunk({"content": "Hel"}), chunk({"content": "lo"})]
    events = streamed(*chunks, chunk({}, "stop"), usage(9, 2, prompt_tokens_details={"cached_tokens": 4}), DONE)
    assert short(events) == [*TEXT, "completed"]
    response = events[-1]["response"]
    assert (response["status"], response["model"], response["instructions"]) == ("completed", "chat", "Be brief.")
    assert Response.model_validate(response).output_text == "Hello"
    counts = response["usage"]
    assert (counts["input_tokens"], counts["output_tokens"], counts["total_tokens"]) == (9, 2, 11)
    assert counts["input_tokens_details"]["cached_tokens"] == 4


def test_one_that_is_too_long_is_incomplete() -> None:
    events = streamed(chunk({"content": "Hel"}), chunk({"content": "lo"}, "length"), DONE)
    assert short(events) == [*TEXT, "incomplete"]
    response = events[-1]["response"]
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["status"] for item in response["output"]] == ["incomplete"]
    assert response["usage"]["total_tokens"] == 5  # as it was counted here


def test_thoughts_come_before_the_text() -> None:
    for name in ("reasoning_content", "reasoning"):
        events = streamed(chunk({name: "Hm"}), chunk({name: "."}), chunk({"content": "A"}), chunk({}, "stop"), DONE)
        assert short(events)[2:9] == [*[one.format("reasoning_text") for one in ITEM], "output_item.done"]
        thought, message = events[-1]["response"]["output"]
        assert thought["content"] == [{"type": "reasoning_text", "text": "Hm."}]
        assert (message["content"][0]["text"], message["status"]) == ("A", "completed")


def test_calls_follow_each_other() -> None:
    pieces = [call(0, "", "a", "f"), call(0, '{"x"'), call(0, ":1}"), call(1, "{}", "b", "g")]
    events = streamed(chunk({"content": "I look."}), *pieces, chunk({}, "tool_calls"), DONE)
    arguments = ["function_call_arguments.delta", "function_call_arguments.delta", "function_call_arguments.done"]
    assert short(events)[8:] == [
        "output_item.added", *arguments, "output_item.done",
        "output_item.added", *arguments[1:], "output_item.done", "completed",
    ]  # fmt: skip
    _, *calls = events[-1]["response"]["output"]
    assert [(one["call_id"], one["name"], one["arguments"], one["status"]) for one in calls] == [
        ("a", "f", '{"x":1}', "completed"),
        ("b", "g", "{}", "completed"),
    ]


def test_a_refusal_is_a_part() -> None:
    events = streamed(chunk({"content": "Well"}), chunk({"refusal": "No."}), chunk({}, "stop"), DONE)
    assert [part["type"] for part in events[-1]["response"]["output"][0]["content"]] == ["output_text", "refusal"]


def test_log_probabilities_are_in_both_places() -> None:
    one = {"token": "A", "logprob": -0.1, "bytes": [65], "top_logprobs": []}
    events = streamed(chunk({"content": "A"}, logprobs={"content": [one]}), DONE, top_logprobs=1)
    assert next(event for event in events if event["type"].endswith("text.delta"))["logprobs"] == [one]
    assert events[-1]["response"]["output"][0]["content"][0]["logprobs"] == [one]


def test_an_answer_of_nothing_is_an_empty_text() -> None:
    assert Response.model_validate(streamed(DONE)[-1]["response"]).output_text == ""


def test_comments_keep_the_connection_alive() -> None:
    events = ResponseEvents(shell())
    assert events.take(chunk({"content": "A"}))
    assert events.take(b": ping\n\n") == b": ping\n\n"


def test_a_break_is_reported_with_the_partial_text() -> None:
    events = ResponseEvents(shell())
    out = events.take(chunk({"reasoning": "Hm"}) + chunk({"content": "Hel"}))
    (*_, last) = response_events(out + events.fail(TransportError("It broke."), COUNTED))
    assert last["type"] == "response.failed"
    response = last["response"]
    assert (response["status"], response["error"]["code"], response["error"]["message"]) == (
        "failed",
        "server_error",
        "It broke.",
    )
    assert [item["status"] for item in response["output"]] == ["completed", "incomplete"]
    response_events(ResponseEvents(shell()).fail(TransportError("It broke."), COUNTED))


@pytest.mark.parametrize(
    "piece",
    [
        b"data: {\n\n",
        b"data: \xff\n\n",
        b"data: [1]\n\n",
        b'data: {"choices":' + b"[" * 5000 + b"\n\n",
    ],
)
def test_a_malformed_chunk_is_the_upstreams_failure(piece: bytes) -> None:
    with pytest.raises(BackendError):
        ResponseEvents(shell()).take(piece)


def test_an_answer_without_an_end_is_too_large() -> None:
    events, piece = ResponseEvents(shell()), chunk({"content": "x" * (1 << 20)})
    for _ in range(MAX_ANSWER // (1 << 20)):
        events.take(piece)
    with pytest.raises(BackendError, match="too large"):
        events.take(piece)


OPEN = {"name": "f", "arguments": "["}
texts = st.text(max_size=4)
deltas = st.one_of(
    st.builds(lambda text: {"content": text}, texts),
    st.builds(lambda text: {"reasoning_content": text}, texts),
    st.builds(lambda text: {"refusal": text}, texts),
    st.builds(
        lambda index: {
            "tool_calls": [{"index": index, "id": f"c{index}", "function": {"name": "f", "arguments": "["}}]
        },
        st.integers(0, 2),
    ),
)


@given(st.lists(deltas, max_size=8), st.sampled_from(["stop", "length", "tool_calls", None]))
def test_the_client_assembles_the_whole_text(parts_sent: list[dict[str, Any]], finish: str | None) -> None:
    events = streamed(*[chunk(delta) for delta in parts_sent], chunk({}, finish), DONE)
    state: Any = ResponseStreamState(input_tools=[], text_format=omit)
    for event in events:
        state.handle_event(STREAM_EVENT.validate_python(event))
    output = events[-1]["response"]["output"]
    parts = [part for item in output for part in item.get("content", ())]
    for delta_name, part_name in (("content", "text"), ("refusal", "refusal")):
        text = "".join(p.get(part_name, "") for p in parts if p["type"] != "reasoning_text")
        assert text == "".join(delta.get(delta_name, "") for delta in parts_sent)
    closed = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert sorted(json.dumps(item) for item in closed) == sorted(json.dumps(item) for item in output)
    calls = [one["function"]["arguments"] for delta in parts_sent for one in delta.get("tool_calls", ())]
    assert sum(len(item.get("arguments", "")) for item in output) == len(calls)


def whole(message: dict[str, Any], finish: str = "stop", **fields: Any) -> dict[str, Any]:
    body = {"choices": [{"index": 0, "message": message, "finish_reason": finish}], **fields}
    response: dict[str, Any] = json.loads(whole_response(json.dumps(body).encode(), shell(), COUNTED))
    Response.model_validate(response)
    return response


def test_a_whole_answer() -> None:
    response = whole({"content": "Hi", "reasoning": "Hm"}, usage={"prompt_tokens": 4, "completion_tokens": 5})
    assert [item["type"] for item in response["output"]] == ["reasoning", "message"]
    assert (response["status"], response["usage"]["total_tokens"]) == ("completed", 9)
    assert response["completed_at"] >= response["created_at"]


def test_a_whole_answer_that_calls() -> None:
    calls = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    response = whole({"content": None, "tool_calls": calls}, "tool_calls")
    (one,) = response["output"]
    assert (one["type"], one["call_id"], one["name"], one["arguments"]) == ("function_call", "a", "f", "{}")
    assert whole({"content": None, "refusal": "No."})["output"][0]["content"] == [{"type": "refusal", "refusal": "No."}]


def test_a_whole_answer_that_is_too_long() -> None:
    response = whole({"content": "Hi"}, "content_filter")
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "content_filter"})


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"{}", b'{"choices":[]}', b'{"choices":[{"message":7}]}', b'{"choices":[{}]}']
)
def test_a_malformed_answer_is_a_backend_error(body: bytes) -> None:
    with pytest.raises(BackendError):
        whole_response(body, shell(), COUNTED)


def test_each_repeated_field_is_on_one_line() -> None:
    tools = [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": None}]
    schema = {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}}
    events = streamed(DONE, tools=tools, tool_choice={"type": "function", "name": "f"}, text=schema)
    response = events[0]["response"]
    assert response["tools"] == tools
    assert response["text"]["format"] == schema["format"]

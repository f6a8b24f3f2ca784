"""The texts of traced requests: redacted, bounded, in the form of the conventions."""

import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.schema.telemetry import TraceContentConfig
from gateway.telemetry.traces.content import TraceContent, redacted
from gateway.telemetry.traces.messages import bounded, input_messages, output_messages, tool_definitions

leaves = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=30)
json_values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4)
)
FIELDS = ("messages", "input", "prompt", "instructions", "tools", "choices", "output", "content", "role", "delta")
bodies = st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=9), json_values, max_size=6)
message = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool"]) | json_values},
    optional={"content": json_values, "tool_calls": json_values, "reasoning_content": json_values},
)
KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"


@settings(max_examples=50, deadline=None)
@given(bodies | st.builds(dict, messages=st.lists(message, max_size=5)), bodies, st.booleans(), st.integers(1024, 4096))
def test_no_body_fails_and_every_attribute_is_bounded_json(
    body: dict[str, Any], answer: dict[str, Any], streams: bool, most: int
) -> None:
    data = msgspec.json.encode(answer)
    data = b"data: " + data + b"\n\n" if streams else data
    for name, value in redacted(msgspec.json.encode(body), data, streams, (), most).items():
        assert name.startswith("gen_ai.")
        assert len(value.encode()) <= most
        assert isinstance(json.loads(value), list)


@given(
    st.lists(st.dictionaries(st.text(max_size=9), st.text(max_size=3000), max_size=3), max_size=30),
    st.integers(1024, 9999),
)
def test_long_content_is_cut_and_the_newest_stays(items: list[dict[str, str]], most: int) -> None:
    text = bounded([*items, {"role": "user"}], most)
    assert len(text.encode()) <= most
    assert json.loads(text)[-1] == {"role": "user"}


CONVERSATION = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": f"mail a@b.example, key {KEY}"}]},
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "look", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "fine"},
    ],
    "tools": [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {}}}],
}


def test_a_conversation_has_the_form_of_the_conventions() -> None:
    instructions, messages = input_messages(CONVERSATION)
    assert instructions == [{"type": "text", "content": "Be brief."}]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert messages[1]["parts"] == [{"type": "tool_call", "id": "1", "name": "look", "arguments": "{}"}]
    assert messages[2]["parts"] == [{"type": "tool_call_response", "id": "1", "response": "fine"}]
    assert tool_definitions(CONVERSATION) == [
        {"name": "look", "description": "Looks.", "parameters": {}, "type": "function"}
    ]
    choice = {"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}
    expected = {"role": "assistant", "parts": [{"type": "text", "content": "yes"}], "finish_reason": "stop"}
    assert output_messages({"choices": [choice]}) == [expected]
    whole = {"content": [{"type": "text", "text": "yes"}], "stop_reason": "stop"}
    assert output_messages(whole) == [expected]


@pytest.mark.processes
@pytest.mark.parametrize("depth", [10, 100, 100_000])
async def test_a_deeply_nested_body_costs_its_own_content_only(depth: int) -> None:
    nested = msgspec.Raw(b"[" * depth + b"]" * depth)
    request = SimpleNamespace(size=2 * depth, fields={"messages": nested})
    content = TraceContent(TraceContentConfig(), request)  # type: ignore[arg-type]
    content.omitted = False  # whatever its size
    attributes = await content.attributes()
    assert attributes == {"headrace.content_omitted": True} or "gen_ai.input.messages" in attributes


@pytest.mark.parametrize("streams", [False, True])
def test_secrets_and_configured_kinds_never_leave(streams: bool) -> None:
    def event(text: str) -> bytes:
        return b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]}).encode() + b"\n\n"

    words = f"write to c@d.example with {KEY}"
    answer = b"".join(event(words[at : at + 3]) for at in range(0, len(words), 3))
    answer += b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    if not streams:
        answer = json.dumps({"choices": [{"message": {"content": words}, "finish_reason": "stop"}]}).encode()
    result = redacted(json.dumps(CONVERSATION).encode(), answer, streams, ("email",), 16384)
    assert result.keys() == {
        "gen_ai.system_instructions", "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.tool.definitions",
    }  # fmt: skip
    assert KEY not in str(result)
    assert ".example" not in str(result)
    [output] = json.loads(result["gen_ai.output.messages"])
    assert output["finish_reason"] == "stop"
    assert output["parts"] == [{"type": "text", "content": "write to [email] with [secret]"}]
    without = redacted(json.dumps(CONVERSATION).encode(), answer, streams, ("json:$.messages[*].content",), 16384)
    assert "brief" not in str(without)

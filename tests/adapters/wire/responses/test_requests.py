import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import CallerError
from adapters.wire.responses import requests as wire
from config.schema.config import RewriteConfig
from policies.routing.rewrite import Rewrite

IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": '{"x":1}'}
SCHEMA = {"name": "x", "schema": {"type": "object"}, "strict": True}
F = {"type": "function", "name": "f"}
FUNCTION = {"type": "function", "function": {"name": "f"}}
TOOL_CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "chat", "input": "hi", **fields}).encode()


def chat(**fields: Any) -> dict[str, Any]:
    request, _, _ = wire.decode(body(**fields))
    return {name: json.loads(bytes(raw)) for name, raw in request.fields.items()}


def messages(*items: Any, **fields: Any) -> list[dict[str, Any]]:
    decoded: list[dict[str, Any]] = chat(input=list(items), **fields)["messages"]
    return decoded


def test_a_text_is_a_user_s_message_behind_the_instructions() -> None:
    assert chat(instructions="Be brief.")["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
    ]


def test_parts_are_a_chat_s() -> None:
    item = {"role": "user", "content": [{"type": "input_text", "text": "what"}, IMAGE]}
    file = {"type": "input_file", "file_data": "data:x", "filename": "a.pdf"}
    audio = {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}
    assert messages(item, {"role": "assistant", "content": "a"}, {"role": "user", "content": [file, audio]}) == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "what"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}},
            ],
        },
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": [{"type": "file", "file": {"file_data": "data:x", "filename": "a.pdf"}}, audio]},
    ]


def test_one_part_of_text_is_a_text() -> None:
    part = {"type": "input_text", "text": "hi"}
    for role in ("developer", "system"):
        assert messages({"type": "message", "role": role, "content": [part]}) == [{"role": "system", "content": "hi"}]
    user, image = {"role": "user", "content": "3"}, {"role": "user", "content": [IMAGE]}
    system, other = messages({"role": "developer", "content": "2"}, user, user, instructions="1")
    assert [system["content"], other["content"]] == ["1\n\n2", "3\n\n3"]
    assert [part["type"] for part in messages(user, image)[0]["content"]] == ["text", "image_url"]


def test_the_items_of_an_answer_are_one_message_again() -> None:
    message = {
        "type": "message",
        "id": "m",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "I look."}],
    }
    thought = {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    output = {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "4"}]}
    question = {"role": "user", "content": "x?"}
    assistant = {"role": "assistant", "content": "I look.", "tool_calls": [TOOL_CALL, {**TOOL_CALL, "id": "c2"}]}
    history = [question, thought, message, CALL, {**CALL, "call_id": "c2"}, output, {**output, "call_id": "c2"}]
    tools = [{"role": "tool", "tool_call_id": id_, "content": "4"} for id_ in ("c1", "c2")]
    assert messages(*history) == [question, {**assistant, "reasoning_content": "Hm."}, *tools]
    # Older reasoning is sent again only if it led to calls, where some servers require it.
    old = messages(question, thought, message, *history, question)
    assert old[1] == {"role": "assistant", "content": "I look."}
    assert old[2:] == [question, {**assistant, "reasoning_content": "Hm."}, *tools, question]


def test_a_call_alone_has_null_content() -> None:
    assert messages(CALL)[0] == {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]}


def test_two_answers_in_a_row_stay_two() -> None:
    answer = {"role": "assistant", "content": "a"}
    refused = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    assert messages(answer, refused) == [answer, {"role": "assistant", "refusal": "No.", "content": None}]


def test_thoughts_without_words_are_nothing() -> None:
    encrypted = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"}
    assert messages({"role": "user", "content": "a"}, encrypted) == [{"role": "user", "content": "a"}]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"max_output_tokens": 5}, {"max_tokens": 5}),
        ({"temperature": 0.5, "top_p": 1, "seed": 3}, {"temperature": 0.5, "top_p": 1, "seed": 3}),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning_effort": "low"}),
        ({"text": {"format": {"type": "text"}, "verbosity": "low"}}, {"verbosity": "low"}),
        ({"text": {"verbosity": "medium"}}, {}),  # the default, which most servers refuse
        ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
        (
            {"text": {"format": {"type": "json_schema", **SCHEMA}}},
            {"response_format": {"type": "json_schema", "json_schema": SCHEMA}},
        ),
        ({"top_logprobs": 2}, {"logprobs": True, "top_logprobs": 2}),
        ({"include": ["message.output_text.logprobs"]}, {"logprobs": True, "top_logprobs": 0}),
        ({"include": ["reasoning.encrypted_content"], "store": False, "background": None}, {}),
        ({"truncation": "disabled", "previous_response_id": None}, {}),
        ({"metadata": {"a": "b"}, "max_tool_calls": 2, "service_tier": "flex", "user": "u"}, {"user": "u"}),
        ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
        ({"tools": [F], "tool_choice": "required"}, {"tools": [FUNCTION], "tool_choice": "required"}),
        ({"tools": [F], "tool_choice": F}, {"tools": [FUNCTION], "tool_choice": FUNCTION}),
        ({"tools": [], "tool_choice": "auto", "parallel_tool_calls": False}, {}),
        ({"tools": [F], "parallel_tool_calls": False}, {"tools": [FUNCTION], "parallel_tool_calls": False}),
    ],
)
def test_fields_that_a_chat_names_otherwise(given: dict[str, Any], expected: dict[str, Any]) -> None:
    fields = chat(**given)
    assert fields == {"messages": [{"role": "user", "content": "hi"}], "model": "chat", **expected}


def test_tools() -> None:
    tools = [{"type": "function", "name": name, "parameters": {"type": "object"}, "strict": True} for name in "ab"]
    functions = [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object"}, "strict": True}}
        for name in "ab"
    ]
    assert chat(tools=tools)["tools"] == functions
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "b"}]}
    fields = chat(tools=tools, tool_choice=allowed)
    assert (fields["tools"], fields["tool_choice"]) == (functions[1:], "required")


def test_fields_that_limits_read() -> None:
    request, _, _ = wire.decode(body(max_output_tokens=9, stream=True, user="u"))
    assert (request.model, request.max_tokens, request.stream, request.user) == ("chat", 9, True, "u")
    assert request.include_usage


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        ({"input": [{"content": "x"}]}, "input[0].type"),
        ({"input": ["x"]}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]}, "input[0].content[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}, "input[0].content[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
        ({"input": [{"role": "user", "content": [IMAGE, {"type": "x"}]}]}, "input[0].content[1].type"),
        ({"input": [{**CALL, "name": None}]}, "input[0].name"),
        ({"input": [{"type": "reasoning", "content": 7}]}, "input[0].content"),
        ({"model": 7}, "model"),
        ({"instructions": 7}, "instructions"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": "x"}, "max_output_tokens"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"temperature": "hot"}, "temperature"),
        ({"metadata": {"a": 1}}, "metadata[...]"),
        ({"background": True}, "background"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tool_choice": "some"}, "tool_choice"),
        ({"tool_choice": {"type": "mcp", "server_label": "x"}}, "tool_choice"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "web_search"}, F], "tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"moderation": {"model": "m"}}, "moderation"),
        ({"messages": [1]}, "messages"),
        ({"n": 2}, "n"),
        ({"response_format": {"type": "text"}}, "response_format"),
    ],
)
def test_the_error_of_a_wrong_field_names_it(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(CallerError) as refused:
        wire.decode(body(**fields))
    assert refused.value.param == param
    assert f"`{param}`" in refused.value.message


@pytest.mark.parametrize("bad", [b"[1]", b"{", b"\xff", b'{"input":' + b"[" * 4000 + b"]" * 4000 + b"}"])
def test_a_malformed_body_is_refused(bad: bytes) -> None:
    for decode in (wire.decode, wire.decode_native):
        with pytest.raises(CallerError) as refused:
            decode(bad)
        assert refused.value.code == "invalid_json"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
kinds = st.sampled_from(["message", "function_call", "function_call_output", "reasoning", "item_reference", "other"])
fields_of_an_item = {
    "type": kinds | json_values,
    "role": st.sampled_from(["user", "assistant", "tool"]) | json_values,
    "content": st.text(max_size=5) | st.lists(st.fixed_dictionaries({"type": st.text(max_size=12)})) | json_values,
    "call_id": json_values,
    "output": json_values,
    "name": json_values,
}
items = st.lists(st.fixed_dictionaries({}, optional=fields_of_an_item), max_size=4)


@given(items | json_values, json_values, json_values, json_values)
def test_whatever_is_sent_is_a_chat_or_the_caller_s_mistake(items: Any, text: Any, tools: Any, choice: Any) -> None:
    with suppress(CallerError):
        request, _, _ = wire.decode(body(input=items, text=text, tools=tools, tool_choice=choice))
        assert json.loads(bytes(request.fields["messages"])) is not None


def test_servers_of_responses_get_the_body_and_keep_nothing() -> None:
    request = wire.decode_native(body(tools=[{"type": "web_search"}], max_output_tokens=5, stream=True))
    assert json.loads(bytes(request.fields["store"])) is False
    assert json.loads(bytes(request.fields["tools"])) == [{"type": "web_search"}]
    assert (request.path, request.max_tokens, request.stream) == ("/responses", 5, True)
    assert wire.decode_native(body(store=True)).ignored == ("store",)
    with pytest.raises(CallerError):
        wire.decode_native(body(background=True))


def test_a_routes_limit_of_length_applies_to_responses() -> None:
    for fields_of_client in ({"max_output_tokens": 900}, {}):
        request = wire.decode_native(body(**fields_of_client))
        fields = Rewrite(RewriteConfig(caps={"max_tokens": 100}))(request.codec.fields(request))
        request = request.codec.rewrite(request, fields)
        assert json.loads(bytes(request.fields["max_output_tokens"])) == 100
        assert "max_tokens" not in request.fields
        assert request.max_tokens == 100


def test_fields_that_rules_read() -> None:
    schema = {"format": {"type": "json_schema", "name": "x", "schema": {}}}
    tools = [{"type": "function", "name": "f"}]
    fields_of_client = {"text": schema, "tools": tools, "input": [{"role": "user", "content": [IMAGE]}]}
    for request in (wire.decode(body(**fields_of_client))[0], wire.decode_native(body(**fields_of_client))):
        assert [request.uses_feature(feature) for feature in ("json_schema", "tools", "vision")] == [True] * 3
    for request in (wire.decode(body())[0], wire.decode_native(body(text={"format": {"type": "text"}}))):
        assert [request.uses_feature(feature) for feature in ("json_schema", "tools", "vision")] == [False] * 3

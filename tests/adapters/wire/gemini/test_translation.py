"""Any chat becomes a request that Google's API takes, and returns with its roles, order, ids and arguments."""

import base64
import json
import time
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adapters.errors import CallerError
from adapters.ignored_fields import IgnoredFields
from adapters.types import Usage
from adapters.wire.anthropic import requests as messages
from adapters.wire.anthropic.answers import message_of
from adapters.wire.gemini import requests as contents
from adapters.wire.gemini.answers import read
from adapters.wire.gemini.chat_to_answer import answer_of
from adapters.wire.gemini.chat_to_content import content_fields
from adapters.wire.gemini.content_to_chat import completion_of
from adapters.wire.gemini.native_to_chat import chat_fields
from adapters.wire.gemini.schemas import reduced
from adapters.wire.openai import chat
from adapters.wire.responses import requests as responses
from adapters.wire.responses.answers import Shell
from adapters.wire.responses.events import whole
from tests.support.pace import slowness
from tests.support.providers.gemini_faults import _schema as schema_faults
from tests.support.providers.gemini_faults import faults, signature

Object = dict[str, Any]
NEW, OLD = "gemini-3-flash", "gemini-2.0-flash"

texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(lambda text: text.strip())
names = st.sampled_from(["weather", "a_b", "0day", "x" * 64, "-odd"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=5,
)
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0K"}}
SOUND = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
PAPER = {"type": "file", "file": {"filename": "file", "file_data": "data:application/pdf;base64,JVBERi0="}}
parts = st.lists(st.sampled_from([PICTURE, SOUND, PAPER]), max_size=2)


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@st.composite
def chats(draw: st.DrawFn) -> list[Object]:
    """The messages of a chat with calls and their results."""
    turns: list[Object] = [{"role": "system", "content": draw(texts)}] if draw(st.booleans()) else []
    for nth in range(draw(st.integers(1, 4))):
        media = draw(parts)
        text = draw(texts)
        turns.append({"role": "user", "content": [{"type": "text", "text": text}, *media] if media else text})
        called = draw(st.lists(st.tuples(names, st.dictionaries(texts, values, max_size=2)), max_size=3))
        calls = [
            {"id": f"call_{nth}_{i}", "type": "function", "function": {"name": name, "arguments": compact(given_)}}
            for i, (name, given_) in enumerate(called)
        ]
        answer: Object = {"role": "assistant", "content": draw(texts) if not calls or draw(st.booleans()) else None}
        turns.append(answer | ({"tool_calls": calls} if calls else {}))
        turns += [{"role": "tool", "tool_call_id": call["id"], "content": draw(texts)} for call in calls]
    return turns


def encoded(body: Object, model: str = NEW, *, of_vertex: bool = False) -> bytes:
    """The body that Google's API receives."""
    fields = chat.decode_chat(json.dumps({"model": "m", **body}).encode()).fields
    return msgspec.json.encode(content_fields(fields, model, IgnoredFields(), of_vertex=of_vertex).fields)


def translated(body: Object, model: str = NEW, *, of_vertex: bool = False) -> Object:
    """The same, decoded."""
    return dict(json.loads(encoded(body, model, of_vertex=of_vertex)))


@settings(max_examples=200, deadline=None)
@given(chats(), st.sampled_from([NEW, OLD, "gemma-3-27b", "gemini-2.5-pro"]), st.booleans())
def test_a_chat_is_never_refused(turns: list[Object], model: str, of_vertex: bool) -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("weather", "a_b", "0day", "-odd")]
    body = translated({"messages": turns, "tools": tools}, model, of_vertex=of_vertex)
    assert list(faults(body, model, of_vertex=of_vertex)) == []


@settings(max_examples=200, deadline=None)
@given(chats())
def test_a_chat_returns_unchanged(turns: list[Object]) -> None:
    request = contents.decode_content(encoded({"messages": turns}), "m", stream=False)
    returned = json.loads(bytes(request.fields["messages"]))
    for turn in returned:
        for call in turn.get("tool_calls", ()):
            assert call.pop("extra_content", None) is None
    expected = [{**turn} for turn in turns]
    by_id = {call["id"]: call for turn in returned for call in turn.get("tool_calls", ())}
    for turn in expected:
        for call in turn.get("tool_calls", ()):
            if by_id[call["id"]]["function"]["name"] != call["function"]["name"]:  # out of Gemini's alphabet
                assert call["function"]["name"] in ("0day", "-odd")
                by_id[call["id"]]["function"]["name"] = call["function"]["name"]
    assert returned == expected


# ── schemas ───────────────────────────────────────────────────────────────────────────────────────────────

leaves = st.sampled_from([
    {"type": "string"}, {"type": ["string", "null"]}, {"type": ["integer", "string"]}, {"const": 3},
    {"enum": ["a", 1, None]},
    {"type": "array"}, {"type": "object"}, {"$ref": "#/$defs/node"},
    {"type": "string", "format": "uri", "minLength": 1},
    True,
    {"anyOf": [{"type": "null"}, {"type": "integer"}]}, {},
])  # fmt: skip
schemas = st.recursive(
    leaves,
    lambda inner: (
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3)},
            optional={
                "required": st.just(["a", "z"]),
                "additionalProperties": st.just(False),
                "allOf": st.lists(inner, max_size=2),
            },
        )
        | st.fixed_dictionaries({"type": st.just("array"), "items": inner})
        | st.fixed_dictionaries({"oneOf": st.lists(inner, min_size=1, max_size=3)})
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(schemas, schemas)
def test_a_schema_for_an_older_model_has_its_words_only(schema: Any, node: Any) -> None:
    given_ = {"type": "object", "properties": {"x": schema}, "$defs": {"node": node}, "$schema": "s"}
    assert list(schema_faults(reduced(given_, "tools"), 0)) == []


def test_a_length_without_limit_is_the_models_own() -> None:
    turn = {"messages": [{"role": "user", "content": "hi"}]}
    assert translated({**turn, "max_tokens": -1}) == translated(turn)
    assert (
        translated({**turn, "max_completion_tokens": -1, "max_tokens": 4})["generationConfig"]["maxOutputTokens"] == 4
    )


def test_a_schema_for_a_newer_model_stays_as_it_is() -> None:
    schema = {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {"x": {"const": 1}}}}}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    body = {"messages": [{"role": "user", "content": "q"}], "response_format": form}
    assert translated(body, "gemini-99-unknown")["generationConfig"]["responseJsonSchema"] == schema
    assert translated(body, OLD)["generationConfig"]["responseSchema"] == {
        "type": "object",
        "properties": {"x": {"type": "string", "format": "enum", "enum": ["1"]}},
    }


WORDS = (
    "$ref", "allOf", "anyOf", "oneOf", "type", "properties", "items", "required", "format", "enum", "const", "$defs",
    "nullable", "description", "minLength",
)  # fmt: skip
malformed = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([*WORDS, "object", "array", "#", "#/$defs/a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*WORDS, "a"]), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=500, deadline=None)
@given(malformed)
@example({"format": []})
@example({"required": 5})
@example({"type": "object", "properties": {"a": {}}, "required": 5})
@example({"properties": 5, "allOf": [{"properties": {}}]})
@example({"$defs": {"a": {"properties": {"x": {"allOf": [{"$ref": "#/$defs/a"}]}}}}, "$ref": "#/$defs/a"})
def test_a_malformed_schema_is_refused_or_read(schema: Any) -> None:
    with suppress(CallerError):
        assert isinstance(json.dumps(reduced(schema, "tools")), str)


def nested(depth: int) -> Object:
    schema: Object = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def bomb(width: int) -> Object:
    around = {"a": "b", "b": "c", "c": "d", "d": "a"}
    defs = {
        name: {"type": "object", "properties": {f"p{i}": {"$ref": f"#/$defs/{other}"} for i in range(width)}}
        for name, other in around.items()
    }
    return {"$ref": "#/$defs/a", "$defs": defs}


def many_types(depth: int) -> Object:
    schema: Object = {}
    for _ in range(depth):
        schema = {"type": ["array", "array"], "items": schema}
    return {"properties": {"a": schema}}


HUGE: Object = {
    "$defs": {"a": {"type": "string", "enum": ["x" * 10**6]}, "b": {"type": "string", "description": "x" * 10**6}},
    "properties": {f"p{i}": {"$ref": f"#/$defs/{'ab'[i % 2]}"} for i in range(1000)},
}


@pytest.mark.parametrize("field", ["tools", "response_format"])
@pytest.mark.parametrize("schema", [nested(450), bomb(5), bomb(50), many_types(30), HUGE])
def test_a_schema_that_grows_without_bounds_is_refused(schema: Object, field: str) -> None:
    form: Object = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    if field == "tools":
        form = {"tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]}
    fields = form if field == "tools" else {"response_format": form}
    start = time.process_time()
    with pytest.raises(CallerError, match=field) as raised:
        encoded({"messages": [{"role": "user", "content": "q"}], **fields}, OLD)
    assert raised.value.param == field
    assert time.process_time() - start < 2 * slowness()


def test_a_schema_in_itself_ends_at_some_depth() -> None:
    node: Object = {"type": "object", "properties": {"a": {"type": "string"}, "next": {"allOf": [{"$ref": "#"}]}}}
    inner = reduced(node, "tools")["properties"]["next"]
    assert inner["properties"]["a"] == {"type": "string"}


# ── signatures ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", ["extra_content", "provider", "function", "id", "blocks", "none"])
def test_a_signature_is_read_in_each_form(form: str) -> None:
    text, id_ = signature("weather"), "c1"
    function: Object = {"name": "weather", "arguments": "{}"}
    call: Object = {"id": id_, "type": "function", "function": function}
    turn: Object = {"role": "assistant", "content": None, "tool_calls": [call]}
    if form == "extra_content":
        call["extra_content"] = {"google": {"thought_signature": text}}
    elif form == "provider":
        call["provider_specific_fields"] = {"thought_signature": text}
    elif form == "function":
        function["provider_specific_fields"] = {"thought_signature": text}
    elif form == "id":
        call["id"] = id_ = f"c1__thought__{text}"
    elif form == "blocks":
        turn["thinking_blocks"] = [{"type": "thinking", "thinking": "{}", "signature": text}]
    turns = [{"role": "user", "content": "q"}, turn, {"role": "tool", "tool_call_id": id_, "content": "r"}]
    body = translated({"messages": turns})
    (part,) = body["contents"][1]["parts"]
    assert part["thoughtSignature"] == ("skip_thought_signature_validator" if form == "none" else text)
    assert part["functionCall"]["id"] == body["contents"][2]["parts"][0]["functionResponse"]["id"] == "c1"


ANSWER = {
    "candidates": [
        {
            "content": {
                "role": "model",
                "parts": [{"text": "hello"}, {"text": "", "thoughtSignature": signature("hello")}],
            },
            "finishReason": "STOP",
        }
    ]
}


@pytest.mark.parametrize("door", ["chats", "messages", "responses", "contents"])
def test_the_signature_of_a_text_returns_through_each_door(door: str) -> None:
    completion = completion_of(read(json.dumps(ANSWER).encode()), Usage(1, 1), 0, "m")
    question = {"role": "user", "content": "q"}
    if door == "chats":
        turn = json.loads(completion)["choices"][0]["message"]
        fields = chat.decode_chat(json.dumps({"model": "m", "messages": [question, turn, question]}).encode()).fields
    elif door == "messages":
        content = json.loads(message_of(completion, Usage(), [], "m"))["content"]
        history = [question, {"role": "assistant", "content": content}, question]
        body = {"model": "m", "max_tokens": 9, "messages": history}
        fields = messages.decode_message(json.dumps(body).encode()).fields
    elif door == "responses":
        _, response_body, names_ = responses.decode(json.dumps({"model": "m", "input": "q"}).encode())
        output = json.loads(whole(completion, Shell(response_body, names_), Usage()))["output"]
        sent = json.dumps({"model": "m", "input": [question, *output, question]}).encode()
        fields = responses.decode(sent)[0].fields
    else:
        answer = json.loads(answer_of(completion, Usage(), "r", "m", str, shows_thoughts=False))
        history = [{"role": "user", "parts": [{"text": "q"}]}, answer["candidates"][0]["content"]]
        fields = contents.decode_content(
            json.dumps({"contents": [*history, history[0]]}).encode(), "m", stream=False
        ).fields
    sent_on = json.loads(msgspec.json.encode(content_fields(fields, NEW, IgnoredFields(), of_vertex=False).fields))
    assert sent_on["contents"][1]["parts"][-1].get("thoughtSignature") == signature("hello")
    assert list(faults(sent_on, NEW)) == []


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"logit_bias": {"1": 2}}, "logit_bias"),
        ({"stop": list("abcdef")}, "stop"),
        ({"audio": {"voice": "a"}}, "audio"),
        ({"reasoning_effort": "enormous"}, "reasoning_effort"),
        ({"messages": [{"role": "tool", "tool_call_id": "x", "content": "r"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]}, "messages"),
        ({"tool_choice": "required"}, "tool_choice"),
    ],
)
def test_a_field_without_an_equivalent_is_refused_by_its_name(fields: Object, name: str) -> None:
    with pytest.raises(CallerError) as raised:
        translated({"messages": [{"role": "user", "content": "q"}], **fields})
    assert raised.value.param == name


def test_base64_of_a_signature_is_the_client_s() -> None:
    """Google's clients decode and encode the field: both alphabets are one value."""
    text = base64.urlsafe_b64encode(bytes(range(250, 256)) * 5).decode()
    part = {"functionCall": {"name": "weather", "args": {}}, "thoughtSignature": text}
    turn = {"role": "model", "parts": [part]}
    body = {"contents": [{"role": "user", "parts": [{"text": "q"}]}, turn]}
    fields = contents.decode_content(json.dumps(body).encode(), "m", stream=False).fields
    call = json.loads(bytes(fields["messages"]))[1]["tool_calls"][0]
    assert call["extra_content"]["google"]["thought_signature"] == text


def called(turns: list[Object]) -> tuple[list[Object], Any]:
    request = contents.decode_content(json.dumps({"contents": turns}).encode(), "m", stream=False)
    return json.loads(bytes(request.fields["messages"])), request


def test_results_belong_to_the_first_open_call_of_their_id_or_name() -> None:
    calls = [("f", None), ("g", "1"), ("f", "2"), ("f", None)]
    results = [("f", "2"), ("f", "9"), ("g", None), ("f", None), ("f", None)]
    parts = [
        {kind: {"name": name} | ({"id": id_} if id_ else {})}
        for kind, given_ in (("functionCall", calls), ("functionResponse", results))
        for name, id_ in given_
    ]
    turns = [{"role": "model", "parts": parts[:4]}, {"role": "user", "parts": parts[4:]}]
    messages, _ = called([{"role": "user", "parts": [{"text": "q"}]}, *turns])
    ids = [call["id"] for call in messages[1]["tool_calls"]]
    # "f" with the id 2 takes the first "f" without an id: it waits longer
    answered = [message["tool_call_id"] for message in messages[2:] if message["role"] == "tool"]
    assert answered == [ids[0], ids[3], ids[1], ids[2]]
    assert messages[-1]["role"] == "user"


def test_results_without_calls_take_time_by_their_number() -> None:
    call = {"functionCall": {"name": "f", "id": "1"}}
    result = {"functionResponse": {"name": "g", "id": "2", "response": {}}}
    many = 10_000
    turns = [{"role": "model", "parts": [call] * many}, {"role": "user", "parts": [result] * many}]
    start = time.process_time()
    called([{"role": "user", "parts": [{"text": "q"}]}, *turns])
    assert time.process_time() - start < 3 * slowness()


@pytest.mark.parametrize("part", ["inlineData", "fileData"])
def test_media_of_the_model_are_reported(part: str) -> None:
    media = {"inlineData": {"mimeType": "image/png", "data": "aGk="}, "fileData": {"fileUri": "https://a.test/b"}}
    turns: list[Object] = [
        {"role": "user", "parts": [{"text": "q"}]},
        {"role": "model", "parts": [{"text": "a"}, {part: media[part]}]},
    ]
    _, request = called([*turns, turns[0]])
    assert part in chat_fields(request.payload.native, {}, stream=False)[1]

"""Messages as chats and chats as messages: each translation, each refusal, and round trips without loss."""

import json
import re
from contextlib import suppress
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from adapters.errors import CallerError
from adapters.ignored_fields import IgnoredFields
from adapters.requests import ChatRequest
from adapters.types import Feature
from adapters.wire.anthropic import call_ids
from adapters.wire.anthropic import requests as wire
from adapters.wire.anthropic.chat_to_message import message_fields
from adapters.wire.anthropic.chat_turns import without_own_thoughts
from adapters.wire.openai import chat as openai
from adapters.wire.openai import kept_signatures

Object = dict[str, Any]
FEATURES: tuple[Feature, ...] = get_args(Feature)
PICTURE = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
TOOL = {"name": "f", "input_schema": {"type": "object"}}
CALL = {"type": "tool_use", "id": "1", "name": "f", "input": {}}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
CITED = {"type": "document", "source": PDF, "citations": {"enabled": True}}


def message(**fields: Any) -> bytes:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], **fields}
    return json.dumps(body).encode()


def as_chat(**fields: Any) -> Object:
    """The body of the chat, which passes the chat decoder."""
    request = wire.decode_message(message(**fields))
    written = {name: json.loads(bytes(raw)) for name, raw in request.fields.items()}
    openai.decode_chat(json.dumps(written).encode())
    return written


def left_out(**fields: Any) -> set[str]:
    """The fields that the chat does not have."""
    request = wire.decode_message(message(**fields))
    return set(request.payload.translated()[1])


def turns(*content: Any, role: str = "user") -> list[Object]:
    return [{"role": role, "content": list(content)}]


def as_messages(**fields: Any) -> Object:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
    request = openai.decode_chat(json.dumps(body).encode())
    decoded: Object = json.loads(msgspec.json.encode(message_fields(request, None, 50, IgnoredFields())))
    return decoded


def test_a_length_without_limit_is_the_pools() -> None:
    assert as_messages(max_tokens=-1)["max_tokens"] == 50
    assert as_messages(max_completion_tokens=-1, max_tokens=4)["max_tokens"] == 4


# ── a message as a chat ───────────────────────────────────────────────────────────────────────────────────


def test_fields() -> None:
    chat = as_chat(
        system="Be kind.",
        stream=True,
        temperature=0.5,
        top_p=0.9,
        top_k=3,
        stop_sequences=["a", "b"],
        metadata={"user_id": "u"},
        thinking={"type": "enabled", "budget_tokens": 2000},
        service_tier="auto",
        speed="standard",
        container=None,
    )
    assert chat == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}],
        "max_tokens": 9,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 3,
        "stop": ["a", "b"],
        "user": "u",
    }


@pytest.mark.parametrize(
    ("block", "parts"),
    [
        ({"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}, "x"),
        (
            {"type": "image", "source": PICTURE},
            [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}],
        ),
        (
            {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
            [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}],
        ),
        (
            {"type": "document", "source": PDF, "title": "a.pdf", "context": "old"},
            [
                {"type": "text", "text": "old"},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}},
            ],
        ),
        (
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}, "title": "t"},
            "t\n\nd",
        ),
        (
            {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "d"}]}},
            "d",
        ),
        (
            {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "c"}]},
            "t\ns\n\nc",
        ),
    ],
)
def test_content_of_a_user(block: Object, parts: Any) -> None:
    (turn,) = as_chat(messages=turns(block))["messages"]
    assert turn == {"role": "user", "content": parts}


def test_results_of_tools_precede_pictures() -> None:
    assistant_turn = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {"x": [1.5, None]}}],
    }
    picture = {"type": "image", "source": PICTURE}
    results = [
        {"type": "text", "text": "see"},
        {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "a"}, picture]},
        {"type": "tool_result", "tool_use_id": "2", "is_error": True, "content": "no"},
        {"type": "tool_result", "tool_use_id": "3"},
    ]
    first, *tools, last = as_chat(messages=[assistant_turn, {"role": "user", "content": results}])["messages"]
    assert first["content"] is None
    assert json.loads(first["tool_calls"][0]["function"]["arguments"]) == {"x": [1.5, None]}
    assert [(tool["tool_call_id"], tool["content"]) for tool in tools] == [("1", "a"), ("2", "Error: no"), ("3", "")]
    assert [part["type"] for part in last["content"]] == ["image_url", "text"]


def test_thoughts_are_forwarded_if_they_have_a_text() -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "thinking", "thinking": "secret", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "a"},
    ]
    turn, _ = as_chat(messages=[*turns(*blocks, role="assistant"), *turns({"type": "text", "text": "b"})])["messages"]
    assert turn == {"role": "assistant", "content": "a", "reasoning_content": "hmsecret"}
    assert left_out(messages=[*turns(*blocks, role="assistant"), *turns({"type": "text", "text": "b"})]) == {
        "redacted_thinking"
    }


def test_every_call_has_thoughts_if_one_turn_has_them() -> None:
    """DeepSeek and Kimi refuse a call without them, as soon as the conversation has any."""
    calls = [{"role": "assistant", "content": [{**CALL, "id": str(i)}]} for i in range(2)]
    calls[1]["content"].insert(0, {"type": "thinking", "thinking": "hm"})  # type: ignore[attr-defined]
    assert [turn["reasoning_content"] for turn in as_chat(messages=calls)["messages"]] == ["", "hm"]
    assert "reasoning_content" not in as_chat(messages=calls[:1])["messages"][0]


def test_a_signature_of_a_call_survives_the_client() -> None:
    extra = {"google": {"thought_signature": "AbC="}}
    carrier = kept_signatures.block("functions.f:0", Raw(json.dumps(extra).encode()))
    call = {**CALL, "id": call_ids.to_message("functions.f:0")}
    (turn,) = as_chat(messages=turns(carrier, call, {**CALL, "id": "b"}, role="assistant"))["messages"]
    assert [(each["id"], each.get("extra_content")) for each in turn["tool_calls"]] == [
        ("functions.f:0", extra),
        ("b", None),
    ]


def test_the_work_of_anthropics_own_servers_is_left_out() -> None:
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    results = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"encrypted_content": "x"}]}
    spoken = {"type": "text", "text": "a", "citations": [{}]}
    history = [*turns({"type": "text", "text": "q"}), *turns(search, results, role="assistant")]
    second = turns({"type": "container_upload", "file_id": "f"}, {"type": "text", "text": ""})
    fields = {"messages": [*history, *second, *turns(spoken, search, role="assistant"), *turns(CITED)]}
    chat = as_chat(**fields)["messages"]
    assert chat[:2] == [
        {
            "role": "user",
            "content": [{"type": "text", "text": "q"}, {"type": "text", "text": "[Left out: container_upload]"}],
        },
        {"role": "assistant", "content": "a"},
    ]
    assert left_out(**fields) == {"server_tool_use", "web_search_tool_result", "container_upload", "citations"}


def test_bounds_of_chats() -> None:
    """Claude Code's id of a user, a tool of an MCP server with a long name, and an id with a signature in it."""
    name, id_ = "mcp__" + "n" * 90, "call_1__thought__" + "s" * 200
    call, result = {**CALL, "id": id_, "name": name}, {"type": "tool_result", "tool_use_id": id_, "content": "r"}
    chat = as_chat(
        metadata={"user_id": "u" * 150},
        tools=[{"name": name, "input_schema": {"type": "object"}}],
        tool_choice={"type": "tool", "name": name},
        messages=[*turns(call, role="assistant"), *turns(result)],
    )
    (made,) = chat["messages"][0]["tool_calls"]
    assert len(chat["user"]) == 64
    assert made["function"]["name"] == chat["tools"][0]["function"]["name"] == chat["tool_choice"]["function"]["name"]
    assert (len(made["function"]["name"]), len(made["id"])) == (64, 37)
    assert chat["messages"][1]["tool_call_id"] == made["id"]


@pytest.mark.parametrize(
    "tools", [{}, {"tools": []}, {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}]
)
def test_without_tools_there_is_no_choice_of_them(tools: Object) -> None:
    chat = as_chat(tool_choice={"type": "any", "disable_parallel_tool_use": True}, **tools)
    assert chat.keys().isdisjoint({"tools", "tool_choice", "parallel_tool_calls"})


def test_an_answer_that_has_begun_is_gone_on_with() -> None:
    chat = as_chat(messages=[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "I"}])
    assert (chat["continue_final_message"], chat["add_generation_prompt"]) == (True, False)
    assert "continue_final_message" not in as_chat()


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any", "disable_parallel_tool_use": True}, {"tool_choice": "required", "parallel_tool_calls": False}),
        ({"type": "none"}, {"tool_choice": "none"}),
        ({"type": "tool", "name": "f"}, {"tool_choice": {"type": "function", "function": {"name": "f"}}}),
    ],
)
def test_tools(choice: Object, expected: Object) -> None:
    tool = {"name": "f", "description": "d", "input_schema": {"type": "object"}, "strict": True, "type": "custom"}
    chat = as_chat(tools=[tool], tool_choice=choice)
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}
    assert chat["tools"] == [{"type": "function", "function": function}]
    assert {name: chat[name] for name in ("tool_choice", "parallel_tool_calls") if name in chat} == expected


def test_forms_and_efforts() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    chat = as_chat(output_config={"effort": "max", "format": {"type": "json_schema", "schema": schema}})
    assert chat["reasoning_effort"] == "high"
    assert "reasoning_effort" not in as_chat(output_config={"effort": "high"})  # the default of Anthropic's API
    assert chat["response_format"]["json_schema"] == {"name": "answer", "schema": schema, "strict": True}


FILE = {"type": "file", "file_id": "f"}


@pytest.mark.parametrize(
    ("fields", "param", "word"),
    [
        ({"mcp_servers": [{}]}, "mcp_servers", "as functions"),
        ({"inference_geo": "us"}, "inference_geo", "region"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}}, "tool_choice", "g"),
        ({"tools": [{"name": "f"}]}, "tools", "input_schema"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice", "name"),
        ({"messages": turns({"type": "server_tool_use"}, role="assistant")}, "messages", "nothing"),
        ({"stop_sequences": "x"}, "stop_sequences", "array"),
        ({"messages": turns({"type": "text"})}, "messages", "text"),
        ({"messages": turns({"type": "image", "source": FILE})}, "messages", "messages[0]"),
        ({"messages": turns({"type": "document", "source": FILE})}, "messages", "only Anthropic's"),
        ({"messages": turns({"type": "tool_use", "id": "1", "name": "f", "input": {}})}, "messages", "tool_use"),
        ({"messages": turns({"type": "image", "source": PICTURE}, role="assistant")}, "messages", "image"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages", "robot"),
        ({"messages": [{"role": "user"}]}, "messages", "content"),
    ],
)
def test_fields_that_a_chat_lacks_are_refused(fields: Object, param: str, word: str) -> None:
    request = wire.decode_message(message(**fields))
    with pytest.raises(CallerError) as refused:
        _ = request.fields
    assert refused.value.param == param
    assert word in refused.value.message


# ── a chat as a message ───────────────────────────────────────────────────────────────────────────────────


def test_a_chat_s_fields() -> None:
    fields = as_messages(
        stream=True,
        stream_options={"include_usage": True},
        temperature=0.5,
        stop="a",
        seed=3,
        max_completion_tokens=7,
        safety_identifier="s",
        service_tier="default",
        logprobs=False,
        n=1,
        logit_bias=None,
        response_format={"type": "text"},
        reasoning_effort="none",
    )
    assert fields == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 7,
        "stream": True,
        "temperature": 0.5,
        "stop_sequences": ["a"],
        "metadata": {"user_id": "s"},
        "service_tier": "standard_only",
        "thinking": {"type": "disabled"},
    }


def test_cache_marks_are_preserved() -> None:
    mark = {"type": "ephemeral"}
    function = {"name": "f", "parameters": {"type": "object"}}
    fields = as_messages(
        messages=[
            {"role": "system", "content": [{"type": "text", "text": "s", "cache_control": mark}]},
            {"role": "developer", "content": "d"},
            {"role": "user", "content": "u", "cache_control": mark},
        ],
        tools=[{"type": "function", "function": function, "cache_control": mark}],
    )
    assert fields["system"] == [{"type": "text", "text": "s", "cache_control": mark}, {"type": "text", "text": "d"}]
    assert fields["messages"][0]["content"] == [{"type": "text", "text": "u", "cache_control": mark}]
    assert fields["tools"] == [{"name": "f", "input_schema": {"type": "object"}, "cache_control": mark}]


def test_parallel_calls_are_disabled() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    fields = as_messages(tools=tools, parallel_tool_calls=False)
    assert fields["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert fields["tools"][0]["input_schema"] == {"type": "object", "properties": {}}
    assert "tool_choice" not in as_messages(tool_choice="none")


USER, ANSWER = {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([{"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "x"}]}], ["x"]),
        ([USER, {"role": "assistant", "content": " "}, USER], ["u", "u"]),
        ([USER, ANSWER, {"role": "user", "content": ""}], ["u", "a", "."]),
        ([{"role": "user", "content": "\n"}], ["."]),
        ([USER, {"role": "assistant", "content": "a \n"}], ["u", "a"]),
        ([ANSWER, USER], [".", "a", "u"]),
        ([{"role": "system", "content": "s"}], ["s"]),
        ([{"role": "system", "content": ""}, USER], ["u"]),
        (
            [USER, {**ANSWER, "reasoning_details": [{"type": "reasoning.text"}], "audio": {"id": "x"}}, USER],
            ["u", "a", "u"],
        ),
        ([{"role": "user", "content": [{"type": "video_url", "video_url": {"url": "x"}}]}], ["[Left out: video_url]"]),
    ],
)
def test_turns_without_anything_to_read(messages: list[Object], expected: list[str]) -> None:
    fields = as_messages(messages=messages)
    assert [turn["content"] for turn in fields["messages"]] == expected
    assert fields["messages"][0]["role"] == "user"
    assert "system" not in fields


def test_a_picture_has_the_name_of_its_format() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/jpg;base64,AA=="}}
    (turn,) = as_messages(messages=[{"role": "user", "content": [picture]}])["messages"]
    assert turn["content"][0]["source"]["media_type"] == "image/jpeg"


def test_foreign_ids_and_names_of_calls_become_anthropics_in_pairs() -> None:
    function = {"name": "a.b", "arguments": "{}"}
    calls = [{"id": id_, "type": "function", "function": function} for id_ in ("functions.f:0", "call_0")]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": ""} for call in calls]
    step = [{"role": "assistant", "content": None, "tool_calls": calls}, *results]
    fields = as_messages(
        messages=[USER, *step, *step],
        tools=[{"type": "function", "function": {"name": "a.b", "parameters": {}}}, {"type": "web_search"}],
        tool_choice={"type": "function", "function": {"name": "a.b"}},
    )
    made = [block for turn in fields["messages"][1::2] for block in turn["content"]]
    used = [block["tool_use_id"] for turn in fields["messages"][2::2] for block in turn["content"]]
    assert [block["id"] for block in made] == used
    assert len(set(used)) == 4
    assert all(re.fullmatch("[a-zA-Z0-9_-]+", text) for text in [*used, made[0]["name"]])
    assert made[0]["name"] == fields["tools"][0]["name"] == fields["tool_choice"]["name"]
    assert (len(fields["tools"]), fields["tools"][0]["input_schema"]["type"]) == (1, "object")


def test_thoughts_of_other_servers_are_not_sent_as_anthropics() -> None:
    carrier = kept_signatures.block("c", Raw(b'{"a":1}'))
    signed = {"type": "thinking", "thinking": "hm", "signature": "s"}
    blocks = [{**signed, "signature": each} for each in ("", kept_signatures.UNSIGNED)] + [carrier, signed]
    turn = {"role": "assistant", "content": "a", "thinking_blocks": blocks}
    assert as_messages(messages=[USER, turn, USER])["messages"][1]["content"] == [signed, {"type": "text", "text": "a"}]


@given(st.lists(st.sampled_from(["plain", "unsigned", "kept", "signed", "text"]), max_size=4))
def test_only_thoughts_of_the_gateways_own_are_removed_from_a_message(kinds: list[str]) -> None:
    made = {
        "plain": "a text",
        "unsigned": [
            {"type": "thinking", "thinking": "hm", "signature": each} for each in ("", kept_signatures.UNSIGNED)
        ],
        "kept": [kept_signatures.block("c", Raw(b'{"a":1}')), {"type": "text", "text": "b"}],
        "signed": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "redacted_thinking", "data": "x"},
        ],
        "text": [{"type": "text", "text": '"signature": "" and "data":"headrace.1.'}],
    }
    rest = made | {"unsigned": None, "kept": made["kept"][1:]}
    history = [{"role": "assistant", "content": made[kind], "x_new": 1.50} for kind in kinds]
    native = {"messages": Raw(json.dumps(history).encode())}
    expected = [{**turn, "content": rest[kind]} for turn, kind in zip(history, kinds, strict=True) if rest[kind]]
    cleaned = without_own_thoughts(native)
    assert json.loads(bytes(cleaned["messages"])) == expected
    assert (cleaned is native) == set(kinds).isdisjoint({"unsigned", "kept"})


def test_malformed_messages_are_left_to_the_server() -> None:
    for raw in (b'[{"content":[{"type":5,"signature":""}]}]', b'{"signature":""}', b'[{"content":"","signature":""}]'):
        native = {"messages": Raw(raw)}
        assert json.loads(bytes(without_own_thoughts(native)["messages"])) == json.loads(raw)


# ── and back ──────────────────────────────────────────────────────────────────────────────────────────────

words = st.text(min_size=1, max_size=20).filter(lambda text: not text.isspace())
names = st.from_regex(r"[a-z]{1,8}", fullmatch=True)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)
texts = st.builds(lambda text: {"type": "text", "text": text}, words)
pictures = st.sampled_from(
    [{"type": "image", "source": PICTURE}, {"type": "image", "source": {"type": "url", "url": "https://x"}}]
)
shown = st.builds(lambda one, rest: [one, *rest], texts | pictures, st.lists(texts | pictures, max_size=2))


def compact(blocks: list[Object]) -> Any:
    """A message of one text is that text."""
    return blocks[0]["text"] if len(blocks) == 1 and blocks[0]["type"] == "text" else blocks


@st.composite
def conversations(draw: st.DrawFn) -> list[Object]:
    """Turns of a user's and an assistant's, with calls of tools and their results."""
    conversation = [{"role": "user", "content": compact(draw(shown))}]
    for i in range(draw(st.integers(0, 3))):
        spoken = draw(st.lists(texts, min_size=1, max_size=2))
        calls = [
            {
                "type": "tool_use",
                "id": f"{i}-{j}",
                "name": draw(names),
                "input": draw(st.dictionaries(names, values, max_size=2)),
            }
            for j in range(draw(st.integers(0, 2)))
        ]
        results = [
            {
                "type": "tool_result",
                "tool_use_id": call["id"],
                "content": compact(draw(st.lists(texts, min_size=1, max_size=2))),
            }
            for call in calls
        ]
        conversation.append({"role": "assistant", "content": compact([*spoken, *calls])})
        conversation.append({"role": "user", "content": compact([*results, *draw(shown)])})
    return conversation


@st.composite
def bodies(draw: st.DrawFn) -> Object:
    body: Object = {"model": "m", "max_tokens": draw(st.integers(1, 99)), "messages": draw(conversations())}
    tools = draw(
        st.lists(
            st.builds(
                lambda name, text: {"name": name, "description": text, "input_schema": {"type": "object"}}, names, words
            ),
            max_size=2,
        )
    )
    optional: Object = {
        "system": words,
        "stream": st.just(value=True),
        "temperature": st.floats(0, 1),
        "top_k": st.integers(1, 9),
        "stop_sequences": st.lists(words, min_size=1, max_size=3),
        "metadata": st.builds(lambda user: {"user_id": user}, words),
        "output_config": st.builds(lambda effort: {"effort": effort}, st.sampled_from(["low", "medium"])),
    }
    body |= {name: draw(strategy) for name, strategy in optional.items() if draw(st.booleans())}
    if tools:
        body["tools"] = tools
        named = {"type": "tool", "name": tools[0]["name"]}
        choices = [{"type": "auto"}, {"type": "any", "disable_parallel_tool_use": True}, named]
        body["tool_choice"] = draw(st.sampled_from(choices))
    return body


@settings(max_examples=60, deadline=None)
@given(bodies())
def test_a_message_survives_the_conversion_to_a_chat_and_back(body: Object) -> None:
    request = wire.decode_message(json.dumps(body).encode())
    chat = openai.decode_chat(
        json.dumps({name: json.loads(bytes(raw)) for name, raw in request.fields.items()}).encode()
    )
    assert json.loads(msgspec.json.encode(message_fields(chat, None, 1, IgnoredFields()))) == body


@settings(max_examples=150, deadline=None)
@given(bodies(), st.data())
def test_whatever_is_put_in_the_place_of_a_value_is_read_or_refused(body: Object, data: st.DataObject) -> None:
    """Messages are decoded for both conversions."""
    body = json.loads(json.dumps(body))
    places = list(_places(body))
    holder, key = data.draw(st.sampled_from(places))
    holder[key] = data.draw(values | st.floats() | st.just({"type": "text"}))
    with suppress(CallerError):
        request = wire.decode_message(json.dumps(body).encode())
        for feature in FEATURES:
            request.uses_feature(feature)
        wire.estimate(wire.estimated_fields(request))
        message_fields(ChatRequest(model="m", payload=request.payload), None, 5, IgnoredFields())


def _places(value: Any) -> Any:
    """Every value of a body, with its container."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, held in list(inner):
        yield value, key
        if isinstance(held, dict | list):
            yield from _places(held)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 200))
def test_garbage_is_refused(garbage: bytes, at: int) -> None:
    written = message(system="x", tools=[{"name": "f", "input_schema": {}}])
    for body in (garbage, written[:at] + garbage + written[at:]):
        with suppress(CallerError):
            _ = wire.decode_message(body).fields
        with suppress(CallerError):
            wire.estimate(wire.estimated_fields(wire.decode_message(body)))


def test_betas_are_names_and_nothing_else() -> None:
    assert wire.decode_message(message(), "a-1,b-2").payload.betas == "a-1,b-2"
    for given_ in ("a\r\nx: y", "a b", ",", "a" * 2000):
        with pytest.raises(CallerError):
            wire.decode_message(message(), given_)


def test_requests_are_equal_only_if_no_upstream_can_distinguish_them() -> None:
    def canonical(betas: str = "", **fields: Any) -> bytes:
        request = wire.decode_message(message(**fields), betas)
        return b"".join(request.codec.canonical(request))

    assert canonical() == canonical(metadata={"user_id": "u"})
    assert len({canonical(), canonical(top_k=1), canonical(stream=True), canonical("b"), canonical(system="s")}) == 5
    chat = openai.decode_chat(message())
    assert canonical() != b"".join(chat.codec.canonical(chat))


def test_a_message_has_the_allowed_tools_only() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("a", "b")]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": tools[1:]}}
    fields = as_messages(tools=tools, tool_choice=choice)
    assert ([tool["name"] for tool in fields["tools"]], fields["tool_choice"]) == (["b"], {"type": "any"})

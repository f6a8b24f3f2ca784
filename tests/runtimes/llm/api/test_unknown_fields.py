"""Fields that no table of this runtime has: listed, and without an effect on the answer or its status."""

import json
import sys
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import CallerError
from adapters.ignored_fields import IgnoredFields
from adapters.wire.openai import known_fields, ranking
from runtimes.llm.api.request_decoding import decode_chat, decode_completion
from runtimes.llm.api.text_bodies import decode_detokenize, decode_embeddings, decode_tokenize
from runtimes.llm.api.unknown_fields import EMBEDDING, GENERATING, RANKING, SWITCHES, UnknownFields
from tests.runtimes.llm.server_fixtures import MODEL, post, serving
from tests.support.newer_clients import NEW, newer, places

SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}
CHAT: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 3,
    "tools": [{"type": "function", "function": {"name": "look", "description": "d", "parameters": SCHEMA}}],
    "tool_choice": {"type": "function", "function": {"name": "look"}},
    "thinking": {"type": "disabled"},
    "stream": True,
    "stream_options": {"include_usage": True},
    "messages": [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "q"}]},
        {"role": "assistant", "content": "a", "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"x":1}'}},
        ]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "r"}]},
    ],
}  # fmt: skip
FORMED: dict[str, Any] = {
    "messages": [{"role": "user", "content": "q"}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
}
DECODED: dict[str, tuple[Any, dict[str, Any]]] = {
    "chat": (decode_chat, CHAT),
    "form": (decode_chat, FORMED),
    "outputs": (decode_chat, {"messages": FORMED["messages"], "structured_outputs": {"regex": "a"}}),
    "completion": (decode_completion, {"model": MODEL, "prompt": "q", "max_tokens": 3}),
    "embeddings": (decode_embeddings, {"model": MODEL, "input": ["q"]}),
    "tokenize": (decode_tokenize, {"model": MODEL, "messages": CHAT["messages"], "tools": CHAT["tools"]}),
    "detokenize": (decode_detokenize, {"model": MODEL, "tokens": [1]}),
}
RANKED: dict[str, tuple[Any, dict[str, Any]]] = {
    "rerank": (ranking.decode_rerank, {"query": "q", "documents": ["d"]}),
    "score": (ranking.decode_score, {"text_1": "q", "text_2": ["d"]}),
    "classify": (ranking.decode_classify, {"input": "q"}),
}


def encoded(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode()


@pytest.mark.parametrize("kind", DECODED)
def test_invented_fields_at_every_level_change_nothing_and_are_listed(kind: str) -> None:
    decode, body = DECODED[kind]
    hints = IgnoredFields()
    assert decode(encoded(newer(body)), hints) == decode(encoded(body), IgnoredFields())
    assert hints.ignored
    assert set(hints.ignored) <= set(NEW)
    with pytest.raises(CallerError, match="strict"):
        decode(encoded(newer(body)), IgnoredFields(strict=True))


@pytest.mark.parametrize("kind", RANKED)
def test_invented_fields_change_no_ranking_and_are_listed(kind: str) -> None:
    decode, body = RANKED[kind]
    extended = decode(encoded(newer(body)))
    assert set(extended.ignored) <= set(NEW)
    assert extended._replace(ignored=()) == decode(encoded(body))
    assert len(extended.ignored) > 40


def levels(value: Any) -> list[dict[str, Any]]:
    """The objects of a body."""
    if isinstance(value, list):
        return [inner for one in value for inner in levels(one)]
    return [value, *levels(list(value.values()))] if isinstance(value, dict) else []


names = st.text(min_size=1, max_size=12).filter(lambda name: name.casefold() == name)


@given(st.sampled_from(sorted(DECODED)), names, st.integers(0, 30), st.sampled_from([None, 1, "x", [{}], {"a": [2]}]))
def test_a_field_of_any_name_is_left_out_or_refused_by_its_name(kind: str, name: str, place: int, value: Any) -> None:
    decode, body = DECODED[kind]
    body = json.loads(encoded(body))
    objects = levels({**body, "tools": None} if "tools" in body else body)
    objects[0] = body
    objects[place % len(objects)].setdefault(name, value)
    with suppress(CallerError):
        decode(encoded(body), IgnoredFields())


@pytest.mark.parametrize(("refused", "kinds"), [(GENERATING, ("chat", "completion")), (EMBEDDING, ("embeddings",))])
def test_a_field_that_changes_the_answer_is_refused_by_name(refused: dict[str, str], kinds: tuple[str, ...]) -> None:
    for kind in kinds:
        decode, body = DECODED[kind]
        for name in refused.keys() - body.keys():
            with pytest.raises(CallerError) as error:
                decode(encoded(body | {name: "x"}), IgnoredFields())
            assert error.value.param == name
            for nothing in ("null",) if name in SWITCHES else ("null", "false", "[]", '""'):
                if name not in ("input", "tools", "messages", "prompt"):
                    decode(encoded(body | {name: json.loads(nothing)}), IgnoredFields())


def test_a_field_that_changes_the_scores_is_refused_by_name() -> None:
    for name in RANKING:
        body = ranking.decode_classify(encoded({"input": "q", name: True}))
        with pytest.raises(CallerError, match=name):
            UnknownFields(RANKING, IgnoredFields()).ignore(*body.ignored)


@pytest.mark.parametrize(
    ("kind", "field", "accepted"),
    [
        ("embeddings", {"normalize": False}, False),
        ("embeddings", {"normalize": True}, False),
        ("embeddings", {"add_special_tokens": False}, False),
        ("embeddings", {"add_special_tokens": True}, True),
        ("completion", {"add_special_tokens": False}, False),
        ("completion", {"add_special_tokens": True}, True),
        ("chat", {"add_special_tokens": False}, True),
        ("chat", {"regex": "(yes|no)"}, True),
    ],
)
def test_a_switch_is_refused_where_it_changes_the_answer(kind: str, field: dict[str, Any], accepted: bool) -> None:
    decode, body = DECODED[kind]
    hints = IgnoredFields()
    if accepted:
        decode(encoded(body | field), hints)
        assert hints.ignored == []
        return
    with pytest.raises(CallerError) as error:
        decode(encoded(body | field), hints)
    assert [error.value.param] == [*field]


def test_names_of_other_servers_for_forms_and_stops_are_obeyed() -> None:
    body = decode_chat(encoded({"messages": FORMED["messages"], "regex": "a+", "stop_sequences": ["x"]}))
    assert (body.guided_regex, body.stop) == ("a+", ["x"])
    assert decode_completion(encoded({"prompt": "q", "max_output_tokens": 4})).max_tokens == 4


@pytest.mark.parametrize("inner", ["images", "videos", "tool_responses", "prefix", "partial"])
def test_content_of_a_message_that_would_be_lost_is_refused(inner: str) -> None:
    message = {"role": "user", "content": "q"}
    decode_chat(encoded({"messages": [message | {inner: False}]}), IgnoredFields())
    with pytest.raises(CallerError, match=f"`{inner}`"):
        decode_chat(encoded({"messages": [message | {inner: ["x"]}]}), IgnoredFields())


def test_a_thought_within_thoughts_is_refused_after_one_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """A type that contains itself would be searched, and encoded, once for each level."""
    part: dict[str, Any] = {"type": "text", "text": "x" * 2**16}
    for _ in range(200):
        part = {"type": "thinking", "foo": 1, "thinking": [part]}
    body, written, encode = {"messages": [{"role": "assistant", "content": [part]}]}, list[int](), known_fields._encode

    def counted(value: Any) -> bytes:
        result = encode(value)
        written.append(len(result))
        return result

    monkeypatch.setattr(known_fields, "_encode", counted)
    for decode in (decode_chat, decode_tokenize):
        written.clear()
        with pytest.raises(CallerError):
            decode(encoded(body), IgnoredFields())
        assert sum(written) < 2**16


def test_a_thought_of_texts_is_one_thought() -> None:
    texts = [{"type": "text", "text": "a", "foo": 1}, {"type": "text", "text": "b"}]
    body = {"messages": [{"role": "assistant", "content": [{"type": "thinking", "thinking": texts, "foo": 1}]}]}
    hints = IgnoredFields()
    [turn] = decode_chat(encoded(body), hints).messages
    assert turn.thought == "ab"
    assert hints.ignored == ["foo"]


@pytest.mark.parametrize(("before", "after"), [("[", "]"), ('{"a":', "}")])
def test_values_that_are_nested_too_deeply_are_refused_at_any_depth(before: str, after: str) -> None:
    """Some levels are decoded, and are too many for the encoder that the search for unknown fields has."""
    refused, depths = 0, range(sys.getrecursionlimit() // 2, sys.getrecursionlimit() + 2)
    for depth in depths:
        inner = before * depth + "1" + after * depth
        body = f'{{"messages":[{{"role":"user","content":"x","foo":1,"bar":{inner}}}]}}'
        try:
            decode_chat(body.encode(), IgnoredFields())
        except CallerError:
            refused += 1
    assert 0 < refused < len(depths)


async def test_a_newer_client_has_the_same_answer_from_the_server() -> None:
    async with serving() as running:
        for path, body in (
            ("/v1/chat/completions", {**CHAT, "stream": False, "stream_options": None, "tool_choice": "none"}),
            ("/v1/completions", {"model": MODEL, "prompt": "q", "max_tokens": 3}),
            ("/tokenize", {"model": MODEL, "prompt": "q"}),
            ("/detokenize", {"model": MODEL, "tokens": [65]}),
        ):
            plain, extended = [await post(running, path, sent) for sent in (body, newer(body))]
            assert (plain[0], extended[0]) == (200, 200), extended[2]
            assert "x-headrace-ignored" not in plain[1]
            assert "new_field_0" in extended[1]["x-headrace-ignored"]
            assert len(extended[1]["x-headrace-ignored"].split(", ")) == 16
            for field in plain[2].keys() & {"choices", "tokens", "prompt", "usage"}:
                assert plain[2][field] == extended[2][field]
    assert places(CHAT) > 10

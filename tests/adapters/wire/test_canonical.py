import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from adapters.requests import GenerateRequest
from adapters.wire.canonical import FORMATTED, canonical, is_deterministic, parts_of
from adapters.wire.openai.chat import decode_chat, decode_completion

MESSAGES = [{"role": "user", "content": "hi"}]


def chat(**fields: Any) -> GenerateRequest:
    return decode_chat(json.dumps({"model": "m", "messages": MESSAGES, **fields}).encode())


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "u"},
        {"safety_identifier": "s", "metadata": {"a": "b"}, "prompt_cache_key": "k"},
        {"temperature": None, "stop": None},
        {"stream": False},
    ],
    ids=str,
)
def test_fields_without_influence_on_the_answer_are_ignored(fields: dict[str, Any]) -> None:
    assert canonical(chat(**fields)) == canonical(chat())


def test_neither_do_order_and_white_space() -> None:
    spaced = b'{ "messages" : [ {"role":"user","content":"hi"} ],\n"temperature":0.0, "model":"m"}'
    assert canonical(decode_chat(spaced)) == canonical(chat(temperature=0.0))


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "n"},
        {"stream": True},
        {"temperature": 0},
        {"seed": 18446744073709551617},
        {"max_tokens": 5},
        {"messages": [{"role": "user", "content": "hi "}]},
        {"messages": [{"role": "system", "content": "hi"}]},
        {"tools": []},
        {"unheard_of": 1},
    ],
    ids=str,
)
def test_everything_else_does(fields: dict[str, Any]) -> None:
    assert canonical(chat(**fields)) != canonical(chat())


def test_a_large_value_is_not_copied() -> None:
    request = chat(messages=[{"role": "user", "content": "x" * FORMATTED}])
    (view,) = [part for part in canonical(request) if len(part) > FORMATTED]
    assert isinstance(view, memoryview)
    assert view.obj is request.fields["messages"]


@given(st.dictionaries(st.text(max_size=3), st.text(max_size=9) | st.integers(), max_size=3), st.data())
def test_joined_parts_are_equal_only_for_equal_fields(fields: dict[str, Any], data: st.DataObject) -> None:
    """The parts are hashed one after another: no two requests may run together to the same bytes."""
    others = data.draw(st.dictionaries(st.text(max_size=3), st.text(max_size=9) | st.integers(), max_size=3))
    joined = [
        b"".join(parts_of(("/",), {k: Raw(json.dumps(v).encode()) for k, v in x.items()})) for x in (fields, others)
    ]
    ignored = {"user", "metadata", "stream", "prompt_cache_key", "safety_identifier"}
    assert not ignored & {*fields, *others}
    assert (joined[0] == joined[1]) is (fields == others)


def test_numbers_are_not_rounded_and_texts_do_not_run_together() -> None:
    assert canonical(chat(seed=18446744073709551617)) != canonical(chat(seed=18446744073709551618))
    assert canonical(chat(stop='a","b')) != canonical(chat(stop=["a", "b"]))
    prompt = json.dumps({"model": "m", "prompt": "hi"}).encode()
    assert canonical(decode_completion(prompt)) != canonical(chat())


@pytest.mark.parametrize(
    ("fields", "deterministic"),
    [
        ({}, False),
        ({"temperature": 0}, True),
        ({"temperature": 0.0}, True),
        ({"temperature": 0.1}, False),
        ({"temperature": None}, False),
        ({"temperature": "0"}, False),
        ({"seed": 7}, True),
        ({"seed": 0, "temperature": 1}, True),
        ({"seed": None}, False),
    ],
    ids=str,
)
def test_one_certain_answer(fields: dict[str, Any], deterministic: bool) -> None:
    assert is_deterministic(chat(**fields)) is deterministic

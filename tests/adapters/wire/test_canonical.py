import json
from typing import Any

import pytest

from adapters.types import GenerateRequest
from adapters.wire.canonical import canonical, is_deterministic
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
def test_what_no_answer_depends_on_makes_no_difference(fields: dict[str, Any]) -> None:
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

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from adapters.types import Feature
from adapters.wire.openai import chat as wire
from adapters.wire.openai import request_codec

TEXT = {"type": "text", "text": 'an "image_url" and {"type": "image_url", "image_url": {"url": "x"}}'}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


def uses_feature(feature: Feature, messages: Any = None, **fields: Any) -> bool:
    body = {"model": "m", "messages": messages or [{"role": "user", "content": "hi"}], **fields}
    return wire.decode_chat(json.dumps(body).encode()).uses_feature(feature)


def turns(*contents: Any) -> list[Any]:
    return [{"role": "user", "content": content} for content in contents]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (turns("image_url"), False),
        (turns([TEXT]), False),
        (turns("a", [TEXT, IMAGE], None), True),
        (turns([{"type": "input_image", "image": "…"}]), True),
        (turns([{"image_url": "https://example.org/a.png"}]), True),
        (turns([{"type": "text", "text": "image", "image_url": None}]), False),
        (turns([{"type": ["image_url"]}]), False),
        (turns(["image_url"]), False),
        (turns({"type": "image_url"}), False),
        ([{"role": "assistant", "tool_calls": [{"function": {"name": "image"}}]}], False),
        (["image_url"], False),
    ],
)
def test_an_image_is_a_part_and_no_word(messages: Any, expected: bool) -> None:
    assert uses_feature("vision", messages) is expected


def test_an_image_may_be_spelt_with_escapes() -> None:
    body = b'{"model": "m", "messages": [{"content": [{"type": "\\u0069mage\\u005furl"}]}]}'
    assert wire.decode_chat(body).uses_feature("vision")


@given(st.recursive(st.text(max_size=9) | st.just("image"), lambda inner: st.lists(inner, max_size=3)))
def test_pictures_are_detected_in_any_messages(content: Any) -> None:
    assert uses_feature("vision", turns(content, [IMAGE]))
    assert not uses_feature("vision", turns(content))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, False),
        ({"tools": None}, False),
        ({"tools": []}, False),
        ({"tools": "x"}, False),
        ({"tools": [{"type": "function"}]}, True),
        ({"tools": [], "functions": [{"name": "f"}]}, True),
        ({"tool_choice": "auto"}, False),
    ],
)
def test_tools(fields: dict[str, Any], expected: bool) -> None:
    assert uses_feature("tools", **fields) is expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, False),
        ({"type": "text"}, False),
        ({"type": "json_object"}, False),
        ({"type": "json_schema", "json_schema": {}}, True),
        ("json_schema", False),
        ({"type": {"json_schema": 1}}, False),
    ],
)
def test_json_schema(given: Any, expected: bool) -> None:
    assert uses_feature("json_schema", response_format=given) is expected


def test_a_feature_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[object] = []

    def look(fields: Mapping[str, Raw]) -> bool:
        looked.append(fields)
        return True

    monkeypatch.setitem(request_codec.FEATURE_FIELDS, "vision", look)
    request = wire.decode_chat(json.dumps({"model": "m", "messages": turns("hi")}).encode())
    assert not looked
    assert request.uses_feature("vision")
    assert request.uses_feature("vision")
    assert len(looked) == 1


def test_a_large_prompt_is_examined_when_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_codec, "EAGER", 100)
    request = wire.decode_chat(json.dumps({"model": "m", "messages": turns("x" * 100, [IMAGE])}).encode())
    monkeypatch.setattr(request_codec, "FEATURE_FIELDS", {})
    assert request.uses_feature("vision")


def test_completions_have_no_messages() -> None:
    request = wire.decode_completion(b'{"model": "m", "prompt": "image_url"}')
    assert not request.uses_feature("vision")

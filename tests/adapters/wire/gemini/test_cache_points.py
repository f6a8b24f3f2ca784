"""Ends of cached beginnings: both halves make the whole prompt, and marks keep their places on the way to Gemini."""

import json
from typing import Any

import msgspec
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import Raw

from adapters.ignored_fields import IgnoredFields
from adapters.wire.anthropic import requests as anthropic
from adapters.wire.anthropic.message_request import MessagesRequest
from adapters.wire.gemini.cache_points import CacheablePrompt, CachePlace
from adapters.wire.gemini.chat_to_content import content_fields
from adapters.wire.openai import chat as openai
from adapters.wire.prompt_cache import BEFORE, Breakpoints, ttl_of

Object = dict[str, Any]
MODEL = "gemini-3-flash"
PARTS = st.sampled_from(
    [{"text": "a"}, {"text": "bb"}, {"functionResponse": {"name": "f", "response": {}}}, {"inlineData": {"data": ""}}]
)
CONTENTS = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "model"]), "parts": st.lists(PARTS, min_size=1, max_size=3)}
    ),
    min_size=1,
    max_size=6,
)
PLACES = st.builds(CachePlace, st.integers(BEFORE, 6), st.integers(0, 3), st.sampled_from([300, 3600]))


def plain(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value))


def joined(first: list[Object], second: list[Object], *, cuts: bool) -> list[Object]:
    """The contents of both halves. `cuts`: the first of the second half is the rest of the last of the first."""
    if not cuts:
        return [*first, *second]
    whole = {**first[-1], "parts": [*first[-1]["parts"], *second[0]["parts"]]}
    return [*first[:-1], whole, *second[1:]]


@given(CONTENTS, st.booleans(), PLACES)
def test_the_halves_of_every_end_are_the_whole_prompt(
    contents: list[Object], has_head: bool, place: CachePlace
) -> None:
    head = {"systemInstruction": {"parts": [{"text": "s"}]}, "tools": [{}]} if has_head else {}
    prompt = CacheablePrompt({"contents": contents, **head, "generationConfig": {"seed": 1}})
    ends, tokens = prompt.ends(b"acme", place)
    assert [end[:2] for end in ends] == sorted({end[:2] for end in ends})
    assert all(end.tokens <= tokens for end in ends)
    for end in ends:
        before, after = plain(prompt.beginning(end)), plain(prompt.rest(end, "cachedContents/1"))
        assert joined(before.pop("contents", []), after.pop("contents"), cuts=end.parts > 0) == contents
        assert before == head
        assert after == {"cachedContent": "cachedContents/1", "generationConfig": {"seed": 1}}
        first = plain(prompt.rest(end, ""))["contents"][0]
        assert first["role"] == "user"
        assert not (end.parts and any("functionResponse" in part for part in contents[end.turns]["parts"]))
        assert end[:2] <= ((0, 0) if place.turn == BEFORE else max((place.turn, place.parts), (place.turn + 1, 0)))
    marked = prompt.at(place, ends)
    assert marked is None or marked in ends


@given(CONTENTS, CONTENTS)
def test_digests_are_equal_for_equal_beginnings_alone(one: list[Object], other: list[Object]) -> None:
    everything = CachePlace(9, 9, 300)
    seen: dict[bytes, str] = {}
    for contents in (one, other, [*one, *other], [*one, {"role": "user", "parts": [{"text": "z"}]}]):
        for owner in (b"acme", b"globex"):
            prompt = CacheablePrompt({"contents": contents})
            for end in prompt.ends(owner, everything)[0]:
                beginning = f"{owner!r} {json.dumps(plain(prompt.beginning(end)))}"
                assert seen.setdefault(end.digest, beginning) == beginning
    assert len(set(seen.values())) == len(seen)


def test_the_breakpoints_of_a_pool_are_before_the_last_turns_of_the_user() -> None:
    contents = [{"role": role, "parts": [{"text": role}]} for role in ("user", "model", "user", "model", "user")]
    prompt = CacheablePrompt({"contents": contents, "tools": [{}]})
    points = Breakpoints(system=True, tools=False, turns=2, ttl="1h", min_tokens=1)
    assert prompt.places(points) == [CachePlace(BEFORE, 0, 3600), CachePlace(2, 1, 3600), CachePlace(4, 1, 3600)]
    assert prompt.places(points._replace(turns=0)) == [CachePlace(BEFORE, 0, 3600)]
    assert CacheablePrompt({"contents": contents}).places(points._replace(turns=0)) == []


def test_a_form_that_is_not_read_has_no_prompt() -> None:
    for contents in (b"{}", b'[{"parts":{}}]', b'[{"parts":[],"more":1}]', b"[", b'"text"'):
        assert CacheablePrompt.of({"contents": Raw(contents)}) is None


def test_values_that_are_no_marks() -> None:
    values: list[Any] = [None, True, "1h", [], {}]
    assert [ttl_of(value) for value in values] == [None, None, None, None, 300]
    ttls: list[Any] = ["1h", "5m", [], None]
    assert [ttl_of({"ttl": ttl}) for ttl in ttls] == [3600, 300, 300, 300]


TURNS = st.lists(
    st.lists(st.sampled_from(["text", "image", "empty", "result"]), min_size=1, max_size=3), min_size=1, max_size=4
)
IMAGE = {"type": "base64", "media_type": "image/png", "data": "AA=="}


def _message(turns: list[list[str]], marked: tuple[int, int]) -> tuple[Object, list[str]]:
    """A message whose texts are their own places, and the texts up to the mark."""
    messages, before, calls = list[Object](), list[str](), 0
    for number, kinds in enumerate(turns):
        blocks = list[Object]()
        ids = [f"c{calls + place}" for place, kind in enumerate(kinds) if kind == "result"]
        calls += len(kinds)
        uses = [{"type": "tool_use", "id": id_, "name": "f", "input": {}} for id_ in ids]
        messages.append({"role": "assistant", "content": [{"type": "text", "text": f"a{number}"}, *uses]})
        before += [f"a{number}"] if number <= marked[0] else []
        for place, kind in enumerate(sorted(kinds, key=lambda kind: kind != "result")):
            name = f"t{number}.{place}"
            block: Object = {"type": "text", "text": "" if kind == "empty" else name}
            if kind == "image":
                block = {"type": "image", "source": IMAGE}
            elif kind == "result":
                block = {"type": "tool_result", "tool_use_id": ids[place], "content": name}
            if (number, place) == marked:
                block["cache_control"] = {"type": "ephemeral"}
            if (number, place) <= marked and kind in ("text", "result"):
                before.append(name)
            blocks.append(block)
        messages.append({"role": "user", "content": blocks})
    return {"model": "m", "max_tokens": 1, "messages": messages}, before


@given(TURNS, st.data())
def test_the_mark_of_a_message_has_the_same_place_in_contents(turns: list[list[str]], data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(turns) - 1))
    body, before = _message(turns, (number, data.draw(st.integers(0, len(turns[number]) - 1))))
    assume('"text": "", "cache_control"' not in json.dumps(body))  # Anthropic refuses the mark of an empty text
    request = anthropic.decode_message(json.dumps(body).encode(), "")
    assert isinstance(request, MessagesRequest)
    fields, left_out, marks = request.payload.translated()
    assert left_out == ("cache_control",)
    translated = content_fields(fields, MODEL, IgnoredFields(), of_vertex=False, marks=marks)
    (place,) = translated.places
    contents = plain(translated.fields["contents"])
    cut = [*contents[: place.turn], {"parts": contents[place.turn]["parts"][: place.parts]}]
    parts = [part for content in cut for part in content["parts"]]
    texts = [part.get("text") or part.get("functionResponse", {}).get("response", {}).get("output") for part in parts]
    assert [text for text in texts if text and text != "."] == before


def test_the_marks_of_a_chat_have_the_same_places_in_contents() -> None:
    mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    tool = {"type": "function", "function": {"name": "f"}, **mark}
    text = {"type": "text", "text": "hi"}
    messages = [
        {"role": "system", "content": "s", **mark},
        {"role": "user", "content": [text, {**text, **mark}, text]},
        {"role": "user", "content": "more"},
        {"role": "assistant", "content": "yes", **mark},
        {"role": "user", "content": "again"},
    ]
    body = {"model": "m", "messages": messages, "tools": [tool], "cache_control": {"type": "ephemeral"}}
    request = openai.decode_chat(json.dumps(body).encode())
    places = content_fields(request.fields, MODEL, IgnoredFields(), of_vertex=False).places
    assert sorted(places) == [
        CachePlace(BEFORE, 0, 3600), CachePlace(BEFORE, 0, 3600), CachePlace(0, 2, 3600), CachePlace(1, 1, 3600),
        CachePlace(2, 1, 300),
    ]  # fmt: skip

"""Marks of prompt caches: where they are, how many, and that nothing else changes."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from adapters.ignored_fields import IgnoredFields
from adapters.requests import Fields
from adapters.types import BYTES_PER_TOKEN
from adapters.wire.anthropic.chat_to_message import message_fields
from adapters.wire.openai import chat as wire
from adapters.wire.prompt_cache import MOST, Breakpoints, marked_chat, marked_message
from adapters.wire.reported_usage import read

LONG = "word " * 1000
ALL = Breakpoints(system=True, tools=True, turns=4, ttl="5m", min_tokens=1024)
TOOL = {"type": "function", "function": {"name": "f", "description": LONG, "parameters": {"type": "object"}}}


def fields_of(body: dict[str, Any]) -> Fields:
    return msgspec.json.decode(json.dumps(body), type=dict[str, Raw])


def plain(fields: Fields) -> Any:
    return json.loads(msgspec.json.encode(fields))


def marks(value: Any) -> int:
    if isinstance(value, dict):
        return ("cache_control" in value) + sum(map(marks, value.values()))
    return sum(map(marks, value)) if isinstance(value, list) else 0


def unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: unmarked(inner) for name, inner in value.items() if name != "cache_control"}
    return [unmarked(inner) for inner in value] if isinstance(value, list) else value


TEXTS = st.sampled_from(["", " ", "hi", "word " * 600, LONG])
MESSAGES = st.lists(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["system", "user", "assistant", "tool"]),
        TEXTS | st.lists(st.builds(lambda text: {"type": "text", "text": text}, TEXTS), max_size=2) | st.none(),
    ),
    max_size=8,
)
POINTS = st.builds(
    Breakpoints, st.booleans(), st.booleans(), st.integers(0, 4), st.sampled_from(["5m", "1h"]), st.integers(1, 2000)
)


@given(MESSAGES, st.lists(st.just(TOOL), max_size=2), POINTS)
def test_at_most_four_beginnings_of_a_chat_are_marked_and_nothing_else_changes(
    messages: list[dict[str, Any]], tools: list[Any], points: Breakpoints
) -> None:
    body = {"model": "m", "messages": messages, "tools": tools, "temperature": 1.50}
    before = fields_of(body)
    after = marked_chat(before, points)
    assert marks(plain(after)) <= MOST
    assert unmarked(plain(after)) == body
    assert bytes(after["temperature"]) == b"1.5"
    if len(json.dumps([messages, tools])) < points.min_tokens * BYTES_PER_TOKEN:
        assert after is before
    assert marked_chat(after, points) is after or marks(plain(after)) == 0  # marks of its own stay


@given(MESSAGES, TEXTS | st.none(), POINTS)
def test_at_most_four_blocks_of_a_message_are_marked_and_each_has_a_text(
    messages: list[dict[str, Any]], system: str | None, points: Breakpoints
) -> None:
    messages = [
        message for message in messages if message["content"] is not None and message["role"] in ("user", "assistant")
    ]
    body = {"messages": messages} | ({} if system is None else {"system": system})
    after = plain(marked_message(fields_of(body), points))
    assert marks(after) <= MOST
    for message in [{"content": after.get("system", "")}, *after["messages"]]:
        for block in message["content"] if isinstance(message["content"], list) else ():
            assert "cache_control" not in block or block["text"]
            assert "cache_control" not in message


def test_tools_the_system_prompt_and_the_last_turns_are_marked_in_this_order_of_importance() -> None:
    turns = [{"role": "user", "content": f"{number} {LONG}"} for number in range(5)]
    body = {"messages": [{"role": "system", "content": LONG}, *turns], "tools": [TOOL, TOOL]}
    after = plain(marked_chat(fields_of(body), ALL))
    assert ["cache_control" in tool for tool in after["tools"]] == [False, True]
    assert ["cache_control" in message for message in after["messages"]] == [True, False, False, False, True, True]
    hour = plain(marked_chat(fields_of(body), ALL._replace(ttl="1h", turns=0, tools=False)))
    assert hour["messages"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert marks(hour) == 1


def test_a_request_with_marks_of_its_own_is_left_as_it_is() -> None:
    marked = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
    body = {"messages": [{"role": "system", "content": LONG}, {"role": "user", "content": [marked]}]}
    fields = fields_of(body)
    assert marked_chat(fields, ALL) is fields
    mentioned = fields_of({"messages": [{"role": "user", "content": LONG + '"cache_control"'}]})
    assert marks(plain(marked_chat(mentioned, ALL))) == 1


ODD: list[Any] = ["odd", [1], [{"role": 5, "content": LONG}], [{"role": "user", "content": LONG}, 7]]


@pytest.mark.parametrize("messages", ODD)
def test_a_malformed_request_is_left_to_the_decoder_of_its_protocol(messages: Any) -> None:
    fields = fields_of({"messages": messages})
    assert marked_chat(fields, ALL) is fields
    assert marked_message(fields, ALL) is fields


def test_marks_of_a_chat_arrive_at_anthropics_api() -> None:
    body = {
        "model": "m",
        "messages": [{"role": "system", "content": LONG}, {"role": "user", "content": LONG}],
        "tools": [TOOL],
    }
    request = wire.decode_chat(json.dumps(body).encode())
    request = request.with_fields(marked_chat(request.fields, ALL))
    sent = plain(message_fields(request, None, 100, IgnoredFields()))
    assert [marks(sent[name]) for name in ("tools", "system", "messages")] == [1, 1, 1]
    assert sent["system"][-1]["cache_control"] == {"type": "ephemeral"}


def test_the_part_of_a_cache_write_that_lasts_an_hour_is_read() -> None:
    reported = {
        "input_tokens": 10, "output_tokens": 2, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 300,
        "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 200},
    }  # fmt: skip
    report = read(reported, beside=True)
    assert report is not None
    usage = report.usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.cached_tokens, usage.cache_write_tokens, usage.cache_hour_tokens) == (
        315,
        5,
        300,
        200,
    )

"""Plain chats: the one loop gives the same contents as the way for every chat."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adapters.errors import CallerError
from adapters.ignored_fields import IgnoredFields
from adapters.wire.gemini import generations, signatures
from adapters.wire.gemini.contents import turns_of, whole_turns
from adapters.wire.gemini.plain_turns import plain_turns
from adapters.wire.gemini.sent_messages import MESSAGES, SentMessage

Object = dict[str, Any]
OWN = {"google": {"thought_signature": "c2lnbmVk"}}
IDS = st.sampled_from(["a", "b", "c", "toolu_1", "d__thought__c2ln", ""])
CONTENTS = st.sampled_from(["hi", "", " ", "so", None]) | st.just([{"type": "text", "text": "in a list"}])
ARGUMENTS = st.sampled_from(["{}", "", '{"n": [1, "π"]}', "not JSON", '{"INVALID_JSON": "x"}'])


@st.composite
def chats(draw: st.DrawFn) -> list[Object]:
    """Messages of which many are plain, and many are wrong, empty or in another order."""
    messages = list[Object]()
    for role in draw(st.lists(st.sampled_from(["user", "assistant", "tool", "system", "developer"]), max_size=7)):
        message: Object = {"role": role, "content": draw(CONTENTS)}
        if role == "tool":
            message["tool_call_id"] = draw(IDS | st.none())
        elif role == "assistant":
            message |= draw(st.sampled_from([{}, {}, {"refusal": "no"}, {"extra_content": OWN}, {"reasoning": "hm"}]))
            named = {"name": draw(st.sampled_from(["f", "a b", "0day"])), "arguments": draw(ARGUMENTS)}
            calls: list[Object] = [{"id": id_, "function": named} for id_ in draw(st.lists(IDS, max_size=3))]
            is_signed: bool = draw(st.booleans())
            if calls and is_signed:
                calls[0] |= draw(st.sampled_from([{"extra_content": OWN}, {"provider_specific_fields": OWN["google"]}]))
            message["tool_calls"] = calls or None
        messages.append(message)
    return messages


def decoded(messages: list[Object]) -> list[SentMessage]:
    return MESSAGES.reporting(IgnoredFields()).decode(json.dumps(messages).encode())


def plain(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value))


def call(id_: str) -> Object:
    return {"id": id_, "function": {"name": "f", "arguments": "{}"}}


def result(id_: str) -> Object:
    return {"role": "tool", "tool_call_id": id_, "content": "12"}


LOOP: list[Object] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Call f."},
    {"role": "assistant", "content": None, "tool_calls": [{**call("a"), "extra_content": OWN}, call("b")]},
    result("a"),
    result("b"),
    {"role": "assistant", "content": "24"},
]


@settings(max_examples=400, deadline=None)
@given(chats(), st.sampled_from(["gemini-3-flash", "gemini-2.5-pro"]), st.booleans())
@example(LOOP, "gemini-3-flash", True)
def test_a_plain_chat_is_the_same_on_both_ways(messages: list[Object], model: str, has_ids: bool) -> None:
    generation = generations.generation_of(model)
    unsigned = signatures.SKIPPED if generation.signed else None
    turns = plain_turns(decoded(messages), has_ids=has_ids, unsigned=unsigned)
    if turns is not None:
        expected = whole_turns(decoded(messages), generation, has_ids=has_ids)
        assert plain(turns) == plain([expected.system, expected.contents])


def test_a_chat_with_tools_and_signatures_is_plain() -> None:
    """Else the property above would compare nothing."""
    assert plain_turns(decoded(LOOP), has_ids=True, unsigned=None) is not None


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "system", "content": "s"}],
        [{"role": "assistant", "content": "a"}],
        [{"role": "user", "content": ""}],
        [*LOOP[:3], result("b"), result("a")],
        [*LOOP[:3], result("c")],
        [*LOOP, {"role": "system", "content": "late"}],
        [{"role": "user", "content": "hi", "cache_control": {"type": "ephemeral"}}],
    ],
)
def test_other_chats_are_not_plain(messages: list[Object]) -> None:
    assert plain_turns(decoded(messages), has_ids=True, unsigned=None) is None


def test_an_error_of_a_chat_that_is_not_plain_names_its_message() -> None:
    raw = {"messages": msgspec.Raw(json.dumps([*LOOP[:3], result("c")]).encode())}
    with pytest.raises(CallerError, match=r"messages\[3\].*tool_call_id"):
        turns_of(raw, generations.generation_of("gemini-3-flash"), IgnoredFields(), has_ids=True)

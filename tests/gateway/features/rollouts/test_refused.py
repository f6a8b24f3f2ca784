"""Refusals in whole answers and in streams, of chats, completions and Responses."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.traffic.answer_refusals import MOST_BYTES, RefusalReader, body_refuses

SORRY = "I'm sorry, but I can't help with that."


def chat(content: Any, **message: Any) -> dict[str, Any]:
    finish = message.pop("finish_reason", "stop")
    return {"choices": [{"index": 0, "message": {"content": content, **message}, "finish_reason": finish}]}


@pytest.mark.parametrize(
    ("body", "refuses"),
    [
        (chat(SORRY), True),
        (chat("Here is the answer."), False),
        (chat(None, refusal="No."), True),
        (chat("", finish_reason="content_filter"), True),
        (chat([{"type": "text", "text": SORRY}]), True),
        (chat(f"He said: {SORRY}"), False),
        ({"choices": [{"index": 0, "text": SORRY}]}, True),
        ({"output": [{"content": [{"type": "output_text", "text": SORRY}]}]}, True),
        ({"output": [{"content": [{"type": "refusal", "refusal": "No."}]}]}, True),
        ({"output": [{"content": [{"type": "output_text", "text": "Yes."}]}]}, False),
        ({"output": None}, False),
        ({"choices": None}, False),
        ({"choices": [None, 1]}, False),
        ({}, False),
    ],
)
def test_a_whole_answer(body: dict[str, Any], refuses: bool) -> None:
    assert body_refuses(json.dumps(body).encode()) is refuses


@pytest.mark.parametrize("body", [None, b"", b"[]", b"\xff", b'"x"', b'{"choices": [' * 3000, b" " * (MOST_BYTES + 1)])
def test_an_unreadable_answer_is_no_refusal(body: bytes | None) -> None:
    assert body_refuses(body) is False


def events(pieces: list[str], finish: str = "stop") -> list[bytes]:
    deltas: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces]
    deltas.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return [b"data: " + json.dumps(delta).encode() + b"\n\n" for delta in deltas] + [b"data: [DONE]\n\n"]


@given(st.lists(st.integers(1, len(SORRY)), max_size=6), st.booleans())
def test_a_stream_is_read_wherever_it_is_cut(cuts: list[int], together: bool) -> None:
    places = [0, *sorted(cuts), len(SORRY)]
    sent = events([SORRY[a:b] for a, b in pairwise(places)])
    reader = RefusalReader()
    for piece in [b"".join(sent)] if together else sent:
        reader.add(piece)
    assert reader.refused()


def test_a_long_stream_is_decided_by_its_begin_and_its_end() -> None:
    for finish, refuses in (("stop", False), ("content_filter", True)):
        reader = RefusalReader()
        for piece in events(["word "] * 20_000, finish):
            reader.add(piece)
        assert reader.refused() is refuses
        assert reader._head_bytes < 40_000


def test_events_of_responses() -> None:
    reader = RefusalReader()
    reader.add(b'event: response.refusal.delta\ndata: {"type": "response.refusal.delta", "delta": "No."}\n\n')
    assert reader.refused()
    reader = RefusalReader()
    reader.add(b'event: x\ndata: {"type": "response.output_text.delta", "delta": "Fine."}\n\n: comment\n\n')
    assert not reader.refused()

"""Streams of chats whose texts are cut in many ways."""

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from adapters.fake import Script
from adapters.types import Usage

CUTS = 25
"""Seeded ways of cutting a text, for each API and each part of an answer."""

Delta = dict[str, Any]


def event(delta: Delta, index: int = 0, finish: str | None = None, **fields: Any) -> bytes:
    choice = {"index": index, "delta": delta, "finish_reason": finish, **fields}
    return b"data: " + json.dumps({"id": "1", "choices": [choice]}).encode() + b"\n\n"


def arguments_of(part: str) -> Delta:
    return {"tool_calls": [{"index": 0, "function": {"arguments": part}}]}


def custom_of(part: str) -> Delta:
    return {"tool_calls": [{"index": 0, "id": "c", "type": "custom", "custom": {"name": "g", "input": part}}]}


PARTS: dict[str, Callable[[str], Delta]] = {
    "content": lambda part: {"content": part},
    "content_parts": lambda part: {"content": [{"type": "text", "text": part}]},
    "reasoning_content": lambda part: {"reasoning_content": part},
    "reasoning": lambda part: {"reasoning": part},
    "refusal": lambda part: {"refusal": part},
    "arguments": arguments_of,
    "custom": custom_of,
    "name": lambda part: {"tool_calls": [{"index": 0, "function": {"name": part}}]},
    "function_call": lambda part: {"function_call": {"name": "f", "arguments": part}},
}
"""The parts of a delta in which a text can leave."""


def script(pieces: list[str], delta: Callable[[str], Delta], *, index: int = 0, **fields: Any) -> Script:
    first = delta("").get("tool_calls")
    named = {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}]}
    start = [event(named, index)] if delta is arguments_of else []
    events = [*start, *(event(delta(piece), index, **fields) for piece in pieces)]
    end = event({}, index, "tool_calls" if first else "stop")
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12}}\n\n'
    return Script(chunks=(*events, end, usage, b"data: [DONE]\n\n"), usage=Usage(5, 7, exact=True))


def cuts_of(text: str, seed: int) -> Iterator[list[str]]:
    """Ways of cutting a text: each size of chunks from 1 to 8, the whole, and random places."""
    rng = random.Random(seed)
    for size in (*range(1, 9), len(text)):
        yield [text[at : at + size] for at in range(0, len(text), size)]
    for _ in range(CUTS - 9):
        ends = [*sorted(rng.sample(range(len(text)), rng.randint(1, 12))), len(text)]
        yield [text[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True) if start < end]


def texts_of(value: Any) -> Iterator[str]:
    """The texts of deltas in an event of any API."""
    if isinstance(value, dict):
        for name, each in value.items():
            if isinstance(each, str) and name in ("content", "text", "delta", "thinking", "partial_json"):
                yield each
            else:
                yield from texts_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts_of(each)


def events_of(received: str) -> list[Any]:
    return [json.loads(line[5:]) for line in received.splitlines() if line.startswith("data: {")]

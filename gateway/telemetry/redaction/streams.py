"""The texts of a streamed answer.

An upstream cuts a text anywhere, so that no single event of a stream has a whole address or key. The texts are joined
before they are redacted, and the events themselves are not recorded.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from adapters.wire import decoding

_TEXTS = frozenset(
    {
        "arguments", "content", "delta", "name", "partial_json", "reasoning", "reasoning_content", "refusal", "text",
        "text_output", "thinking",
    }
)  # fmt: skip
"""Fields of events whose values continue a text."""
_REPEATS = (".added", ".completed", ".created", ".done", ".in_progress", ".incomplete")
"""Ends of the types of events that repeat a text."""
_INDICES = ("output_index", "content_index", "index")


def texts_of(stream: bytes) -> dict[str, str]:
    """The joined texts of a stream of server-sent events, by their place in the answer, such as `0.content`."""
    parts: dict[str, list[str]] = {}
    for event in events_of(stream):
        if isinstance(event, dict) and str(event.get("type", "")).endswith(_REPEATS):
            continue
        for place, text in _texts(event, ""):
            parts.setdefault(place, []).append(text)
    return {place: "".join(pieces) for place, pieces in parts.items()}


def events_of(stream: bytes) -> Iterator[Any]:
    """The decoded data of each event. Data that is no JSON, such as `[DONE]`, is left out."""
    data: list[bytes] = []
    for line in (*stream.replace(b"\r\n", b"\n").split(b"\n"), b""):
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            joined, data = b"\n".join(data), []
            try:
                yield msgspec.json.decode(joined)
            except decoding.MALFORMED_JSON:
                continue


def _texts(value: Any, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for item in value:
            yield from _texts(item, place)
    elif isinstance(value, dict):
        for index in _INDICES:
            if isinstance(number := value.get(index), int):
                place += f"{number}."
        for name, inner in value.items():
            if isinstance(inner, str):
                if name in _TEXTS and inner:
                    yield place + name, inner
            elif name != "usage":
                yield from _texts(inner, place)

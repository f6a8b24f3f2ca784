"""Whether an answer of a language model refuses, from the bytes that the client receives."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from adapters.answer import Answer, TappedAnswer
from adapters.errors import InferenceError
from adapters.wire import decoding
from gateway.traffic.generated_text import GeneratedText, Object, events_of

MOST_BYTES = 262_144
"""The most bytes of a whole answer that are decoded; larger ones count as no refusals."""
_HEAD_BYTES = 32_768
"""A stream's first bytes have the text that decides."""
_object = msgspec.json.Decoder(Object).decode


class RefusalReader:
    """Reads the begin and the end of an answer as the client does: the first text, and the finish reason."""

    __slots__ = ("_head", "_head_bytes", "_tail")

    def __init__(self) -> None:
        self._head: list[bytes] = []
        self._head_bytes = 0
        self._tail: tuple[bytes, bytes] = (b"", b"")

    def add(self, piece: bytes) -> None:
        """Take a piece of a stream."""
        if self._head_bytes < _HEAD_BYTES:
            self._head.append(piece)
            self._head_bytes += len(piece)
        else:
            self._tail = self._tail[1], piece

    def refused(self) -> bool:
        """Whether the answer refuses. An answer that cannot be decoded does not."""
        text = GeneratedText()
        try:
            for piece in (*self._head, *self._tail):
                for _, event in events_of(piece):
                    _take(text, event)
        except (InferenceError, *decoding.MALFORMED_JSON):
            return False
        return text.refuses


def tapped(answer: Answer) -> tuple[Answer, RefusalReader]:
    """A stream whose pieces a reader receives too."""
    reader = RefusalReader()
    return TappedAnswer(answer, reader), reader


def body_refuses(body: bytes | None) -> bool:
    """Whether a whole answer refuses."""
    if body is None or len(body) > MOST_BYTES:
        return False
    text = GeneratedText()
    try:
        _take(text, _object(body))
    except decoding.MALFORMED_JSON:
        return False
    return text.refuses


def _take(text: GeneratedText, body: Mapping[str, Any] | None) -> None:
    """Add a body or an event, of chats and completions or of Responses."""
    if body is None:
        return
    if "choices" in body:
        text.take(body)
        return
    for part in _parts(body):
        content = part.get("text") or part.get("delta")
        refusal = part.get("refusal") or (content if part.get("type") == "response.refusal.delta" else None)
        message = {"refusal": refusal} if refusal else {"content": content}
        text.take({"choices": [{"message": message}]})


def _parts(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The texts of a Response, or of an event that adds to one."""
    if body.get("type") in ("response.output_text.delta", "response.refusal.delta"):
        yield body
    output = body.get("output")
    for item in output if isinstance(output, list) else ():
        content = item.get("content") if isinstance(item, dict) else None
        yield from (part for part in (content if isinstance(content, list) else ()) if isinstance(part, dict))

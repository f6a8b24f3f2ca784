"""Whether a provider's filter has ended an answer before anything was written."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from adapters.answer import Answer
from adapters.errors import ContentRefused, InferenceError
from adapters.stream import DerivedStream
from adapters.wire import decoding
from gateway.traffic.generated_text import Object, events_of

Verdict = Literal["open", "written", "filtered"]
"""`open`: nothing is written yet."""
MOST_HELD = 262_144
"""The most bytes of a stream that are held back, and of a whole answer that is decoded."""
_FILTERED = frozenset({"content_filter", "refusal"})
_TEXTS = ("content", "tool_calls", "function_call", "refusal", "reasoning_content", "reasoning", "audio")
"""The fields of a message or a delta that a client shows."""
_object = msgspec.json.Decoder(Object).decode


async def unless_filtered(answer: Answer) -> Answer:
    """The answer, once something is written. Raises `ContentRefused` for a filtered one, which is closed then.

    The beginning of a stream is held back until its first text, thought or call.
    """
    if answer.status >= 400:
        return answer
    if answer.body is not None:
        if len(answer.body) <= MOST_HELD and _of_body(answer.body) == "filtered":
            raise _refused(answer)
        return answer
    stream = _HeldBeginning(answer)
    try:
        await stream.hold()
    except BaseException:
        await stream.aclose()
        raise
    return stream


class _HeldBeginning(DerivedStream):
    """A stream whose first pieces are held back."""

    __slots__ = ("_held",)

    def __init__(self, inner: Answer) -> None:
        super().__init__(inner)
        self._held: list[bytes] = []

    async def hold(self) -> None:
        """Read until something is written. Raises `ContentRefused`, or what the stream raises."""
        size = 0
        while size <= MOST_HELD:
            try:
                piece = await self._inner.__anext__()
            except StopAsyncIteration:
                return
            self._held.append(piece)
            size += len(piece)
            if (verdict := _of_piece(piece)) == "filtered":
                raise _refused(self._inner)
            if verdict == "written":
                return

    async def _next(self, patience: float | None = None) -> bytes:
        return self._held.pop(0) if self._held else await self._inner.__anext__()


def _refused(answer: Answer) -> ContentRefused:
    error = ContentRefused("The provider refuses the content.", code="content_filter")
    error.note(pool=answer.pool, endpoint=answer.endpoint)
    return error


def _of_body(body: bytes) -> Verdict:
    try:
        return verdict_of(_object(body))
    except decoding.MALFORMED_JSON:
        return "written"


def _of_piece(piece: bytes) -> Verdict:
    try:
        for _, event in events_of(piece):
            if event is not None and (verdict := verdict_of(event)) != "open":
                return verdict
    except (InferenceError, *decoding.MALFORMED_JSON):
        return "written"
    return "open"


def verdict_of(body: Mapping[str, Any]) -> Verdict:
    """The verdict of a whole answer or an event, of chats, completions, Messages or Responses."""
    if isinstance(choices := body.get("choices"), list):
        return _of_choices([choice for choice in choices if isinstance(choice, dict)])
    kind = body.get("type")
    if kind == "message":
        return "filtered" if body.get("stop_reason") in _FILTERED else "written"
    if kind == "message_delta":
        return "filtered" if _value(body.get("delta"), "stop_reason") in _FILTERED else "written"
    if kind in ("content_block_delta", "error") or _value(body.get("content_block"), "type") == "tool_use":
        return "written"
    if body.get("object") == "response" or (isinstance(kind, str) and kind.startswith("response.")):
        return _of_response(body, kind)
    return "open"


def _of_choices(choices: list[Mapping[str, Any]]) -> Verdict:
    for choice in choices:
        part = choice.get("message") or choice.get("delta")
        texts = part if isinstance(part, dict) else {}
        if choice.get("text") or any(texts.get(name) for name in _TEXTS):
            return "written"
    ends = [end for choice in choices if (end := choice.get("finish_reason")) is not None]
    if not ends:
        return "open"
    return "filtered" if all(end in _FILTERED for end in ends) else "written"


def _of_response(body: Mapping[str, Any], kind: object) -> Verdict:
    if isinstance(kind, str) and kind.endswith(".delta"):
        return "written"
    response = body.get("response") if kind is not None else body
    if kind not in (None, "response.incomplete", "response.completed", "response.failed"):
        return "open"
    if _value(_value(response, "incomplete_details"), "reason") not in _FILTERED:
        return "written"
    output = _value(response, "output")
    return "written" if isinstance(output, list) and any(_value(item, "content") for item in output) else "filtered"


def _value(section: Any, name: str) -> Any:
    return section.get(name) if isinstance(section, dict) else None

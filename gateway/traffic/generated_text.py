"""Generated texts: the values of whole and of streamed answers, with their log-probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from adapters.answer import Answer
from adapters.stream import DerivedStream
from adapters.wire import decoding, sse
from adapters.wire.openai.chat import DONE
from policies.pipelines.acceptance import FINISH_REASONS, GeneratedAnswer, is_refusal, values_of

Object = dict[str, Any]
Values = Mapping[str, Any]
_object = msgspec.json.Decoder(Object).decode
_encode = msgspec.json.Encoder().encode


def content_text(content: Any) -> str:
    """The text of a message's content, whose parts are joined by line feeds."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


class GeneratedText:
    """The generated part of an answer so far, from a whole body or the events of a stream. Only the first choice."""

    __slots__ = ("_finish", "_logprobs", "_refusal", "_texts", "_tool_calls", "tokens")

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._logprobs: list[float] = []
        self._refusal = ""
        self._finish: str | None = None
        self._tool_calls: set[int] = set()
        self.tokens = 0
        """Tokens so far: those with a log-probability, or events with a text."""

    def take(self, body: Mapping[str, Any]) -> None:
        """Add a whole body, or the next event of a stream."""
        choices = body.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and not choice.get("index"):
                self._take(choice)

    def _take(self, choice: Object) -> None:
        part = choice.get("message") or choice.get("delta")
        part = part if isinstance(part, dict) else {}
        text = choice.get("text")
        text = text if isinstance(text, str) else content_text(part.get("content"))
        self._texts.append(text)
        refusal = part.get("refusal")
        self._refusal += refusal if isinstance(refusal, str) else ""
        calls = part.get("tool_calls")
        for index, call in enumerate(calls if isinstance(calls, list) else ()):
            self._tool_calls.add(call.get("index", index) if isinstance(call, dict) else index)
        logprobs = list(_logprobs(choice.get("logprobs")))
        self._logprobs += logprobs
        self.tokens += len(logprobs) or bool(text)
        if isinstance(choice.get("finish_reason"), str):
            self._finish = choice["finish_reason"]

    @property
    def complete(self) -> bool:
        """Whether the answer has its finish reason."""
        return self._finish is not None

    @property
    def refuses(self) -> bool:
        """Whether the answer so far refuses."""
        return is_refusal(GeneratedAnswer("".join(self._texts), self._finish, self._refusal or None))

    def values(self, tokens: int | None = None) -> Values:
        """The values of the answer. `tokens` is the server's count. An answer without its end counts as stopped."""
        finish = "stop" if self._finish is None else self._finish if self._finish in FINISH_REASONS else "other"
        text = "".join(self._texts)
        count = tokens or self.tokens
        flat = values_of(
            GeneratedAnswer(text, finish, self._refusal or None, self._logprobs, count, len(self._tool_calls))
        )
        nested: Object = {"tokens": count}
        for path, value in flat.items():
            inner = nested
            for part in path[:-1]:
                inner = inner.setdefault(part, {})
            inner[path[-1]] = value
        return nested


def _logprobs(value: Any) -> Iterator[float]:
    """The log-probabilities of a chat's or a completion's tokens."""
    value = value if isinstance(value, dict) else {}
    content, tokens = value.get("content"), value.get("token_logprobs")
    for entry in content if isinstance(content, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("logprob"), int | float):
            yield entry["logprob"]
    for each in tokens if isinstance(tokens, list) else ():
        if isinstance(each, int | float):
            yield each


def events_of(piece: bytes) -> Iterator[tuple[bytes, Object | None]]:
    """The events of a piece of a stream, each with its decoded data; None for comments and the end of the stream."""
    for event in piece.split(b"\n\n"):
        if event:
            data = sse.data_of(event)
            yield event + b"\n\n", decoding.decode(_object, data, "stream") if data and data != DONE else None


def without_logprobs(body: Object) -> bytes:
    """A body or an event without the log-probabilities that the client did not request."""
    for choice in body.get("choices") or ():
        if isinstance(choice, dict) and "logprobs" in choice:
            choice["logprobs"] = None
    return _encode(body)


class HeldStream(DerivedStream):
    """A stream of a generated text whose beginning is held until it is known whether the client receives it."""

    __slots__ = ("_held", "_strip", "text")

    def __init__(self, inner: Answer, *, strip: bool) -> None:
        super().__init__(inner)
        self.text = GeneratedText()
        self._strip = strip
        """Whether log-probabilities are removed."""
        self._held: list[bytes] = []

    async def hold(self, tokens: int | None) -> None:
        """Read so many tokens, or all if None. Raises `InferenceError` if the stream fails before that."""
        while not self.text.complete and (tokens is None or self.text.tokens < tokens):
            try:
                piece = await self._inner.__anext__()
            except StopAsyncIteration:
                return
            self._held.append(self._taken(piece))

    def _taken(self, piece: bytes) -> bytes:
        out = []
        for event, body in events_of(piece):
            if body is not None:
                self.text.take(body)
            out.append(sse.encode(without_logprobs(body)) if body is not None and self._strip else event)
        return b"".join(out)

    async def _next(self, patience: float | None = None) -> bytes:
        if self._held:
            return self._held.pop(0)
        piece = await self._inner.__anext__()
        if not self._strip:
            return piece
        return b"".join(
            event if body is None else sse.encode(without_logprobs(body)) for event, body in events_of(piece)
        )

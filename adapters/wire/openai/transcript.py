"""Records a stream, so that its rest can be requested after a break, and aligns the rest with it."""

from typing import Any

import msgspec
from msgspec import Raw

from adapters.requests import GenerateRequest
from adapters.types import Usage
from adapters.wire import decoding, reported_usage, sse
from adapters.wire.openai.chat import DONE
from adapters.wire.openai.continuation import NULL, Fields, Mode, after_text, after_tokens, initial_fields
from adapters.wire.openai.operation_fields import NOTHING

MAX_TRANSCRIPT = 1024 * 1024
"""Characters or tokens beyond which a stream is not resumed."""

_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(Fields).decode
_choices = msgspec.json.Decoder(list[Fields]).decode
_whole = msgspec.json.Decoder(dict[str, Any]).decode

_HEAD = ("id", "created", "model", "system_fingerprint")
_TOKEN_IDS = b',"token_ids":['


_ABSENT = (NULL,) * 4


class _Delta(msgspec.Struct):
    content: str | None = None
    audio: Raw = NULL
    function_call: Raw = NULL
    reasoning: Raw = NULL
    reasoning_content: Raw = NULL
    refusal: Raw = NULL
    tool_calls: Raw = NULL

    @property
    def is_plain(self) -> bool:
        others = (self.audio, self.function_call, self.refusal, self.tool_calls)
        return others == _ABSENT or all(bytes(other) in NOTHING for other in others)

    @property
    def is_thought(self) -> bool:
        return any(bytes(value) not in NOTHING for value in (self.reasoning, self.reasoning_content))


class _Choice(msgspec.Struct):
    index: int = 0
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []


_chunk = msgspec.json.Decoder(_Chunk).decode


class Transcript:
    """The transcript of one stream. `take` receives each piece of it and of the streams that resume it."""

    __slots__ = (
        "_before",
        "_count",
        "_head",
        "_complete",
        "_mode",
        "_resumed",
        "_size",
        "_text",
        "_tokens",
        "finished",
    )

    def __init__(self, mode: Mode) -> None:
        self._mode = mode
        self._head: Fields = {}
        self._text: list[str] = []
        self._tokens: list[int] = []
        self._count = 0
        self._size = 0
        self._complete = True
        self._resumed = False
        self._before = 0
        self.finished = False
        """A choice has its finish_reason: the response is complete."""

    # ── the stream ────────────────────────────────────────────────────────────────────────────────────

    def take(self, piece: bytes) -> bytes:
        """Process whole events. Returns them in the client's form; empty if nothing is left for the client."""
        return b"".join([self._event(event) for event in piece.split(b"\n\n") if event])

    def _event(self, event: bytes) -> bytes:
        data = sse.data_of(event)
        if not data or data == DONE:
            return event + b"\n\n"
        if self._complete and not self.finished:
            self._note(data)
        if self._resumed and self._head:
            aligned = self._aligned(data)
            if aligned is None:
                return b""
            event = sse.encode(aligned)[:-2]
        if self._mode == "tokens":
            event = _without_token_ids(event)
        return event + b"\n\n"

    def _note(self, data: bytes) -> None:
        try:
            choices = _chunk(data).choices
            if not self._head:
                fields = _fields(data)
                self._head = {name: fields[name] for name in _HEAD if name in fields}
        except decoding.MALFORMED_JSON:
            self._forget()  # forwarded unchanged
            return
        for choice in choices:
            self._note_choice(choice)

    def _note_choice(self, choice: _Choice) -> None:
        delta = choice.delta
        thinks = delta is not None and delta.is_thought
        # Reasoning can be resumed from its tokens only: its text is not the start of a response.
        if choice.index or not (delta is None or delta.is_plain) or (thinks and self._mode == "text"):
            self._forget()
            return
        self.finished = choice.finish_reason is not None
        text = choice.text if delta is None else delta.content
        if not (text or thinks or choice.token_ids):
            return
        if self._mode == "text":
            if not text:
                return
            self._text.append(text)
            self._count += 1  # servers send one token in each event
            self._size += len(text)
        elif choice.token_ids is not None:
            self._tokens += choice.token_ids
            self._count = self._size = len(self._tokens)
        elif not self.finished:
            self._forget()
        if self._size > MAX_TRANSCRIPT:
            self._forget()

    def _forget(self) -> None:
        """Discard the transcript: the stream can no longer be resumed."""
        self._complete = False
        self._text.clear()
        self._tokens.clear()

    # ── the rest ──────────────────────────────────────────────────────────────────────────────────────

    def rest(self, request: GenerateRequest) -> Fields | None:
        """The fields that request the rest; None if the stream cannot be resumed."""
        if not self._complete or self.finished:
            return None
        if not self._count:
            return initial_fields(request, self._mode)
        if self._mode == "tokens":
            return after_tokens(request, self._tokens)
        return after_text(request, "".join(self._text), self._count)

    def resumed(self) -> None:
        """Mark the following pieces as another endpoint's."""
        self._resumed = True
        self._before = self._count

    def usage(self, last: Usage) -> Usage:
        """The usage of the whole stream from the last endpoint's: the prompt once, and each token once."""
        if not self._resumed or (self._mode == "tokens" and last.exact):
            return last
        prompt = last.prompt_tokens - self._before if last.exact else last.prompt_tokens
        return Usage(
            max(prompt, 0),
            last.completion_tokens + self._before,
            last.exact,
            bytes=last.bytes,
            cached_tokens=last.cached_tokens,
            reasoning_tokens=last.reasoning_tokens,
            cache_write_tokens=last.cache_write_tokens,
        )

    def _aligned(self, data: bytes) -> bytes | None:
        """Rewrite an event of the rest as the first stream's; None for a repeated opening."""
        try:
            fields = _fields(data)
            for name in _HEAD:
                if name in self._head:
                    fields[name] = self._head[name]
                else:
                    fields.pop(name, None)
            if b'"role"' in (choices := bytes(fields.get("choices", b"[]"))):
                if (answering := _without_roles(choices)) is None:
                    return None
                fields["choices"] = answering
            if self._mode == "text" and bytes(fields.get("usage", NULL)) != b"null":
                fields["usage"] = self._whole_usage(fields["usage"])
        except decoding.MALFORMED_JSON:
            return data
        return _encode(fields)

    def _whole_usage(self, raw: Raw) -> Raw:
        reported = reported_usage.of_raw(raw)
        if reported is None or (last := reported.usage) is None:
            return raw
        usage, whole = _whole(raw), self.usage(last)
        fields = {"prompt_tokens": whole.prompt_tokens, "completion_tokens": whole.completion_tokens}
        return Raw(_encode({**usage, **fields}))


def _without_roles(raw: bytes) -> Raw | None:
    """Choices without their roles; None if nothing else is in them."""
    choices, has_content = _choices(raw), False
    for choice in choices:
        delta = _fields(choice.get("delta", b"{}"))
        delta.pop("role", None)
        has_content = has_content or bytes(choice.get("finish_reason", NULL)) != b"null"
        has_content = has_content or any(bytes(value) not in NOTHING for value in delta.values())
        choice["delta"] = Raw(_encode(delta))
    return Raw(_encode(choices)) if has_content else None


def _without_token_ids(event: bytes) -> bytes:
    """Remove token ids, which the client did not request. JSON escapes quotes, so this matches no text."""
    before, separator, after = event.partition(_TOKEN_IDS)
    return before + after.partition(b"]")[2] if separator else event

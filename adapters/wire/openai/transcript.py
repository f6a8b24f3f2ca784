"""Records a stream, so that its rest can be requested after a break, and aligns the rest with it."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Raw

from adapters.ignored_fields import NOTHING
from adapters.requests import ChatRequest, CompletionRequest, GenerateRequest
from adapters.types import Usage
from adapters.wire import decoding, reported_usage, sse
from adapters.wire.openai.chat import DONE

# Builds the request for the rest of a broken stream.
#
# Two modes, by the engine:
#
# ``text``    vLLM's and SGLang's. Of a chat, the text so far is its last message, which `continue_final_message`
#             continues; of a completion, it is appended to the prompt. The engine tokenizes that text again, so
#             the rest continues the text, but may differ from the response that broke.
# ``tokens``  Headrace's own runtime's. Its streams report token ids (`return_token_ids`), and `continue_token_ids`
#             restores the same state. Limits, stop strings and usage apply to the whole response.

Mode = Literal["text", "tokens"]
Fields = dict[str, Raw]

_encode = msgspec.json.Encoder().encode
_text = msgspec.json.Decoder(str).decode
_count = msgspec.json.Decoder(int).decode
_array = msgspec.json.Decoder(list[Raw]).decode

NULL, _TRUE, _FALSE = Raw(b"null"), Raw(b"true"), Raw(b"false")
# Fields whose effect depends on more than the text so far. A stream can be continued only with these values.
_STRUCTURED = ("guided_choice", "guided_grammar", "guided_json", "guided_regex", "structured_outputs")
_TOOLS = ("function_call", "functions", "tools")
_DETAILS = ("logprobs", "prompt_logprobs", "return_token_ids", "top_logprobs")
_SHAPES = ("audio", "continue_final_message", "continue_token_ids", "echo", "prediction", "suffix", "use_beam_search")
_ONLY_WITH = dict.fromkeys((*_STRUCTURED, *_TOOLS, *_DETAILS, *_SHAPES), NOTHING) | {
    "add_generation_prompt": frozenset({b"null", b"true"}),
    "best_of": frozenset({b"null", b"1"}),
    "modalities": frozenset({b"null", b'["text"]'}),
    "response_format": frozenset({b"null", b'{"type":"text"}'}),
}
_LIMITS = ("max_tokens", "max_completion_tokens", "min_tokens")


def can_continue(request: GenerateRequest, mode: Mode) -> bool:
    """Whether the rest of a response can be requested: a single stream of plain text."""
    if not request.stream or request.n != 1 or not isinstance(request, ChatRequest | CompletionRequest):
        return False
    for name, raw in request.fields.items():
        if name in _ONLY_WITH and msgspec.json.format(bytes(raw), indent=-1) not in _ONLY_WITH[name]:
            return False
    return not isinstance(request, CompletionRequest) or _one_prompt(request.fields, mode)


def _one_prompt(fields: Fields, mode: Mode) -> bool:
    """Whether the prompt can be continued. Text mode requires a text prompt and a length limit."""
    prompt = bytes(fields["prompt"]).lstrip()
    if mode == "text":
        return prompt.startswith(b'"') and bytes(fields.get("max_tokens", NULL)) != b"null"
    return prompt.startswith(b'"') or (prompt.startswith(b"[") and prompt[1:].lstrip()[:1].isdigit())


def initial_fields(request: GenerateRequest, mode: Mode) -> Fields:
    """The fields of the first request, which allow a continuation later."""
    return {**request.fields, "return_token_ids": _TRUE} if mode == "tokens" else request.fields


def after_tokens(request: GenerateRequest, emitted: Sequence[int]) -> Fields:
    """The fields that request the continuation of these tokens."""
    return {**initial_fields(request, "tokens"), "continue_token_ids": Raw(_encode(emitted))}


def after_text(request: GenerateRequest, emitted: str, tokens: int) -> Fields | None:
    """The fields that request the continuation of this text of so many tokens; None if the length limit is reached."""
    fields = dict(request.fields)
    for name in _LIMITS:
        if bytes(raw := fields.get(name, NULL)) != b"null":
            left = _count(raw) - tokens
            if left < 1 and name != "min_tokens":
                return None
            fields[name] = Raw(_encode(max(left, 0)))
    if isinstance(request, ChatRequest):
        messages = [*_array(fields["messages"]), Raw(_encode({"role": "assistant", "content": emitted}))]
        fields |= {"messages": Raw(_encode(messages)), "add_generation_prompt": _FALSE, "continue_final_message": _TRUE}
    else:
        fields["prompt"] = Raw(_encode(_text(fields["prompt"]) + emitted))
    return fields


MAX_TRANSCRIPT = 1024 * 1024
"""Characters or tokens beyond which a stream is not resumed."""

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

"""Encodes generated text as OpenAI's response, whole or chunk by chunk."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from adapters.requests import ChatRequest, GenerateRequest
from adapters.types import Usage

_encode = msgspec.json.Encoder().encode

DONE = b"data: [DONE]\n\n"


class Token(NamedTuple):
    """A token of a text, its log probability, and its most likely alternatives."""

    text: str
    logprob: float | None
    tops: Sequence[tuple[str, float]] = ()


class TextEncoder:
    """Encodes one response. `created` is Unix seconds."""

    __slots__ = ("_chat", "_head", "_offset", "_tail", "_usage", "_whole", "tokens")

    def __init__(self, request: GenerateRequest, *, id_: str, created: int, tokens: bool = False) -> None:
        self._chat = isinstance(request, ChatRequest)
        name = "chatcmpl-" if self._chat else "cmpl-"
        kind = "chat.completion" if self._chat else "text_completion"
        fields = {"id": name + id_, "object": kind, "created": created, "model": request.model}
        self._whole: dict[str, Any] = fields
        self._usage = request.include_usage
        chunk = _encode({**fields, "object": "chat.completion.chunk"} if self._chat else fields)
        self._head = b'data: %b,"choices":[{"index":0,' % chunk[:-1]
        self._tail = b',"usage":null}\n\n' if self._usage else b"}\n\n"
        self.tokens = tokens
        """Whether log probabilities are included."""
        self._offset = 0

    # ── whole ─────────────────────────────────────────────────────────────────────────────────────────

    def whole(self, text: str, reason: str, usage: Usage, tokens: Sequence[Token] = ()) -> bytes:
        """Encode a whole response."""
        choice: dict[str, Any] = {"index": 0}
        if self._chat:
            choice["message"] = {"role": "assistant", "content": text, "refusal": None}
        else:
            choice["text"] = text
        choice["logprobs"] = self._logprobs(tokens) if self.tokens else None
        choice["finish_reason"] = reason
        return _encode({**self._whole, "choices": [choice], "usage": _counts(usage)})

    # ── chunks ────────────────────────────────────────────────────────────────────────────────────────

    def opening(self) -> bytes:
        """Encode the chunk before the first text; empty for a completion."""
        if not self._chat:
            return b""
        delta = b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
        return self._head + delta + self._tail

    def piece(self, text: str, tokens: Sequence[Token] = ()) -> bytes:
        """Encode a piece of the text."""
        form = b'"delta":{"content":%b},"logprobs":%b,"finish_reason":null}]'
        if not self._chat:
            form = b'"text":%b,"logprobs":%b,"finish_reason":null}]'
        logprobs = _encode(self._logprobs(tokens)) if self.tokens and tokens else b"null"
        return self._head + form % (_encode(text), logprobs) + self._tail

    def end(self, reason: str, usage: Usage) -> bytes:
        """Encode the finish reason, the usage if requested, and the end of the stream."""
        form = (
            b'"delta":{},"logprobs":null,"finish_reason":%b}]'
            if self._chat
            else b'"text":"","logprobs":null,"finish_reason":%b}]'
        )
        last = self._head + form % _encode(reason) + self._tail
        if self._usage:
            # Only the usage chunk has no choice.
            head = self._head.partition(b',"choices":')[0]
            last += b'%b,"choices":[],"usage":%b}\n\n' % (head, _encode(_counts(usage)))
        return last + DONE

    # ── tokens ────────────────────────────────────────────────────────────────────────────────────────

    def _logprobs(self, tokens: Sequence[Token]) -> dict[str, Any]:
        return _of_chat(tokens) if self._chat else self._of_completion(tokens)

    def _of_completion(self, tokens: Sequence[Token]) -> dict[str, Any]:
        offsets = []
        for token in tokens:
            offsets.append(self._offset)
            self._offset += len(token.text)
        return {
            "tokens": [token.text for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [dict(token.tops) if token.tops else None for token in tokens],
            "text_offset": offsets,
        }


def _of_chat(tokens: Sequence[Token]) -> dict[str, Any]:
    content = [
        {**_one(token.text, token.logprob), "top_logprobs": [_one(text, logprob) for text, logprob in token.tops]}
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def _one(text: str, logprob: float | None) -> dict[str, Any]:
    # OpenAI's value for a token that is not among the most likely tokens.
    return {"token": text, "logprob": -9999.0 if logprob is None else logprob, "bytes": list(text.encode())}


def _counts(usage: Usage) -> dict[str, int]:
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


# Finds stop texts in streamed text, for servers that return the stop text or do not support stop texts.


class StopTexts:
    """Cuts a text at the first stop text, then sets `matched`. Holds back a possible beginning of a stop text."""

    __slots__ = ("_held", "_longest", "_stops", "matched")

    def __init__(self, stops: list[str]) -> None:
        self._stops = stops
        self._longest = max(map(len, stops), default=0)
        self._held = ""
        self.matched = False

    def feed(self, text: str) -> str:
        """Add text. Returns the text that cannot be part of a stop text."""
        if not self._stops:
            return text
        if self.matched:
            return ""
        text = self._held + text
        ends = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        if ends:
            self.matched, self._held = True, ""
            return text[: min(ends)]
        keep = self._begun(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def rest(self) -> str:
        """Return the text that was held back, after the end of the stream."""
        held, self._held = self._held, ""
        return held

    def _begun(self, text: str) -> int:
        """Return the length of the longest end of `text` with which a stop text begins."""
        for size in range(min(self._longest - 1, len(text)), 0, -1):
            end = text[-size:]
            if any(stop.startswith(end) for stop in self._stops):
                return size
        return 0

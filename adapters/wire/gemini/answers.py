"""Reads Gemini's answers: candidates, their parts, the tokens, and the reasons of their end."""

from contextlib import suppress
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from adapters.errors import BackendError
from adapters.types import Usage
from adapters.wire import decoding, sse
from adapters.wire.gemini import errors
from adapters.wire.reported_usage import MAX_TOKENS

_NONE = Raw(b"")
_Count = Annotated[int, Meta(ge=0, le=MAX_TOKENS)]


class FunctionCall(msgspec.Struct):
    name: str = ""
    args: Raw = Raw(b"{}")
    id: str | None = None


class Blob(msgspec.Struct):
    mimeType: str = ""  # noqa: N815 - the wire's own name
    data: str = ""


class ContentPart(msgspec.Struct):
    """A part of any kind; those without an equivalent in a chat are left out."""

    text: str | None = None
    thought: bool | None = None
    thoughtSignature: str | None = None  # noqa: N815
    functionCall: FunctionCall | None = None  # noqa: N815
    inlineData: Blob | None = None  # noqa: N815


class _Content(msgspec.Struct):
    parts: list[ContentPart] | None = None


class AnswerCandidate(msgspec.Struct):
    content: _Content | None = None
    index: _Count | None = None
    finishReason: str | None = None  # noqa: N815
    logprobsResult: Any = None  # noqa: N815

    @property
    def parts(self) -> list[ContentPart]:
        return (self.content and self.content.parts) or []


class Counts(msgspec.Struct):
    """The tokens so far. Cached tokens are a part of the prompt's; thoughts are beside the candidates'."""

    promptTokenCount: _Count | None = None  # noqa: N815
    candidatesTokenCount: _Count | None = None  # noqa: N815
    thoughtsTokenCount: _Count | None = None  # noqa: N815
    cachedContentTokenCount: _Count | None = None  # noqa: N815
    toolUsePromptTokenCount: _Count | None = None  # noqa: N815
    totalTokenCount: _Count | None = None  # noqa: N815

    def over(self, before: "Counts | None") -> "Counts":
        """Merge with an earlier report. Counts grow, and a later chunk may leave some out."""
        if before is not None:
            self.promptTokenCount = self.promptTokenCount or before.promptTokenCount
            self.candidatesTokenCount = self.candidatesTokenCount or before.candidatesTokenCount
            self.thoughtsTokenCount = self.thoughtsTokenCount or before.thoughtsTokenCount
            self.cachedContentTokenCount = self.cachedContentTokenCount or before.cachedContentTokenCount
            self.toolUsePromptTokenCount = self.toolUsePromptTokenCount or before.toolUsePromptTokenCount
            self.totalTokenCount = self.totalTokenCount or before.totalTokenCount
        return self

    @property
    def usage(self) -> Usage | None:
        """The usage in the gateway's units; None if nothing is counted."""
        prompt = (self.promptTokenCount or 0) + (self.toolUsePromptTokenCount or 0)
        thoughts = self.thoughtsTokenCount or 0
        answered = self.candidatesTokenCount
        if answered is None:
            answered = max((self.totalTokenCount or 0) - prompt - thoughts, 0)
        if not prompt + answered + thoughts:
            return None
        usage = Usage(prompt, answered + thoughts, exact=True)
        usage.cached_tokens = min(self.cachedContentTokenCount or 0, prompt)
        usage.reasoning_tokens = thoughts
        return usage


class Feedback(msgspec.Struct):
    blockReason: str | None = None  # noqa: N815


class ContentAnswer(msgspec.Struct):
    """An answer, or a chunk of one."""

    candidates: list[AnswerCandidate] | None = None
    promptFeedback: Feedback | None = None  # noqa: N815
    usageMetadata: Raw = _NONE  # noqa: N815
    responseId: str = ""  # noqa: N815
    modelVersion: str = ""  # noqa: N815
    error: Raw = _NONE

    @property
    def counts(self) -> Counts | None:
        """The tokens so far; None if they are not reported, or cannot be read."""
        with suppress(*decoding.MALFORMED_JSON):
            return _counts(self.usageMetadata) if self.usageMetadata else None
        return None

    @property
    def is_blocked(self) -> bool:
        """Whether the prompt is refused for its content."""
        return not self.candidates and self.promptFeedback is not None and bool(self.promptFeedback.blockReason)


_counts = msgspec.json.Decoder(Counts | None).decode


class AnswerSoFar:
    """The tokens that the chunks of an answer report, and whether the answer is complete."""

    __slots__ = ("_ended", "_is_blocked", "_open", "counts")

    def __init__(self) -> None:
        self.counts: Counts | None = None
        self._open = set[int]()
        self._ended = set[int]()
        self._is_blocked = False

    def add(self, answered: ContentAnswer) -> None:
        """Note the tokens of a chunk, and the candidates that it begins or ends."""
        if (counts := answered.counts) is not None:
            self.counts = counts.over(self.counts)
        for candidate in answered.candidates or ():
            index = candidate.index or 0
            if candidate.finishReason:
                self._ended.add(index)
                self._open.discard(index)
            elif index not in self._ended:  # a last chunk with the usage may repeat a candidate
                self._open.add(index)
        self._is_blocked = self._is_blocked or answered.is_blocked

    @property
    def is_complete(self) -> bool:
        """Whether every candidate has the reason of its end, or the prompt is refused."""
        return self._is_blocked or (bool(self._ended) and not self._open)


_answered = msgspec.json.Decoder(ContentAnswer).decode
_raws = msgspec.json.Decoder(list[Raw]).decode

STOP = "STOP"
_FILTERED = frozenset({
    "SAFETY", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "RECITATION", "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION", "MODEL_ARMOR",
})  # fmt: skip
_FAILED = frozenset({
    "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MISSING_THOUGHT_SIGNATURE",
    "MALFORMED_RESPONSE", "NO_IMAGE", "IMAGE_OTHER", "LANGUAGE", "OTHER",
})  # fmt: skip
"""The model failed. A text before remains of use."""


def read(data: bytes, subject: str = "response") -> ContentAnswer:
    """Decode an answer or a chunk. Raises `BackendError`, and the typed error of an error in its place."""
    answered = decoding.decode(_answered, data, subject)
    if answered.error and bytes(answered.error) != b"null":
        raise errors.typed(None, data)
    return answered


def read_several(body: bytes) -> list[ContentAnswer]:
    """Decode a stream that came as one JSON array, or one answer. Raises as `read` does."""
    return [read(entry) for entry in _entries(body)]


def whole_events(body: bytes) -> bytes:
    """The events of a stream that came as one JSON array, or as one answer. Raises `BackendError`."""
    return b"".join([sse.encode(msgspec.json.format(entry, indent=-1)) for entry in _entries(body)])


def _entries(body: bytes) -> list[bytes]:
    if body.lstrip()[:1] == b"[":
        return [bytes(entry) for entry in decoding.decode(_raws, body)]
    return [body]


def finish_of(reason: str, *, has_calls: bool, has_content: bool) -> tuple[str, str | None]:
    """A chat's `finish_reason`, and Gemini's own word if that is more exact. Raises `BackendError` for an answer that
    failed without any content."""
    if reason == STOP:
        return ("tool_calls" if has_calls else "stop"), None
    if reason == "MAX_TOKENS":
        return "length", None
    if reason in _FILTERED:
        return "content_filter", reason
    if reason in _FAILED and not has_content:
        raise failed(reason)
    return ("tool_calls" if has_calls else "stop"), reason


def failed(reason: str) -> BackendError:
    """The error of an answer that the model could not complete."""
    return decoding.bad_response(f"The model ended its answer without any content, for the reason {reason[:64]}.")


def logprobs_of(result: Any) -> dict[str, Any] | None:
    """A choice's `logprobs`."""
    if not isinstance(result, dict):
        return None
    chosen, top = result.get("chosenCandidates"), result.get("topCandidates")
    if not isinstance(chosen, list):
        return None
    content = []
    for i, one in enumerate(chosen):
        others = top[i] if isinstance(top, list) and i < len(top) else None
        others = others.get("candidates") if isinstance(others, dict) else None
        tops = [_likely(other) for other in others] if isinstance(others, list) else []
        content.append({**_likely(one), "top_logprobs": tops})
    return {"content": content, "refusal": None}


def _likely(one: Any) -> dict[str, Any]:
    token = str(one.get("token", "")) if isinstance(one, dict) else ""
    value = one.get("logProbability", 0.0) if isinstance(one, dict) else 0.0
    return {"token": token, "logprob": value if isinstance(value, int | float) else 0.0, "bytes": list(token.encode())}

"""Encodes a chat's answer as Gemini's, whole or streamed."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from adapters.types import Usage
from adapters.wire import sse
from adapters.wire.anthropic.chat_turns import arguments
from adapters.wire.gemini import carried, signatures
from adapters.wire.openai.chat import DONE
from adapters.wire.openai.chat_reader import AnsweredCall, CallPiece, ChatReader, Part, Signed, Text

Object = dict[str, Any]

FINISHES = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}
"""Every other reason is `STOP`."""

_encode = msgspec.json.Encoder().encode


class AnswerParts:
    """The parts of one answer. A call is a part when its arguments are whole."""

    __slots__ = ("_blocks", "_calls", "_name_of", "_parts", "_shows_thoughts", "_thoughts")

    def __init__(self, name_of: Callable[[str], str], *, shows_thoughts: bool) -> None:
        self._name_of = name_of
        self._shows_thoughts = shows_thoughts
        self._parts: list[Object] = []
        self._calls: dict[AnsweredCall, list[str]] = {}
        self._blocks: list[Object] = []
        """Signed thoughts of another provider, which the next call carries."""
        self._thoughts: list[str] = []
        """Thoughts without a signature, likewise."""

    def add(self, part: Part) -> None:
        """Add a part of the chat's answer."""
        if isinstance(part, CallPiece):
            self._calls.setdefault(part.call, []).append(part.arguments)
        elif isinstance(part, Signed):
            own, _ = signatures.of_blocks([Raw(_encode(part.block))])
            if own is None:
                self._blocks.append(part.block)
            else:
                self._parts.append({"text": "", "thoughtSignature": own})
        elif part.kind != "thought":
            self._parts.append({"text": part.text, **_likely(part)})
        else:
            self._thoughts.append(part.text)
            if self._shows_thoughts:
                self._parts.append({"text": part.text, "thought": True})

    def take(self, *, is_last: bool = False) -> list[Object]:
        """The parts since the last call. Calls whose arguments are not whole wait until the end."""
        for call in list(self._calls):
            if not (is_last or call.is_whole):
                break
            self._parts.append(self._call(call, "".join(self._calls.pop(call))))
        parts, self._parts = self._parts, []
        return parts

    def _call(self, call: AnsweredCall, text: str) -> Object:
        function: Object = {"name": self._name_of(call.name), "args": arguments(text)}
        if call.id:
            function["id"] = call.id
        signature = carried.signature_of(call.extra, self._blocks, "".join(self._thoughts))
        self._blocks, self._thoughts = [], []
        return {"functionCall": function} | ({"thoughtSignature": signature} if signature else {})


def _likely(part: Text) -> Object:
    return {"logprobs": part.logprobs} if part.logprobs else {}


def _candidate(parts: list[Object], finish: str | None) -> Object:
    likely = [one for part in parts for one in part.pop("logprobs", ())]
    candidate: Object = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = FINISHES.get(finish, "STOP")
    if likely:
        candidate["logprobsResult"] = {
            "chosenCandidates": [_token(one) for one in likely],
            "topCandidates": [{"candidates": [_token(top) for top in _tops(one)]} for one in likely],
        }
    return candidate


def _tops(one: Object) -> list[Object]:
    tops = one.get("top_logprobs")
    return [top for top in tops if isinstance(top, dict)] if isinstance(tops, list) else []


def _token(one: Object) -> Object:
    return {"token": one.get("token", ""), "logProbability": one.get("logprob", 0.0)}


def usage_fields(usage: Usage) -> Object:
    """The `usageMetadata` of an answer. Thoughts are beside the candidates' tokens; cached ones are in the prompt's."""
    fields = {
        "promptTokenCount": usage.prompt_tokens,
        "candidatesTokenCount": usage.completion_tokens - usage.reasoning_tokens,
        "totalTokenCount": usage.total_tokens,
    }
    optional = {"thoughtsTokenCount": usage.reasoning_tokens, "cachedContentTokenCount": usage.cached_tokens}
    return fields | {name: count for name, count in optional.items() if count}


def answer_of(
    body: bytes, usage: Usage, id_: str, model: str, name_of: Callable[[str], str], *, shows_thoughts: bool
) -> bytes:
    """Encode a chat completion as an answer. Raises `BackendError`."""
    reader, parts = ChatReader(), AnswerParts(name_of, shows_thoughts=shows_thoughts)
    for part in reader.read_whole(body):
        parts.add(part)
    counted = (reader.reported and reader.reported.usage) or usage
    about = {"usageMetadata": usage_fields(counted), "modelVersion": reader.model or model, "responseId": id_}
    return _encode({"candidates": [_candidate(parts.take(is_last=True), reader.finish or "stop")], **about})


class ContentEvents:
    """One stream. `id_` is that of the answer, and `model` applies if the server names none."""

    __slots__ = ("_id", "_is_ended", "_model", "_parts", "_reader")

    def __init__(self, id_: str, model: str, name_of: Callable[[str], str], *, shows_thoughts: bool) -> None:
        self._id = id_
        self._model = model
        self._reader = ChatReader()
        self._parts = AnswerParts(name_of, shows_thoughts=shows_thoughts)
        self._is_ended = False

    def take(self, piece: bytes, usage: Usage) -> list[bytes]:
        """The chunks that whole events of the chat become; may be none. Raises `BackendError`."""
        chunks = list[bytes]()
        for event in piece.split(b"\n\n"):
            data = sse.data_of(event) if event else b""
            if data == DONE:
                chunks += self.end(usage)
            elif data:
                for part in self._reader.read_chunk(data):
                    self._parts.add(part)
                if parts := self._parts.take():
                    chunks.append(self._chunk(parts, None))
        return chunks

    def end(self, usage: Usage) -> list[bytes]:
        """The last chunk, once. Raises `BackendError` for a call without a name."""
        if self._is_ended:
            return []
        for part in self._reader.end():
            self._parts.add(part)
        self._is_ended = True
        counted = (self._reader.reported and self._reader.reported.usage) or usage
        more = {"usageMetadata": usage_fields(counted)}
        return [self._chunk(self._parts.take(is_last=True), self._reader.finish or "stop", more)]

    def _chunk(self, parts: list[Object], finish: str | None, more: Object | None = None) -> bytes:
        about = {"modelVersion": self._reader.model or self._model, "responseId": self._id}
        return _encode({"candidates": [_candidate(parts, finish)], **(more or {}), **about})

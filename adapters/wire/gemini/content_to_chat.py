"""Translates an answer into a chat's, whole or streamed: Gemini's chunks in, OpenAI's chunks out."""

import secrets
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Raw

from adapters.types import Usage
from adapters.wire import decoding, sse
from adapters.wire.gemini import signatures
from adapters.wire.gemini.answers import AnswerCandidate, ContentAnswer, ContentPart, finish_of, logprobs_of
from adapters.wire.openai.chat import DONE
from adapters.wire.reported_usage import chat_fields

Object = dict[str, Any]

_encode = msgspec.json.Encoder().encode


class _Choice:
    """One candidate so far."""

    __slots__ = ("calls", "has_content", "reason")

    def __init__(self) -> None:
        self.calls = 0
        self.has_content = False
        self.reason: str | None = None


class ContentChunks:
    """One answer. `created` is in Unix seconds. `name_of` returns the client's name of a function."""

    __slots__ = (
        "_choices", "_created", "_head", "_include_usage", "_model", "_name_of", "_token",
    )  # fmt: skip

    def __init__(self, created: int, model: str, *, include_usage: bool, name_of: Callable[[str], str] = str) -> None:
        """`model` applies if the server names none."""
        self._created = created
        self._include_usage = include_usage
        self._name_of = name_of
        self._model = model
        self._head = b""
        self._token = secrets.token_hex(6)
        self._choices: dict[int, _Choice] = {}

    def plain(self, answered: ContentAnswer) -> bytes | None:
        """The chunk of one that continues a text; None for any other. Most are one."""
        candidates = answered.candidates
        if not candidates or len(candidates) != 1:
            return None
        candidate, content = candidates[0], candidates[0].content
        index = candidate.index or 0
        choice = self._choices.get(index)
        if choice is None or content is None or candidate.finishReason or candidate.logprobsResult is not None:
            return None
        parts = content.parts
        if not parts or len(parts) != 1 or not (text := parts[0].text) or parts[0].thoughtSignature:
            return None
        return self._chunk(index, _text_delta(parts[0], text, choice))

    def take(self, answered: ContentAnswer) -> bytes:
        """The chunks of a chunk, possibly none."""
        if (plain := self.plain(answered)) is not None:
            return plain
        opening = b"" if self._head else self._open(answered)
        if answered.candidates:
            chunks = [self._candidate(candidate) for candidate in answered.candidates]
            return opening + (chunks[0] if len(chunks) == 1 else b"".join(chunks))
        if answered.is_blocked:
            self._choices.setdefault(0, _Choice()).reason = "PROHIBITED_CONTENT"
        return opening

    def end(self, usage: Usage) -> bytes:
        """The last chunks. Raises `BackendError` for an answer that failed without any content."""
        out = [self._finish(index, choice) for index, choice in sorted(self._choices.items())]
        if self._include_usage:
            out.append(sse.encode(b'%b,"choices":[],"usage":%b}' % (self._head, _encode(chat_fields(usage)))))
        return b"".join([*out, sse.encode(DONE)])

    def _open(self, answered: ContentAnswer) -> bytes:
        id_ = answered.responseId or f"chatcmpl-{self._token}"
        model = answered.modelVersion or self._model
        about = {"id": id_, "object": "chat.completion.chunk", "created": self._created, "model": model}
        self._head = _encode(about)[:-1]
        return b""

    def _candidate(self, candidate: AnswerCandidate) -> bytes:
        index = candidate.index or 0
        choice = self._choices.get(index)
        out = b""
        if choice is None:
            choice = self._choices[index] = _Choice()
            out = self._chunk(index, b'{"role":"assistant","content":""}')
        if candidate.finishReason:
            choice.reason = candidate.finishReason
        likely = logprobs_of(candidate.logprobsResult) if candidate.logprobsResult is not None else None
        for part in candidate.parts:
            for delta in deltas_of(part, choice, self._token, index, self._name_of):
                out += self._chunk(index, _encode(delta), b"null" if likely is None else _encode(likely))
                likely = None
        return out

    def _finish(self, index: int, choice: _Choice) -> bytes:
        reason, own = finish_of(choice.reason or "STOP", has_calls=choice.calls > 0, has_content=choice.has_content)
        more = b"" if own is None else b',"native_finish_reason":' + _encode(own)
        return self._chunk(index, b"{}", b"null", _encode(reason) + more)

    def _chunk(self, index: int, delta: bytes, likely: bytes = b"null", finish: bytes = b"null") -> bytes:
        usage = b',"usage":null' if self._include_usage else b""
        given = self._head, index, delta, likely, finish, usage
        return b'data: %b,"choices":[{"index":%d,"delta":%b,"logprobs":%b,"finish_reason":%b}]%b}\n\n' % given


def deltas_of(
    part: ContentPart, choice: _Choice, token: str, index: int, name_of: Callable[[str], str]
) -> Iterable[Object]:
    """The deltas of a part."""
    signature = part.thoughtSignature
    if (text := part.text) is not None:
        if text:
            choice.has_content = choice.has_content or not part.thought
            yield {"reasoning_content" if part.thought else "content": text}
        if signature:
            yield _signed(signature)
    elif (call := part.functionCall) is not None:
        if not call.name:
            raise decoding.bad_response("The upstream's answer has a call without a name.")
        choice.has_content = True
        id_ = call.id or f"call_{token}{index}{choice.calls:03}"
        entry = {"index": choice.calls, **_call(id_, name_of(call.name), call.args, signature)}
        choice.calls += 1
        yield {"tool_calls": [entry]}
    elif part.inlineData is not None:
        choice.has_content = True
        url = f"data:{part.inlineData.mimeType};base64,{part.inlineData.data}"
        yield {"images": [{"type": "image_url", "image_url": {"url": url}}]} | _signed(signature)
    elif signature:
        yield _signed(signature)


def _text_delta(part: ContentPart, text: str, choice: _Choice) -> bytes:
    if part.thought:
        return b'{"reasoning_content":%b}' % _encode(text)
    choice.has_content = True
    return b'{"content":%b}' % _encode(text)


def _signed(signature: str | None) -> Object:
    """The fields of a message that carry the signature of a text."""
    if not signature:
        return {}
    block = signatures.block_of(signature)
    fields: Object = {"extra_content": signatures.extra_of(signature)}
    return fields if block is None else {**fields, "thinking_blocks": [block]}


def _call(id_: str, name: str, args: Raw, signature: str | None) -> Object:
    given = bytes(args)
    text = "{}" if given == b"null" else bytes(msgspec.json.format(given, indent=-1)).decode()
    call: Object = {"id": id_, "type": "function", "function": {"name": name, "arguments": text}}
    return call | {"extra_content": signatures.extra_of(signature)} if signature else call


def completion_of(
    answered: ContentAnswer, usage: Usage, created: int, model: str, name_of: Callable[[str], str] = str
) -> bytes:
    """Encode an answer as a chat completion. Raises `BackendError` for an answer without content."""
    token = secrets.token_hex(6)
    choices = list[Object]()
    for at, candidate in enumerate(answered.candidates or ()):
        choice = _Choice()
        message: Object = {"role": "assistant", "content": None, "refusal": None}
        index = at if candidate.index is None else candidate.index
        for part in candidate.parts:
            for delta in deltas_of(part, choice, token, index, name_of):
                _join(message, delta)
        reason, own = finish_of(
            candidate.finishReason or "STOP", has_calls=choice.calls > 0, has_content=choice.has_content
        )
        likely = logprobs_of(candidate.logprobsResult)
        entry: Object = {"index": index, "message": message, "logprobs": likely, "finish_reason": reason}
        choices.append(entry if own is None else {**entry, "native_finish_reason": own})
    if answered.is_blocked:
        message = {"role": "assistant", "content": "", "refusal": None}
        choices = [{"index": 0, "message": message, "logprobs": None, "finish_reason": "content_filter"}]
    return _encode(
        {
            "id": answered.responseId or f"chatcmpl-{token}",
            "object": "chat.completion",
            "created": created,
            "model": answered.modelVersion or model,
            "choices": choices,
            "usage": chat_fields(usage),
        }
    )


def _join(message: Object, delta: Object) -> None:
    for name, value in delta.items():
        if isinstance(value, list) and name in message:
            message[name] += value
        elif isinstance(value, str):
            message[name] = (message.get(name) or "") + value
        else:
            message[name] = value
    for call in message.get("tool_calls", ()):
        call.pop("index", None)

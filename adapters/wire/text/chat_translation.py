"""Translates chats to completions and back, for servers that support only one of them."""

from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from adapters.errors import CallerError, Unsupported
from adapters.ignored_fields import NAMES, NOTHING, IgnoredFields
from adapters.requests import ChatRequest, CompletionRequest, GenerateRequest
from adapters.wire import decoding
from adapters.wire.body import is_given
from adapters.wire.openai.chat_reader import answer_text
from adapters.wire.openai.request_codec import CODEC, OpenAIPayload
from adapters.wire.text import prompt_request

Fields = dict[str, Raw]

_SHARED = tuple(name for name in GenerateRequest.__struct_fields__ if name not in ("codec", "payload", "prompt"))
_CHATS_OWN = frozenset((
    "messages", "max_completion_tokens", "logprobs", "top_logprobs", "chat_template_kwargs", "add_generation_prompt",
    "continue_final_message", "tool_choice", "parallel_tool_calls",
))  # fmt: skip
"""Fields without an equivalent in a completion: they are translated, or depend on refused fields."""
_ONLY_CHATS = frozenset((
    "tools", "functions", "function_call", "modalities", "audio", "prediction", "web_search_options",
    "reasoning_effort", "verbosity",
))  # fmt: skip
_ONLY_COMPLETIONS = frozenset(("suffix", "echo", "best_of"))
_NO_EFFECT = {
    "modalities": frozenset((b'["text"]',)),
    "function_call": frozenset((b'"none"',)),
    "best_of": frozenset((b"1",)),
}
_NULL = Raw(b"null")

_encode = msgspec.json.Encoder().encode
_whole = msgspec.json.Decoder(Fields).decode
_list = msgspec.json.Decoder(list[Fields] | None).decode
_text = msgspec.json.Decoder(str | None).decode
_flag = msgspec.json.Decoder(bool | int | None).decode

R = TypeVar("R", bound=GenerateRequest)


class _OfChat(msgspec.Struct):
    content: Any = None


class _Likely(msgspec.Struct):
    token: str
    logprob: float | None = None
    top_logprobs: list["_Likely"] = []


class _ChatLogprobs(msgspec.Struct):
    content: list[_Likely] | None = None


class _TextLogprobs(msgspec.Struct):
    tokens: list[str] = []
    token_logprobs: list[float | None] = []
    top_logprobs: list[dict[str, float] | None] | None = None


_of_chat = msgspec.json.Decoder(_OfChat | None).decode
_chat_logprobs = msgspec.json.Decoder(_ChatLogprobs | None).decode
_text_logprobs = msgspec.json.Decoder(_TextLogprobs | None).decode


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────


def completion_of(request: ChatRequest, prompt: str, max_tokens: int, ignored: IgnoredFields) -> CompletionRequest:
    """Translate a chat. `max_tokens` applies if it has no limit: a completion's default is 16. Raises `CallerError`."""
    request.payload.report(ignored)
    _refuse(request, _ONLY_CHATS, ignored)
    fields = request.fields
    given = {name: raw for name, raw in fields.items() if name not in _CHATS_OWN and name not in _ONLY_CHATS}
    given["prompt"] = Raw(_encode(prompt))
    length = next((fields[name] for name in ("max_completion_tokens", "max_tokens") if is_given(fields, name)), None)
    given["max_tokens"] = length or Raw(_encode(max_tokens))
    if _read(fields, "logprobs"):
        given["logprobs"] = Raw(_encode(_read(fields, "top_logprobs") or 0))
    return _same(CompletionRequest, request, given, given["prompt"])


def chat_of(request: CompletionRequest, ignored: IgnoredFields) -> ChatRequest:
    """Translate a completion: its prompt is a user's message. Raises `CallerError`."""
    _refuse(request, _ONLY_COMPLETIONS, ignored)
    prompt = prompt_request.prompt(request)
    fields = request.fields
    given = {name: raw for name, raw in fields.items() if name not in ("prompt", "logprobs", *_ONLY_COMPLETIONS)}
    given["messages"] = Raw(_encode([{"role": "user", "content": prompt}]))
    if not is_given(fields, "max_tokens"):
        given["max_tokens"] = Raw(_encode(prompt_request.DEFAULT_TOKENS))
    if is_given(fields, "logprobs"):
        given |= {"logprobs": Raw(b"true"), "top_logprobs": fields["logprobs"]}
    return _same(ChatRequest, request, given, given["messages"])


def _same(kind: type[R], request: GenerateRequest, given: Fields, prompt: Raw) -> R:
    shared = {name: getattr(request, name) for name in _SHARED}
    return kind(payload=OpenAIPayload(fields=given), prompt=memoryview(prompt), codec=CODEC, **shared)


def _refuse(request: GenerateRequest, names: frozenset[str], ignored: IgnoredFields) -> None:
    """Refuse fields without an equivalent, unless their value requests nothing."""
    for name in names & request.fields.keys():
        raw = bytes(request.fields[name])
        value = msgspec.json.format(raw, indent=-1)
        if name == "tools" and bytes(request.fields.get("tool_choice", _NULL)) == b'"none"':
            continue
        if value in NOTHING or value in _NO_EFFECT.get(name, ()):
            continue
        if name in NAMES:
            ignored.ignore(name)
        else:
            raise Unsupported(f"`{name}` is not supported by this model's servers.", param=name)


def _read(fields: Fields, name: str) -> bool | int | None:
    try:
        value: bool | int | None = _flag(fields.get(name, _NULL))
    except msgspec.DecodeError as error:
        raise CallerError(f"`{name}` is not valid: {error}.", param=name) from None
    return value


# ── responses ───────────────────────────────────────────────────────────────────────────────────────────────────


def chat_body(body: bytes) -> bytes:
    """Translate a completion's response to a chat's. Raises `BackendError`."""

    def message(choice: Fields) -> Fields:
        fields = {"role": "assistant", "content": _text(choice.pop("text", _NULL)) or "", "refusal": None}
        return {"message": Raw(_encode(fields)), "logprobs": _chats(choice.pop("logprobs", _NULL)), **choice}

    return _translated(body, b'"chat.completion"', message)


def completion_body(body: bytes) -> bytes:
    """Translate a chat's response to a completion's. Raises `BackendError`."""

    def text(choice: Fields) -> Fields:
        message = _of_chat(choice.pop("message"))
        return {
            "text": Raw(_encode(answer_text(message and message.content))),
            "logprobs": _completions(choice.pop("logprobs", _NULL)),
            **choice,
        }

    return _translated(body, b'"text_completion"', text)


def chat_chunk(data: bytes, begun: set[bytes]) -> bytes:
    """Translate a completion's chunk to a chat's. `begun` has the choices with a first chunk. Raises `BackendError`."""

    def delta(choice: Fields) -> Fields:
        index, text = bytes(choice.get("index", b"0")), choice.pop("text", _NULL)
        added: dict[str, Raw] = {} if bytes(text) in NOTHING else {"content": text}
        if index not in begun:
            begun.add(index)
            added = {"role": Raw(b'"assistant"'), "content": Raw(b'""'), **added}
        return {"delta": Raw(_encode(added)), "logprobs": _chats(choice.pop("logprobs", _NULL)), **choice}

    return _translated(data, b'"chat.completion.chunk"', delta)


def completion_chunk(data: bytes) -> bytes:
    """Translate a chat's chunk to a completion's. Raises `BackendError`."""

    def text(choice: Fields) -> Fields:
        delta = _of_chat(choice.pop("delta", _NULL))
        return {
            "text": Raw(_encode(answer_text(delta and delta.content))),
            "logprobs": _completions(choice.pop("logprobs", _NULL)),
            **choice,
        }

    return _translated(data, b'"text_completion"', text)


def _translated(body: bytes, kind: bytes, choice_of: Any) -> bytes:
    with decoding.Checked(KeyError):
        decoded = _whole(body)
        decoded["object"] = Raw(kind)
        choices = [choice_of(choice) for choice in _list(decoded.get("choices", _NULL)) or ()]
        decoded["choices"] = Raw(_encode(choices))
    return _encode(decoded)


def _chats(raw: Raw) -> Raw:
    """Translate a completion's log probabilities to a chat's."""
    decoded = _text_logprobs(raw)
    if decoded is None:
        return _NULL
    tops = decoded.top_logprobs or [None] * len(decoded.tokens)
    content = [
        {**_one(token, logprob), "top_logprobs": [_one(*likely) for likely in (top or {}).items()]}
        for token, logprob, top in zip(decoded.tokens, decoded.token_logprobs, tops, strict=False)
    ]
    return Raw(_encode({"content": content, "refusal": None}))


def _one(token: str, logprob: float | None) -> dict[str, Any]:
    return {"token": token, "logprob": -9999.0 if logprob is None else logprob, "bytes": list(token.encode())}


def _completions(raw: Raw) -> Raw:
    """Translate a chat's log probabilities to a completion's. Offsets count from the start of the chunk's text."""
    decoded = _chat_logprobs(raw)
    if decoded is None or decoded.content is None:
        return _NULL
    offsets, at = [], 0
    for one in decoded.content:
        offsets.append(at)
        at += len(one.token)
    return Raw(_encode({
        "tokens": [one.token for one in decoded.content],
        "token_logprobs": [one.logprob for one in decoded.content],
        "top_logprobs": [{top.token: top.logprob for top in one.top_logprobs} for one in decoded.content],
        "text_offset": offsets,
    }))  # fmt: skip

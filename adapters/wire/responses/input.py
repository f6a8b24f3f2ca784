"""Translates the input of a Responses request into chat messages."""

from typing import Any, NoReturn

import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.wire import decoding

Message = dict[str, Any]

_ABSENT = Raw(b"")
_TEXTS = frozenset({"input_text", "output_text", "text"})
_ROLES = frozenset({"user", "assistant", "system", "developer"})
_CONTENT = frozenset({"content", "refusal", "tool_calls"})
NOT_STORED = "no files and no responses are stored here, so send it in full"


class _Item(msgspec.Struct):
    """An item of any type, which defines the fields that apply."""

    type: str | None = None
    role: str | None = None
    content: Raw = _ABSENT
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: Raw = _ABSENT


class _Part(msgspec.Struct):
    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    detail: str | None = None
    file_data: str | None = None
    filename: str | None = None
    input_audio: Raw = _ABSENT


class _Reasoning(msgspec.Struct):
    text: str = ""


_items = msgspec.json.Decoder(list[_Item])
_parts = msgspec.json.Decoder(list[_Part])
_reasoning = msgspec.json.Decoder(list[_Reasoning] | None)
_text = msgspec.json.Decoder(str)


class _Wrong(Exception):
    """A fault in an item. `where` is a field of the item or part; `problem` completes a sentence after its name."""

    def __init__(self, where: str, problem: str) -> None:
        self.where = where
        self.problem = problem


def messages_of(given: Raw, instructions: str | None) -> list[Message]:
    """Translate the input. Raises `CallerError` that names the item at fault."""
    messages: list[Message] = [] if instructions is None else [{"role": "system", "content": instructions}]
    if _is_text(given):
        return [*messages, {"role": "user", "content": _decoded(_text, given, "input")}]
    items = _decoded(_items, given, "input")
    if not items:
        raise CallerError("`input` must not be empty.", param="input")
    turn = max((i for i, item in enumerate(items) if item.role == "user"), default=-1)
    for index, item in enumerate(items):
        try:
            _add(messages, item, is_old=index < turn)
        except _Wrong as wrong:
            param = f"input[{index}]{wrong.where}"
            raise CallerError(f"`{param}` {wrong.problem}.", param=param) from None
    return [_complete(message) for message in messages if message["role"] != "assistant" or message.keys() & _CONTENT]


def _add(messages: list[Message], item: _Item, *, is_old: bool) -> None:
    kind = item.type or ("message" if item.role else None)
    if kind == "message":
        _add_message(messages, item)
    elif kind == "function_call":
        function = {"name": _given(item.name, ".name"), "arguments": _given(item.arguments, ".arguments")}
        call = {"id": _given(item.call_id, ".call_id"), "type": "function", "function": function}
        _assistant(messages).setdefault("tool_calls", []).append(call)
    elif kind == "function_call_output":
        content = _content(item.output, ".output", only_text=True)
        messages.append({"role": "tool", "tool_call_id": _given(item.call_id, ".call_id"), "content": content})
    elif kind == "reasoning":
        # Reasoning from before the last user message is not used by models, and some servers refuse it.
        if not is_old and (text := _thought(item.content)):
            _assistant(messages, without="reasoning_content")["reasoning_content"] = text
    elif kind == "item_reference":
        raise _Wrong("", f"refers to a stored item: {NOT_STORED}")
    else:
        raise _Wrong(".type", f"is {kind!r}, which a chat cannot express" if kind else "is missing")


def _add_message(messages: list[Message], item: _Item) -> None:
    if item.role not in _ROLES:
        raise _Wrong(".role", "must be user, assistant, system or developer")
    if item.role != "assistant":
        messages.append({"role": item.role, "content": _content(item.content, ".content")})
        return
    message = _assistant(messages, without="content")
    if _is_text(item.content):
        message["content"] = _content(item.content, ".content")
        return
    parts = _decoded_parts(item.content, ".content")
    if refused := [part.refusal for part in parts if part.type == "refusal" and part.refusal]:
        message["refusal"] = "\n".join(refused)
    message["content"] = _joined([part for part in parts if part.type != "refusal"], ".content", only_text=True) or None


def _assistant(messages: list[Message], without: str = "") -> Message:
    """The assistant's open message if it lacks this field; otherwise a new one."""
    if not messages or messages[-1]["role"] != "assistant" or without in messages[-1]:
        messages.append({"role": "assistant"})
    return messages[-1]


def _complete(message: Message) -> Message:
    """Servers require an explicit null without text."""
    return message if "content" in message else {**message, "content": None}


# ── parts ─────────────────────────────────────────────────────────────────────────────────────────────


def _content(raw: Raw, where: str, *, only_text: bool = False) -> str | list[dict[str, Any]]:
    if _is_text(raw):
        try:
            return _text.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _Wrong(where, f"is not valid: {error}") from None
    return _joined(_decoded_parts(raw, where), where, only_text=only_text)


def _joined(parts: list[_Part], where: str, *, only_text: bool) -> str | list[dict[str, Any]]:
    """A single text as a string: not every server accepts a list."""
    if not parts:
        return ""
    if len(parts) == 1 and parts[0].type in _TEXTS:
        return _given(parts[0].text, f"{where}[0].text")
    return [_part(part, f"{where}[{index}]", only_text=only_text) for index, part in enumerate(parts)]


def _part(part: _Part, where: str, *, only_text: bool) -> dict[str, Any]:
    if part.type in _TEXTS:
        return {"type": "text", "text": _given(part.text, f"{where}.text")}
    if only_text:
        raise _Wrong(f"{where}.type", f"is {part.type!r}: a chat has only text here")
    if part.type == "input_image":
        if part.image_url is None:
            raise _Wrong(where, f"has no image_url: {NOT_STORED}")
        image = {"url": part.image_url} | ({"detail": part.detail} if part.detail else {})
        return {"type": "image_url", "image_url": image}
    if part.type == "input_file":
        if part.file_data is None:
            raise _Wrong(where, f"has no file_data: {NOT_STORED}")
        return {"type": "file", "file": {"file_data": part.file_data, "filename": part.filename or "file"}}
    if part.type == "input_audio" and part.input_audio != _ABSENT:
        return {"type": "input_audio", "input_audio": part.input_audio}
    raise _Wrong(f"{where}.type", f"is {part.type!r}, which a chat cannot express")


def _thought(raw: Raw) -> str:
    """Text of a reasoning item. Encrypted reasoning has none and is left out."""
    if raw == _ABSENT:
        return ""
    try:
        return "".join(part.text for part in _reasoning.decode(raw) or ())
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _Wrong(".content", f"is not valid: {error}") from None


def _decoded_parts(raw: Raw, where: str) -> list[_Part]:
    if raw == _ABSENT:
        raise _Wrong(where, "is missing")
    try:
        return _parts.decode(raw)
    except decoding.MALFORMED_JSON as error:
        raise _Wrong(where, f"is not valid: {error}") from None


def _given(value: str | None, where: str) -> str:
    if value is None:
        raise _Wrong(where, "is missing")
    return value


def _is_text(raw: Raw) -> bool:
    return bytes(memoryview(raw)[:1]) == b'"'


def _decoded(decoder: "msgspec.json.Decoder[Any]", raw: Raw, name: str) -> Any:
    try:
        return decoder.decode(raw)
    except decoding.MALFORMED_JSON as error:
        _refuse(name, str(error))


def _refuse(name: str, why: str) -> NoReturn:
    raise CallerError(f"`{name}` is not valid: {why}.", param=name)

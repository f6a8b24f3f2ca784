"""Translates the messages of a chat into Anthropic's turns."""

import re
from typing import Any, Literal

import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.wire import decoding
from adapters.wire.anthropic.blocks import INVALID
from adapters.wire.body import field

Object = dict[str, Any]

_DATA = re.compile(r"data:([A-Za-z0-9.+/-]{1,100})(?:;[^,;]{1,100})*;base64,")


class _Part(msgspec.Struct, tag_field="type", forbid_unknown_fields=True, kw_only=True):
    cache_control: Any = None

    def block(self) -> Object:
        raise NotImplementedError


class _Text(_Part, tag="text"):
    text: str

    def block(self) -> Object:
        return {"type": "text", "text": self.text}


class _Refusal(_Part, tag="refusal"):
    refusal: str

    def block(self) -> Object:
        return {"type": "text", "text": self.refusal}


class _Link(msgspec.Struct):
    """`detail` is a hint."""

    url: str


class _Image(_Part, tag="image_url"):
    image_url: _Link

    def block(self) -> Object:
        return {"type": "image", "source": _source(self.image_url.url)}


class _Named(msgspec.Struct):
    file_data: str | None = None
    filename: str | None = None
    file_id: str | None = None


class _File(_Part, tag="file"):
    file: _Named

    def block(self) -> Object:
        data = self.file.file_data
        if self.file.file_id is not None or data is None:
            raise ValueError("has a file that the gateway does not store: send it as `file_data`.")
        block: Object = {"type": "document", "source": _source(data)}
        if self.file.filename:
            block["title"] = self.file.filename
        return block


class _Function(msgspec.Struct):
    name: str
    arguments: str


class _Call(msgspec.Struct):
    id: str
    function: _Function
    type: Literal["function"] = "function"

    def block(self) -> Object:
        given = arguments(self.function.arguments)
        return {"type": "tool_use", "id": self.id, "name": self.function.name, "input": given}


_Content = str | list[_Text | _Refusal | _Image | _File] | None


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    """A chat message. `name` and reasoning without a signature have no equivalent; the last fields must be null."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: _Content = None
    tool_call_id: str | None = None
    tool_calls: list[_Call] | None = None
    thinking_blocks: list[Raw] | None = None
    cache_control: Any = None
    refusal: str | None = None
    name: str | None = None
    reasoning: Any = None
    reasoning_content: Any = None
    annotations: Any = None
    audio: None = None
    function_call: None = None


_messages = msgspec.json.Decoder(list[_Message])
_object = msgspec.json.Decoder(dict[str, Raw])


def turns_of(fields: dict[str, Raw]) -> tuple[Any, list[Object]]:
    """The system prompt, and the other turns. Raises `CallerError`."""
    messages = field(fields, "messages", _messages, required=True) or []
    system, turns = list[Object](), list[Object]()
    for i, message in enumerate(messages):
        try:
            if message.role in ("system", "developer") and not turns:
                system += _blocks(message.content, message.cache_control)
            else:
                _add(turns, message)
        except ValueError as error:
            raise CallerError(f"`messages[{i}]` {error}", param="messages") from None
    if len(system) == 1 and set(system[0]) == {"type", "text"}:
        return system[0]["text"], turns
    return system, turns


def _add(turns: list[Object], message: _Message) -> None:
    """Append a turn, or extend the one before: one turn has all results of tools and the user's text after them."""
    if message.role == "tool":
        blocks = [_result(message)]
    elif message.role == "assistant":
        blocks = _assistant_blocks(message)
    elif isinstance(message.content, str) and message.cache_control is None:
        blocks = [{"type": "text", "text": message.content}]
    else:
        blocks = _blocks(message.content, message.cache_control)
    role = {"tool": "user", "developer": "system"}.get(message.role, message.role)
    before = turns[-1]["content"] if turns and turns[-1]["role"] == role == "user" else None
    if isinstance(before, list) and before and before[-1]["type"] == "tool_result":
        before += blocks
    elif len(blocks) == 1 and set(blocks[0]) == {"type", "text"}:
        turns.append({"role": role, "content": blocks[0]["text"]})
    else:
        turns.append({"role": role, "content": blocks})


def _blocks(content: _Content, cache_control: Any = None) -> list[Object]:
    if content is None:
        raise ValueError("has no `content`.")
    if isinstance(content, str):
        blocks: list[Object] = [{"type": "text", "text": content}]
    else:
        blocks = [_marked(part.block(), part.cache_control) for part in content]
    if blocks:
        _marked(blocks[-1], cache_control)
    return blocks


def _marked(block: Object, cache_control: Any) -> Object:
    if cache_control is not None:
        block["cache_control"] = cache_control
    return block


def _result(message: _Message) -> Object:
    if message.tool_call_id is None:
        raise ValueError("has no `tool_call_id`.")
    content: Any = message.content
    if not isinstance(content, str):
        content = _blocks(content)
    result = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": content}
    return _marked(result, message.cache_control)


def _assistant_blocks(message: _Message) -> list[Object | Any]:
    """Thoughts come first, and must be as they were."""
    texts: list[Any] = [_object.decode(raw) for raw in message.thinking_blocks or ()]
    content = message.content if message.content is not None else message.refusal
    if content:
        texts += _blocks(content)
    texts += [call.block() for call in message.tool_calls or ()]
    if texts:
        _marked(texts[-1], message.cache_control)
    elif content is None:
        raise ValueError("has neither `content` nor `tool_calls`.")
    return texts or _blocks(content)


def arguments(text: str) -> Any:
    """A tool call's arguments as an object; malformed arguments in Anthropic's form for them."""
    try:
        return _object.decode(text or "{}")
    except decoding.MALFORMED_JSON:
        return {INVALID: text}


def _source(url: str) -> Object:
    """The address or the data of a picture or a file."""
    data = _DATA.match(url)
    if data is not None:
        return {"type": "base64", "media_type": data[1], "data": url[data.end() :]}
    if url.startswith("data:"):
        raise ValueError("has a `data:` URL that is not in base64.")
    if not url.startswith(("http://", "https://")):
        raise ValueError("has a picture or file that is neither a `data:` nor an `https:` URL.")
    return {"type": "url", "url": url}

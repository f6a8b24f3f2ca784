"""Translates the messages of a chat into Anthropic's turns."""

import re
from typing import Any, Literal

import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.ignored_fields import IgnoredFields
from adapters.requests import Fields
from adapters.wire import decoding
from adapters.wire.anthropic import call_ids
from adapters.wire.anthropic.blocks import INVALID
from adapters.wire.anthropic.tools import MAX_NAME
from adapters.wire.body import field
from adapters.wire.decoding import MALFORMED_JSON
from adapters.wire.openai import bounds, kept_signatures
from adapters.wire.openai.known_fields import DefinedFields, LeftOut

# Removes the thoughts that only this gateway wrote from a message for a server of Anthropic's.
#
# A turn that a server of chats answered has thoughts without a server's signature, and kept signatures of other
# servers. Clients send both back, also after the session has moved to Anthropic's API, which refuses them.

_PREFIX = re.escape(kept_signatures.PREFIX.encode())
_OWN = re.compile(rb'"signature"\s*:\s*"(?:"|%b)|"data"\s*:\s*"%b' % (_PREFIX, _PREFIX))
"""A sign of such a thought. In a text the quotes would be escaped."""


class _Block(msgspec.Struct):
    type: str = ""
    signature: str | None = None
    data: str = ""


_encode = msgspec.json.Encoder().encode
_message_fields = msgspec.json.Decoder(list[Fields]).decode
_raw_blocks = msgspec.json.Decoder(list[Raw]).decode
_block = msgspec.json.Decoder(_Block).decode


def without_own_thoughts(native: Fields) -> Fields:
    """The fields of a message without such thoughts, and without turns that had nothing else. All other bytes are
    unchanged. A malformed message stays as it is."""
    if _OWN.search(memoryview(native["messages"])) is None:
        return native
    try:
        messages = [left for message in _message_fields(native["messages"]) if (left := _without(message)) is not None]
    except MALFORMED_JSON:
        return native
    return {**native, "messages": Raw(_encode(messages))}


def is_own(raw: Raw) -> bool:
    """Whether a block is such a thought. Raises msgspec's errors."""
    block = _block(raw)
    if block.type == "thinking":
        return not block.signature or kept_signatures.is_own(block.signature)
    return block.type == "redacted_thinking" and kept_signatures.is_own(block.data)


def _without(message: Fields) -> Fields | None:
    content = message.get("content", Raw(b"null"))
    if bytes(memoryview(content)[:1]) != b"[":
        return message
    blocks = _raw_blocks(content)
    left = [raw for raw in blocks if not is_own(raw)]
    if len(left) == len(blocks):
        return message
    return {**message, "content": Raw(_encode(left))} if left else None


Object = dict[str, Any]

NO_TEXT = "."
"""The text of a turn that must have one."""
_DATA = re.compile(r"data:([A-Za-z0-9.+/-]{1,100})(?:;[^,;]{1,100})*;base64,")


class _Part(msgspec.Struct, tag_field="type", forbid_unknown_fields=True, kw_only=True):
    cache_control: Any = None


class _Text(_Part, tag="text"):
    text: str

    def blocks(self) -> list[Object]:
        return _text(self.text)


class _Refusal(_Part, tag="refusal"):
    refusal: str

    def blocks(self) -> list[Object]:
        return _text(self.refusal)


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


class ChatFunction(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: str


class ChatCall(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    function: ChatFunction
    type: Literal["function"] = "function"

    def block(self, id_: str) -> Object:
        name = bounds.tool_name(self.function.name, MAX_NAME)
        return {"type": "tool_use", "id": id_, "name": name, "input": arguments(self.function.arguments)}


_Content = str | list[_Text | _Refusal | _Image | _File | LeftOut] | None


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    """A chat message. `name` and reasoning without a signature have no equivalent; the last field must be null."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: _Content = None
    tool_call_id: str | None = None
    tool_calls: list[ChatCall] | None = None
    thinking_blocks: list[Raw] | None = None
    cache_control: Any = None
    refusal: str | None = None
    name: str | None = None
    reasoning: Any = None
    reasoning_content: Any = None
    annotations: Any = None
    function_call: None = None


_messages = DefinedFields[list[_Message]](list[_Message])
_object = msgspec.json.Decoder(dict[str, Raw])


class _CallIds:
    """The ids of one conversation's calls. Anthropic's API demands that they differ, and some servers begin again with
    `call_0` in each turn."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}
        self._open: dict[str, list[str]] = {}
        self._last: dict[str, str] = {}

    def of_call(self, id_: str) -> str:
        """The id of a further call."""
        plain = unique = call_ids.to_message(id_)
        while unique in self._times:
            self._times[plain] += 1
            unique = f"{plain}-{self._times[plain]}"
        self._times[unique] = 1
        self._open.setdefault(id_, []).append(unique)
        return unique

    def of_result(self, id_: str) -> str:
        """The id of the call that a result belongs to."""
        if calls := self._open.get(id_):
            self._last[id_] = calls.pop(0)
        return self._last.get(id_) or call_ids.to_message(id_)


def turns_of(fields: dict[str, Raw], ignored: IgnoredFields) -> tuple[Any, list[Object]]:
    """The system prompt, and the other turns, which begin with the user's. Raises `CallerError`."""
    messages = field(fields, "messages", _messages.reporting(ignored), required=True) or []
    system, turns, ids = list[Object](), list[Object](), _CallIds()
    for i, message in enumerate(messages):
        try:
            if message.role in ("system", "developer") and not turns:
                system += _blocks(message.content, message.cache_control)
            else:
                _add(turns, message, ids)
        except ValueError as error:
            raise CallerError(f"`messages[{i}]` {error}", param="messages") from None
    if not turns and system:
        system, turns = [], [_turn("user", system)]
    if not turns or turns[0]["role"] != "user":
        turns.insert(0, _turn("user", _text(NO_TEXT)))
    if turns[-1]["role"] == "assistant":
        if messages[-1].role == "assistant":
            _trim(turns[-1])
        else:  # the last message is a blank one of the user
            turns.append(_turn("user", _text(NO_TEXT)))
    if len(system) == 1 and set(system[0]) == {"type", "text"}:
        return system[0]["text"], turns
    return system, turns


def _add(turns: list[Object], message: _Message, ids: _CallIds) -> None:
    """Append a turn, or extend the one before: one turn has all results of tools and the user's text after them. A turn
    without anything to read is left out, because Anthropic's API refuses it."""
    if message.role == "tool":
        blocks = [_result(message, ids)]
    elif message.role == "assistant":
        blocks = _assistant_blocks(message, ids)
    else:
        blocks = _blocks(message.content, message.cache_control)
    role = {"tool": "user", "developer": "system"}.get(message.role, message.role)
    before = turns[-1]["content"] if turns and turns[-1]["role"] == role == "user" else None
    if isinstance(before, list) and before and before[-1]["type"] == "tool_result":
        before += blocks
    elif blocks:
        turns.append(_turn(role, blocks))


def _turn(role: str, blocks: list[Object]) -> Object:
    is_text = len(blocks) == 1 and set(blocks[0]) == {"type", "text"}
    return {"role": role, "content": blocks[0]["text"] if is_text else blocks}


def _text(text: str) -> list[Object]:
    """The block of a text; none for a blank text, which Anthropic's API refuses."""
    return [{"type": "text", "text": text}] if text and not text.isspace() else []


def _trim(turn: Object) -> None:
    """Remove the white space at the end of an answer that is to be continued: Anthropic's API refuses it."""
    content = turn["content"]
    if isinstance(content, str):
        turn["content"] = content.rstrip()
    elif content[-1]["type"] == "text":
        content[-1]["text"] = content[-1]["text"].rstrip()


def _blocks(content: _Content, cache_control: Any = None) -> list[Object]:
    if content is None:
        raise ValueError("has no `content`.")
    blocks = list[Object]()
    for part in [_Text(text=content)] if isinstance(content, str) else content:
        if isinstance(part, LeftOut):
            blocks += _unknown(part)
        elif isinstance(part, _Text | _Refusal):
            blocks += [_marked(block, part.cache_control) for block in part.blocks()]
        else:
            blocks.append(_marked(part.block(), part.cache_control))
    if blocks:
        _marked(blocks[-1], cache_control)
    return blocks


def _unknown(part: LeftOut) -> list[Object]:
    if part.of == "input_audio":
        raise ValueError("has sound, which this model cannot hear.")
    return _text(f"[Left out: {part.of}]")


def _marked(block: Object, cache_control: Any) -> Object:
    if cache_control is not None:
        block["cache_control"] = cache_control
    return block


def _result(message: _Message, ids: _CallIds) -> Object:
    if message.tool_call_id is None:
        raise ValueError("has no `tool_call_id`.")
    content: Any = message.content
    if not isinstance(content, str):
        content = _blocks(content)
    result = {"type": "tool_result", "tool_use_id": ids.of_result(message.tool_call_id), "content": content}
    return _marked(result, message.cache_control)


def _assistant_blocks(message: _Message, ids: _CallIds) -> list[Object | Any]:
    """Thoughts come first, and must be as they were."""
    texts: list[Any] = [_object.decode(raw) for raw in message.thinking_blocks or () if not is_own(raw)]
    _complete(texts, message.reasoning_content)
    content = message.content if message.content is not None else message.refusal
    if content is not None:
        texts += _blocks(content)
    elif not texts and not message.tool_calls:
        raise ValueError("has neither `content` nor `tool_calls`.")
    texts += [call.block(ids.of_call(call.id)) for call in message.tool_calls or ()]
    if texts:
        _marked(texts[-1], message.cache_control)
    return texts


def _complete(thoughts: list[dict[str, Raw]], text: Any) -> None:
    """Give a signed thought its text. A stream has the text beside the signature, as `reasoning_content`."""
    signed = [block for block in thoughts if "thinking" in block]
    if len(signed) == 1 and isinstance(text, str) and bytes(signed[0]["thinking"]) == b'""':
        signed[0]["thinking"] = Raw(_encode(text))


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
        kind = "image/jpeg" if data[1] == "image/jpg" else data[1]
        return {"type": "base64", "media_type": kind, "data": url[data.end() :]}
    if url.startswith("data:"):
        raise ValueError("has a `data:` URL that is not in base64.")
    if not url.startswith(("http://", "https://")):
        raise ValueError("has a picture or file that is neither a `data:` nor an `https:` URL.")
    return {"type": "url", "url": url}

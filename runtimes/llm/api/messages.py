"""The turns of a conversation in OpenAI's API."""

import re
from contextlib import suppress
from itertools import groupby
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from adapters.errors import CallerError

MAX_MESSAGES = 1 << 14
MAX_PARTS = 1024
"""Parts of a content that a template gets one by one. More become one text."""
MAX_DEPTH = 200
"""Levels of arguments that are closed if they are cut."""


class ImageUrl(msgspec.Struct, forbid_unknown_fields=True):
    """A picture, as a `data:` URL. `detail` has no effect."""

    url: str
    detail: str | None = None


class ThinkingText(msgspec.Struct, forbid_unknown_fields=True):
    """A part of a thought. It is no `TurnPart`, because a type that contains itself is searched once per level."""

    type: Literal["text"]
    text: str


class TurnPart(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A part of a content. `refusal` and `thinking` are parts of an assistant's answer."""

    type: Literal["text", "input_text", "output_text", "refusal", "thinking", "image_url", "input_image"]
    text: str | None = None
    image_url: ImageUrl | str | None = None
    refusal: str | None = None
    thinking: str | list[ThinkingText] | None = None
    annotations: list[Any] | None = None
    closed: bool | None = None

    @property
    def written(self) -> str | None:
        """The text of the part, also of a thought."""
        value = self.refusal if self.type == "refusal" else self.thinking if self.type == "thinking" else self.text
        return "".join([part.text for part in value]) if isinstance(value, list) else value

    @property
    def is_picture(self) -> bool:
        return self.type in ("image_url", "input_image")


class PicturePart(TurnPart, kw_only=True):
    """A picture, and its name in errors."""

    url: str
    detail: str | None
    param: str


class CalledFunction(msgspec.Struct, forbid_unknown_fields=True):
    """`arguments` are JSON, as the model wrote them."""

    name: str
    arguments: str = "{}"


class AssistantToolCall(msgspec.Struct, forbid_unknown_fields=True):
    """A call of the assistant. Some clients copy `index` from a stream."""

    function: CalledFunction
    id: str | None = None
    type: Literal["function"] = "function"
    index: int | None = None

    def for_template(self) -> dict[str, Any]:
        """The call for a template, which encodes the arguments as JSON itself."""
        called = {"name": self.function.name, "arguments": self._arguments()}
        return {"id": self.id or "", "type": "function", "function": called}

    def _arguments(self) -> dict[str, Any]:
        """The arguments. Of those that the end of an answer has cut, the ones that are whole."""
        text = self.function.arguments or "{}"
        for whole in (text, closed(text)):
            with suppress(msgspec.DecodeError, RecursionError):
                return msgspec.json.decode(whole, type=dict[str, Any])
        message = f"The `arguments` of a call of `{self.function.name}` are not a JSON object."
        raise CallerError(message, param="messages")


class Message(msgspec.Struct, forbid_unknown_fields=True):
    """One turn. The fields that must be null exist because clients send an assistant's answer back whole."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TurnPart] | None = None
    name: str | None = None
    annotations: Annotated[list[Any], Meta(max_length=0)] | None = None
    audio: None = None
    function_call: None = None
    refusal: None = None
    tool_calls: list[AssistantToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    thinking_blocks: list[Any] | None = None
    """Thoughts with the signature of another server, which no template uses."""

    @property
    def thought(self) -> str | None:
        """The assistant's thoughts; newer servers name the field `reasoning`."""
        return self.reasoning if self.reasoning_content is None else self.reasoning_content

    @property
    def text(self) -> str:
        content = self.content or ""
        return content if isinstance(content, str) else _joined(content)

    @property
    def pictures(self) -> list[PicturePart]:
        """The pictures of a turn that was checked."""
        return (
            [part for part in self.content if isinstance(part, PicturePart)] if isinstance(self.content, list) else []
        )

    @property
    def length(self) -> int:
        """Characters that a template must render."""
        calls = [len(call.function.name) + len(call.function.arguments) for call in self.tool_calls or ()]
        return len(self.text) + len(self.name or "") + len(self.thought or "") + sum(calls)

    def for_template(self) -> dict[str, Any]:
        """The role in chat templates: `developer` is OpenAI's newer name of `system`."""
        parts = self.content if isinstance(self.content, list) else None
        content = self.text if parts is None else [_for_template(part) for part in parts]
        message: dict[str, Any] = {"role": "system" if self.role == "developer" else self.role, "content": content}
        if self.name is not None:
            message["name"] = self.name
        if self.tool_calls:
            message["tool_calls"] = [call.for_template() for call in self.tool_calls]
        if self.tool_call_id is not None:
            message["tool_call_id"] = self.tool_call_id
        if self.thought is not None:
            message["reasoning_content"] = self.thought
        return message


def check_messages(messages: list[Message]) -> None:
    """Raises CallerError for an invalid turn.

    Omits the fields that no template uses: a turn of many values becomes small before it leaves the process that has
    decoded it.
    """
    for i, message in enumerate(messages):
        message.thinking_blocks = None
        if isinstance(message.content, list):
            _read_parts(message, message.content, f"messages[{i}].content")
        if message.tool_calls and message.role != "assistant":
            param = f"messages[{i}].tool_calls"
            raise CallerError(f"`{param}` is the assistant's alone.", param=param)
        if message.thought is not None and message.role != "assistant":
            param = f"messages[{i}].reasoning_content"
            raise CallerError(f"`{param}` is the assistant's alone.", param=param)
        if message.content is None and not message.tool_calls and message.thought is None:
            param = f"messages[{i}].content"
            raise CallerError(f"`{param}` is missing.", param=param)
        if (message.role == "tool") != (message.tool_call_id is not None):
            param = f"messages[{i}].tool_call_id"
            raise CallerError(f"`{param}` belongs to a message of role tool, which must have it.", param=param)


def _read_parts(message: Message, parts: list[TurnPart], param: str) -> None:
    """Make all parts texts and pictures; thoughts become those of the message."""
    thoughts, own = list[str](), list[TurnPart]()
    for i, part in enumerate(parts):
        if part.is_picture:
            own.append(_picture(part, f"{param}[{i}].image_url"))
        elif part.image_url:
            name = f"{param}[{i}].image_url"
            raise CallerError(f"`{name}` needs a part of the type `image_url`, not `{part.type}`.", param=name)
        elif (written := part.written) is None:
            raise CallerError(f"`{param}` has a part without its text.", param=param)
        elif part.type == "thinking":
            thoughts.append(written)
        else:
            own.append(TurnPart("text", written))
    message.content = own if len(own) <= MAX_PARTS else _merged(own)
    if thoughts and message.thought is None:
        message.reasoning_content = "".join(thoughts)


def _picture(part: TurnPart, param: str) -> PicturePart:
    if part.image_url is None:
        raise CallerError(f"`{param}` is missing.", param=param)
    link = ImageUrl(part.image_url) if isinstance(part.image_url, str) else part.image_url
    return PicturePart("image_url", url=link.url, detail=link.detail, param=param)


def _merged(parts: list[TurnPart]) -> str | list[TurnPart]:
    """All texts beside each other as one."""
    runs = [(picture, list(run)) for picture, run in groupby(parts, lambda part: part.is_picture)]
    if not any(picture for picture, _ in runs):
        return _joined(parts)
    return [part for picture, run in runs for part in (run if picture else [TurnPart("text", _joined(run))])]


def _joined(parts: list[TurnPart]) -> str:
    return "\n".join([part.text or "" for part in parts if not part.is_picture])


def _for_template(part: TurnPart) -> dict[str, Any]:
    return {"type": "image"} if part.is_picture else {"type": "text", "text": part.text}


_JSON = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[{}\[\]:,]|[^\s"{}\[\]:,]+', re.DOTALL)


def closed(text: str) -> str:
    """The beginning of a JSON object, closed after its last whole value. A number at the end may be cut: it is none.

    A text of more than MAX_DEPTH levels is returned as it is.
    """
    open_, end = list[str](), 0
    for token in _JSON.finditer(text):
        if token[0] in "{[":
            if len(open_) == MAX_DEPTH:
                return text
            open_.append("}" if token[0] == "{" else "]")
            end = token.end()
        elif token[0] in "}]":
            del open_[-1:]
            end = token.end()
        elif token[0] == ",":
            end = token.start()
    return text[:end] + "".join(reversed(open_))


def check_continued(messages: list[Message]) -> None:
    """Raises CallerError unless the last message is text of the assistant."""
    last = messages[-1] if messages else None
    if last is None or last.role != "assistant":
        message = "`continue_final_message` needs the last message to be the assistant's."
        raise CallerError(message, param="continue_final_message")
    if last.tool_calls:
        message = "`continue_final_message` continues text: the last message must have no `tool_calls`."
        raise CallerError(message, param="continue_final_message")

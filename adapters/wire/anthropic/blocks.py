"""The content blocks of Anthropic's messages, and their form in a chat."""

from typing import Any, Literal

import msgspec
from msgspec import Raw

from adapters.wire.anthropic import call_ids
from adapters.wire.openai import bounds
from adapters.wire.openai.known_fields import LeftOut

INVALID = "INVALID_JSON"
"""The key under which a client returns arguments that are not JSON."""

Object = dict[str, Any]

_encode = msgspec.json.Encoder().encode


class Untranslatable(ValueError):
    """A chat has no equivalent. The text completes a sentence that begins with the field's name."""


class _Base(msgspec.Struct, tag_field="type", forbid_unknown_fields=True, kw_only=True):
    cache_control: Any = None


# ── sources of images and files ──────────────────────────────────────────────────────────────────────


class Base64(msgspec.Struct, tag_field="type", tag="base64", forbid_unknown_fields=True):
    media_type: str
    data: str

    @property
    def url(self) -> str:
        return f"data:{self.media_type};base64,{self.data}"


class Url(msgspec.Struct, tag_field="type", tag="url", forbid_unknown_fields=True):
    url: str


class PlainText(msgspec.Struct, tag_field="type", tag="text", forbid_unknown_fields=True):
    data: str
    media_type: Literal["text/plain"] = "text/plain"


class Stored(msgspec.Struct, tag_field="type", tag="file", forbid_unknown_fields=True):
    file_id: str


class Inline(msgspec.Struct, tag_field="type", tag="content", forbid_unknown_fields=True):
    content: "str | list[TextBlock | ImageBlock | LeftOut]"


# ── blocks ────────────────────────────────────────────────────────────────────────────────────────────


class TextBlock(_Base, tag="text"):
    text: str
    citations: Any = None

    def parts(self) -> list[Object]:
        """The parts of a chat message."""
        return as_parts(self.text)


class ImageBlock(_Base, tag="image"):
    source: Base64 | Url | Stored

    def parts(self) -> list[Object]:
        if isinstance(self.source, Stored):
            raise Untranslatable("names a file that only Anthropic's own API stores: send the image itself.")
        return [{"type": "image_url", "image_url": {"url": self.source.url}}]


class DocumentBlock(_Base, tag="document"):
    source: Base64 | Url | Stored | PlainText | Inline
    context: str | None = None
    title: str | None = None

    def parts(self) -> list[Object]:
        about = [text for text in (self.title, self.context) if text]
        source = self.source
        if isinstance(source, Base64):
            file = {"filename": self.title or "document.pdf", "file_data": source.url}
            return [*as_parts(*about[1 if self.title else 0 :]), {"type": "file", "file": file}]
        if isinstance(source, PlainText):
            return as_parts("\n\n".join([*about, source.data]))
        if isinstance(source, Inline):
            return [*as_parts(*about), *parts_of(source.content)]
        raise Untranslatable("names a document that only Anthropic's own API fetches: send the document itself.")


class SearchResultBlock(_Base, tag="search_result"):
    content: list[TextBlock]
    source: str
    title: str

    def parts(self) -> list[Object]:
        return as_parts("\n\n".join([f"{self.title}\n{self.source}", *[block.text for block in self.content]]))


class ThinkingBlock(_Base, tag="thinking"):
    thinking: str
    signature: str = ""


class RedactedThinkingBlock(_Base, tag="redacted_thinking"):
    data: str


class ToolUseBlock(_Base, tag="tool_use"):
    id: str
    name: str
    input: dict[str, Raw]
    caller: Any = None

    def call(self) -> Object:
        """An entry of a chat's `tool_calls`."""
        function = {"name": bounds.tool_name(self.name), "arguments": self._arguments()}
        return {"id": chat_id(self.id), "type": "function", "function": function}

    def _arguments(self) -> str:
        if list(self.input) == [INVALID]:
            decoded = msgspec.json.decode(self.input[INVALID])
            if isinstance(decoded, str):
                return decoded
        return _encode(self.input).decode()


class ToolResultBlock(_Base, tag="tool_result"):
    tool_use_id: str
    content: str | list[TextBlock | ImageBlock | DocumentBlock | SearchResultBlock | LeftOut] | None = None
    is_error: bool | None = None

    def text_and_files(self) -> tuple[str | list[Object], list[Object]]:
        """The text of a tool's result, and its images and files, which a chat has in a message of its own."""
        parts = parts_of(self.content or "")
        texts = [part["text"] for part in parts if part["type"] == "text"]
        if self.is_error:
            texts[:1] = [" ".join(["Error:", *texts[:1]])]
        text = texts[0] if len(texts) == 1 else as_parts(*texts) or ""
        return text, [part for part in parts if part["type"] != "text"]


Block = (
    TextBlock
    | ImageBlock
    | DocumentBlock
    | SearchResultBlock
    | ThinkingBlock
    | RedactedThinkingBlock
    | ToolUseBlock
    | ToolResultBlock
    | LeftOut
)


def chat_id(id_: str) -> str:
    """The id of a call in a chat."""
    return bounds.call_id(call_ids.to_chat(id_))


def as_parts(*content: str | list[Object]) -> list[Object]:
    """A message's content as a list of parts."""
    parts: list[Object] = []
    for entry in content:
        parts += entry if isinstance(entry, list) else [{"type": "text", "text": entry}]
    return parts


def only(content: str | list[Block], *kinds: type) -> None:
    """Raise `Untranslatable` for a block that this role may not send."""
    for block in () if isinstance(content, str) else content:
        if not isinstance(block, kinds):
            name = block.__struct_config__.tag
            raise Untranslatable(f"has a block of type `{name}`, which is not allowed there.")


def parts_of(content: Any) -> list[Object]:
    """The parts of a chat message for a text or for blocks. A block of an unknown type is mentioned."""
    if isinstance(content, str):
        return as_parts(content)
    parts: list[Object] = []
    for block in content:
        parts += as_parts(f"[Left out: {block.of}]") if isinstance(block, LeftOut) else block.parts()
    return parts

"""Blocks of messages as blocks of Converse."""

import re
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import msgspec

from adapters.errors import CallerError
from adapters.ignored_fields import SCOPE, IgnoredFields
from adapters.wire.anthropic import blocks
from adapters.wire.anthropic.chat_turns import NO_TEXT
from adapters.wire.anthropic.tools import MAX_NAME
from adapters.wire.bedrock.models import Family
from adapters.wire.openai import bounds, kept_signatures
from adapters.wire.openai.known_fields import LeftOut

Object = dict[str, Any]

NAME_BOUNDS = (MAX_NAME, bounds.MAX_NAME)
"""Characters of a tool's name in a message, and in Converse."""
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MISTRAL_ID = re.compile(r"[a-zA-Z0-9]{9}")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_PICTURES = {f"image/{name}": name for name in ("png", "jpeg", "gif", "webp")}
_DOCUMENTS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
}
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9 \-()\[\]]+")
_MAX_TITLE = 180
_TTLS = ("5m", "1h")

_encode = msgspec.json.Encoder().encode


def tool_name(name: str) -> str:
    """The name of a tool within Converse's bounds. Different names stay different."""
    for most in NAME_BOUNDS:
        name = bounds.tool_name(name, most)
    return name


def cache_point(cache_control: Any, ignored: IgnoredFields) -> list[Object]:
    """The cache point for the `cache_control` of the block before it; none without one. Its `scope` is ignored."""
    if not isinstance(cache_control, dict):
        return []
    if "scope" in cache_control:
        ignored.ignore(SCOPE)
    ttl = cache_control.get("ttl")
    return [{"cachePoint": {"type": "default", **({"ttl": ttl} if ttl in _TTLS else {})}}]


class ConverseBlocks:
    """The blocks of one request. Without tools, calls and their results become texts: Converse refuses their blocks."""

    def __init__(self, family: Family, ignored: IgnoredFields, *, has_tools: bool) -> None:
        self._family = family
        self._ignored = ignored
        self._has_tools = has_tools
        self._titles = dict[str, int]()
        """The number of the last document of each name."""

    def of(self, content: str | list[blocks.Block], role: str) -> list[Object]:
        """The blocks of one turn; may be empty. Raises `CallerError`."""
        if isinstance(content, str):
            return _text(content)
        out = list[Object]()
        for block in content:
            encoded = self._block(block, role)
            out += encoded
            if encoded and not isinstance(block, LeftOut):
                out += cache_point(block.cache_control, self._ignored)
        if any("document" in block for block in out) and not any("text" in block for block in out):
            out.append({"text": NO_TEXT})  # Bedrock refuses a document without a text beside it
        return out

    def _block(self, block: blocks.Block, role: str) -> list[Object]:
        match block:
            case blocks.TextBlock():
                return _text(block.text)
            case blocks.ThinkingBlock():
                return [{"reasoningContent": {"reasoningText": {"text": block.thinking, "signature": block.signature}}}]
            case blocks.RedactedThinkingBlock():
                return self._redacted(block.data)
            case blocks.ToolUseBlock():
                return self._call(block)
            case blocks.ToolResultBlock():
                return self._result(block)
            case LeftOut() if role == "assistant":
                return []
        return list(self._given(block))

    def _given(self, block: Any) -> Iterator[Object]:
        """A block of the user's, or of a tool's result."""
        match block:
            case blocks.TextBlock():
                yield from _text(block.text)
            case blocks.ImageBlock():
                yield _picture(block)
            case blocks.DocumentBlock():
                yield from self._document(block)
            case blocks.SearchResultBlock():
                texts = [{"text": part.text} for part in block.content if part.text.strip()]
                yield {"searchResult": {"source": block.source, "title": block.title, "content": texts}}
            case LeftOut():
                yield {"text": f"[Left out: {block.of}]"}

    def _redacted(self, data: str) -> list[Object]:
        """Thoughts that only their server can read. Those of another server are no bytes in base64."""
        if kept_signatures.is_own(data):
            return []
        if len(data) % 4 or not _BASE64.fullmatch(data):
            self._ignored.ignore("redacted_thinking")
            return []
        return [{"reasoningContent": {"redactedContent": data}}]

    # ── tools ─────────────────────────────────────────────────────────────────────────────────────────

    def _id(self, id_: str) -> str:
        """The id of a call within the bounds of the model. Different ids stay different."""
        if self._family == "mistral":
            return id_ if _MISTRAL_ID.fullmatch(id_) else sha256(id_.encode()).hexdigest()[:9]
        return id_ if _ID.fullmatch(id_) else "toolu_" + sha256(id_.encode()).hexdigest()[:48]

    def _call(self, block: blocks.ToolUseBlock) -> list[Object]:
        if self._has_tools:
            return [{"toolUse": {"toolUseId": self._id(block.id), "name": tool_name(block.name), "input": block.input}}]
        return [{"text": f"[Call {block.id} of {block.name}: {_encode(block.input).decode()}]"}]

    def _result(self, block: blocks.ToolResultBlock) -> list[Object]:
        given = [block.content] if isinstance(block.content, str) else block.content or []
        parts = [part for each in given for part in (_text(each) if isinstance(each, str) else self._given(each))]
        if not self._has_tools:
            head = f"[Result of {block.tool_use_id}{', an error' if block.is_error else ''}:"
            texts = [part["text"] for part in parts if "text" in part]
            return [{"text": " ".join([head, *texts]) + "]"}, *[part for part in parts if "text" not in part]]
        result: Object = {"toolUseId": self._id(block.tool_use_id), "content": parts or [{"text": NO_TEXT}]}
        if block.is_error:
            result["status"] = "error"
        return [{"toolResult": result}]

    # ── documents ─────────────────────────────────────────────────────────────────────────────────────

    def _document(self, block: blocks.DocumentBlock) -> Iterator[Object]:
        source = block.source
        if isinstance(source, blocks.Inline):
            yield from _text("\n\n".join([text for text in (block.title, block.context) if text]))
            for each in [source.content] if isinstance(source.content, str) else source.content:
                yield from _text(each) if isinstance(each, str) else self._given(each)
            return
        if isinstance(source, blocks.PlainText):
            kind, data = "txt", b64encode(source.data.encode()).decode()
        elif isinstance(source, blocks.Base64):
            kind, data = _DOCUMENTS.get(source.media_type, ""), source.data
            if not kind:
                raise _refusal(f"has a file of the type {source.media_type[:100]}, which this model cannot read")
        else:
            raise _refusal("has a file by its address or id: this model's servers fetch none, so send the file itself")
        document: Object = {"format": kind, "name": self._title(block.title), "source": {"bytes": data}}
        if block.context:
            document["context"] = block.context
        yield {"document": document}

    def _title(self, title: str | None) -> str:
        """A name in Bedrock's alphabet. No two documents of a request may have one name."""
        stem = (title or "").rpartition(".")[0] or title or ""
        plain = " ".join(_NOT_IN_A_NAME.sub(" ", stem).split())[:_MAX_TITLE].strip() or "document"
        count = self._titles.get(plain, 0) + 1
        name = plain if count == 1 else f"{plain} {count}"
        while name in self._titles:
            count += 1
            name = f"{plain} {count}"
        self._titles[name] = 1
        self._titles[plain] = count
        return name


def _text(text: str) -> list[Object]:
    """The block of a text; none for a blank one, which Bedrock refuses."""
    return [{"text": text}] if text and not text.isspace() else []


def _picture(block: blocks.ImageBlock) -> Object:
    source = block.source
    if not isinstance(source, blocks.Base64):
        raise _refusal("has an image by its address or id: this model's servers fetch none, so send the image itself")
    kind = _PICTURES.get("image/jpeg" if source.media_type == "image/jpg" else source.media_type)
    if kind is None:
        raise _refusal(f"has an image of the type {source.media_type[:100]}, and PNG, JPEG, GIF and WebP are possible")
    return {"image": {"format": kind, "source": {"bytes": source.data}}}


def _refusal(reason: str) -> CallerError:
    return CallerError(f"`messages` {reason}.", param="messages")

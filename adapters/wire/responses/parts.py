"""Translates the parts of an item's content into those of a chat message."""

from typing import Any

import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.wire import decoding
from adapters.wire.openai.ignored_fields import NOT_STORED, IgnoredFields

Part = dict[str, Any]

ABSENT = Raw(b"")
_TEXTS = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})


class _Part(msgspec.Struct):
    type: Any = None
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    detail: str | None = None
    file_data: str | None = None
    filename: str | None = None
    input_audio: Raw = ABSENT
    encrypted_content: Any = None


_parts = msgspec.json.Decoder(list[_Part])
_text = msgspec.json.Decoder(str)


class Wrong(Exception):
    """A fault in an item. `where` is a field of the item or part; `problem` completes a sentence after its name."""

    def __init__(self, where: str, problem: str) -> None:
        self.where = where
        self.problem = problem


def is_text(raw: Raw) -> bool:
    """Whether a value is a JSON text."""
    return bytes(memoryview(raw)[:1]) == b'"'


def text_of(raw: Raw, where: str) -> str:
    """Decode a text. Raises `Wrong`."""
    try:
        return _text.decode(raw)
    except decoding.MALFORMED_JSON as error:
        raise Wrong(where, f"is not valid: {error}") from None


def content_of(raw: Raw, where: str) -> list[Part]:
    """The parts of a message that the client wrote. Raises `Wrong` for one that a chat cannot express."""
    if is_text(raw):
        return [_as_text(text_of(raw, where))]
    return [_part(part, f"{where}[{index}]") for index, part in enumerate(_decoded(raw, where))]


def history_of(raw: Raw, where: str, ignored: IgnoredFields) -> list[Part]:
    """The parts of an item that a model or a tool wrote. A part that a chat cannot express is ignored: the client
    repeats it with each request. Refusals keep their type. Raises `Wrong`."""
    if is_text(raw):
        return [_as_text(text_of(raw, where))]
    parts = list[Part]()
    for part in _decoded(raw, where):
        try:
            parts.append({"type": "refusal", "refusal": part.refusal} if part.refusal else _part(part, where))
        except Wrong:
            ignored.ignore(part.type if isinstance(part.type, str) else "content")
    return parts


def joined(parts: list[Part]) -> str | list[Part]:
    """A single text as a string: not every server accepts a list."""
    if not parts:
        return ""
    return str(parts[0]["text"]) if len(parts) == 1 and parts[0]["type"] == "text" else parts


def as_parts(content: str | list[Part]) -> list[Part]:
    """A message's content as a list of parts."""
    return content if isinstance(content, list) else [_as_text(content)]


def divided(parts: list[Part]) -> tuple[str | list[Part], list[Part]]:
    """The texts, and the images and files, which only a user's message has."""
    return joined([part for part in parts if part["type"] == "text"]), [
        part for part in parts if part["type"] not in ("text", "refusal")
    ]


def _as_text(text: str) -> Part:
    return {"type": "text", "text": text}


def _part(part: _Part, where: str) -> Part:
    if part.type in _TEXTS:
        if part.text is None:
            raise Wrong(f"{where}.text", "is missing")
        return _as_text(part.text)
    if part.type in ("input_image", "computer_screenshot"):
        if part.image_url is None:
            raise Wrong(where, f"has no image_url: {NOT_STORED}")
        image = {"url": part.image_url} | ({"detail": part.detail} if part.detail else {})
        return {"type": "image_url", "image_url": image}
    if part.type == "input_file":
        if part.file_data is None:
            raise Wrong(where, f"has no file_data: {NOT_STORED}")
        return {"type": "file", "file": {"file_data": part.file_data, "filename": part.filename or "file"}}
    if part.type == "input_audio" and part.input_audio != ABSENT:
        return {"type": "input_audio", "input_audio": part.input_audio}
    if part.type == "encrypted_content" and isinstance(part.encrypted_content, str):
        return _as_text(part.encrypted_content)  # the gateway encrypts nothing, so this is an agent's own text
    raise Wrong(f"{where}.type", f"is {part.type!r}, which a chat cannot express")


def _decoded(raw: Raw, where: str) -> list[_Part]:
    if raw == ABSENT:
        raise Wrong(where, "is missing")
    if bytes(memoryview(raw)[:1]) == b"{":
        raw = Raw(b"[%b]" % bytes(raw))
    try:
        return _parts.decode(raw)
    except decoding.MALFORMED_JSON as error:
        raise Wrong(where, f"is not valid: {error}") from None


def refused(param: str, problem: str) -> CallerError:
    """The error of a fault at a place of the request."""
    return CallerError(f"`{param}` {problem}.", param=param)

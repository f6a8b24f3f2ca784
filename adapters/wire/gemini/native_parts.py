"""The parts of a client's contents, and their form in a chat."""

from typing import Any

import msgspec
from msgspec import Raw

from adapters.wire.openai.known_fields import DefinedFields

Object = dict[str, Any]


class NativeBlob(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    data: str
    mime_type: str = "image/png"
    display_name: str | None = None

    def part(self) -> Object:
        """The part of a chat's message."""
        kind, url = self.mime_type, f"data:{self.mime_type};base64,{self.data}"
        if kind.startswith("image/"):
            return {"type": "image_url", "image_url": {"url": url}}
        if kind.startswith("audio/"):
            name = {"audio/mpeg": "mp3", "audio/x-wav": "wav"}.get(kind, kind.removeprefix("audio/"))
            return {"type": "input_audio", "input_audio": {"data": self.data, "format": name}}
        return {"type": "file", "file": {"filename": self.display_name or "file", "file_data": url}}


class FileLink(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    file_uri: str
    mime_type: str = "image/"
    display_name: str | None = None

    def part(self) -> Object:
        """The part of a chat's message. Raises `ValueError`."""
        if self.mime_type.startswith("image/") and self.file_uri.startswith(("https://", "http://")):
            return {"type": "image_url", "image_url": {"url": self.file_uri}}
        raise ValueError("has a file that only Google's own API fetches: send it as `inlineData`.")


class Media(msgspec.Struct, rename="camel"):
    """A part of a result that is no text."""

    inline_data: NativeBlob | None = None
    file_data: FileLink | None = None


class NativeCall(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    name: str
    args: dict[str, Raw] | None = None
    id: str | None = None


class NativeResult(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    name: str
    response: dict[str, Raw] | None = None
    id: str | None = None
    parts: list[Media] | None = None
    scheduling: Any = None
    will_continue: Any = None

    @property
    def text(self) -> str:
        """The result as a tool's message has it."""
        given = self.response or {}
        if len(given) == 1 and (name := next(iter(given))) in ("output", "error", "result"):
            text = _text_of(given[name])
            return f"Error: {text}" if name == "error" else text
        return _encode(given).decode()


class NativePart(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A part of any kind. The work of Google's own tools has no equivalent in a chat."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    inline_data: NativeBlob | None = None
    file_data: FileLink | None = None
    function_call: NativeCall | None = None
    function_response: NativeResult | None = None
    executable_code: Any = None
    code_execution_result: Any = None
    tool_call: Any = None
    tool_response: Any = None
    video_metadata: Any = None
    media_resolution: Any = None
    part_metadata: Any = None


class NativeContent(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    parts: list[NativePart] = []
    role: str = "user"


contents = DefinedFields[list[NativeContent] | NativeContent](list[NativeContent] | NativeContent)
system = DefinedFields[NativeContent | str | None](NativeContent | str | None)

_encode = msgspec.json.Encoder().encode
_any = msgspec.json.Decoder().decode


def _text_of(raw: Raw) -> str:
    decoded = _any(raw)
    return decoded if isinstance(decoded, str) else bytes(msgspec.json.format(bytes(raw), indent=-1)).decode()

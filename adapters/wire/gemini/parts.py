"""The parts of a chat's message as parts of Gemini's contents."""

import mimetypes
import re
from typing import Any

import msgspec

from adapters.wire.openai.known_fields import LeftOut

Object = dict[str, Any]

DATA = re.compile(r"data:([A-Za-z0-9.+/-]{1,100})(?:;[^,;]{1,100})*;base64,")
_SCHEMES = ("https://", "http://", "gs://")
_IMAGE = "image/jpeg"
_SOUNDS = {"mp3": "audio/mpeg", "wav": "audio/wav"}


class _Part(msgspec.Struct, tag_field="type", forbid_unknown_fields=True, kw_only=True):
    """`cache_control` has no equivalent: Gemini finds repeated prompts by itself."""

    cache_control: Any = None


class _Text(_Part, tag="text"):
    text: str

    def parts(self) -> list[Object]:
        """Gemini's parts. An empty text is none, because the API refuses it."""
        return [{"text": self.text}] if self.text else []


class _Refusal(_Part, tag="refusal"):
    refusal: str

    def parts(self) -> list[Object]:
        return [{"text": self.refusal}] if self.refusal else []


class _Link(msgspec.Struct):
    """`detail` is a hint."""

    url: str


class _Image(_Part, tag="image_url"):
    image_url: _Link

    def parts(self) -> list[Object]:
        return [file_part(self.image_url.url, _IMAGE)]


class _Sound(msgspec.Struct):
    data: str
    format: str


class _Audio(_Part, tag="input_audio"):
    input_audio: _Sound

    def parts(self) -> list[Object]:
        sound = self.input_audio
        kind = _SOUNDS.get(sound.format, f"audio/{sound.format}")
        return [{"inlineData": {"mimeType": kind, "data": sound.data}}]


class _Named(msgspec.Struct):
    file_data: str | None = None
    filename: str | None = None
    file_id: str | None = None


class _File(_Part, tag="file"):
    file: _Named

    def parts(self) -> list[Object]:
        data = self.file.file_data
        if self.file.file_id is not None or data is None:
            raise ValueError("has a file that the gateway does not store: send it as `file_data`.")
        return [file_part(data, "application/pdf")]


AnyPart = _Text | _Refusal | _Image | _Audio | _File | LeftOut
MessageContent = str | list[AnyPart] | None


def parts_of(content: MessageContent) -> list[Object]:
    """Gemini's parts of a message's content. Raises `ValueError` that completes a sentence about the message."""
    if isinstance(content, str):
        return [{"text": content}] if content else []
    parts = list[Object]()
    for part in content or ():
        parts += [{"text": f"[Left out: {part.of}]"}] if isinstance(part, LeftOut) else part.parts()
    return parts


def file_part(url: str, otherwise: str) -> Object:
    """A picture or a file: its bytes, or the address from which the provider fetches it."""
    if (data := DATA.match(url)) is not None:
        kind = _IMAGE if data[1] == "image/jpg" else data[1]
        return {"inlineData": {"mimeType": kind, "data": url[data.end() :]}}
    if url.startswith("data:"):
        raise ValueError("has a `data:` URL that is not in base64.")
    if not url.startswith(_SCHEMES):
        raise ValueError("has a picture or file that is neither a `data:` nor an `https:` URL.")
    kind, _ = mimetypes.guess_type(url.partition("?")[0], strict=False)
    return {"fileData": {"fileUri": url, "mimeType": kind or otherwise}}

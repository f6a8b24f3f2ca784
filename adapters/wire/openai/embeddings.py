"""Decodes OpenAI's embedding requests and encodes their responses, for servers of embeddings."""

import base64
import re
from collections.abc import Sequence
from contextlib import suppress
from struct import error as struct_error
from struct import pack, unpack
from typing import Annotated, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Raw

from adapters.errors import CallerError
from adapters.wire.body import FieldDecoder

MAX_INPUTS = 2048
T = TypeVar("T")
Tokens = list[Annotated[int, Meta(ge=0, le=2**31 - 1)]]
Inputs = list[str] | list[Tokens]

_texts = msgspec.json.Decoder(list[str]).decode
_text = msgspec.json.Decoder(str).decode
_rows = msgspec.json.Decoder(list[Tokens]).decode
_row = msgspec.json.Decoder(Tokens).decode
_model = msgspec.json.Decoder(str | None)
_format = msgspec.json.Decoder(Literal["float", "base64"] | None)
_dimensions = msgspec.json.Decoder(Annotated[int, Meta(ge=1)] | None)
_encode = msgspec.json.Encoder().encode
_answer = msgspec.json.Decoder(dict[str, Raw]).decode
_entries = msgspec.json.Decoder(list[dict[str, Raw]]).decode
_vector = msgspec.json.Decoder(list[float]).decode
_FORM = re.compile(rb'"embedding"\s*:\s*(["\[])')


TRANSLATED = frozenset({"dimensions", "encoding_format", "input", "input_type", "model"})
"""The fields that a translation to another protocol keeps."""


class EmbeddingFields(NamedTuple):
    """Texts or tokens, and the form of the vectors."""

    model: str
    """The model, which a route may have set; empty if the request has none."""
    inputs: Inputs
    base64: bool
    dimensions: int | None


def decode(fields: dict[str, Raw]) -> EmbeddingFields:
    """Decode a request. Raises `CallerError` that names the field at fault."""
    inputs = _inputs(fields["input"])
    if len(inputs) > MAX_INPUTS:
        raise CallerError(f"`input` has {len(inputs)} entries, and {MAX_INPUTS} at most are accepted.", param="input")
    if not inputs or not all(inputs):
        raise CallerError("`input` is empty, or has an empty entry.", param="input")
    format_ = _field(fields, "encoding_format", _format)
    model = _field(fields, "model", _model)
    return EmbeddingFields(model or "", inputs, format_ == "base64", _field(fields, "dimensions", _dimensions))


def _inputs(raw: Raw) -> Inputs:
    """Decode one text or several, or the tokens of one or several."""
    first = bytes(memoryview(raw)[:1])
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        if first == b'"':
            return [_text(raw)]
        with suppress(msgspec.ValidationError):
            return _texts(raw)
        with suppress(msgspec.ValidationError):
            return [_row(raw)]
        return _rows(raw)
    raise CallerError("`input` must be a text, a list of texts, or tokens as whole numbers.", param="input")


def _field(fields: dict[str, Raw], name: str, decoder: FieldDecoder[T]) -> T | None:
    try:
        return decoder.decode(fields[name]) if name in fields else None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CallerError(f"`{name}` is not valid: {error}.", param=name) from None


class Vector(NamedTuple):
    """Little-endian FP32."""

    data: bytes
    values: Sequence[float]
    """Empty where `data` has them."""


def _floats(data: bytes) -> tuple[float, ...]:
    return unpack(f"<{len(data) // 4}f", data)


def encode(vectors: Sequence[Vector], *, model: str, tokens: int, in_base64: bool) -> bytes:
    """Encode a response, in the order of the inputs."""
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": base64.b64encode(vector.data).decode() if in_base64 else vector.values or _floats(vector.data),
        }
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return _encode({"object": "list", "model": model, "data": data, "usage": usage})


def has_other_form(fields: dict[str, Raw], body: bytes) -> bool:
    """Whether a server has ignored `encoding_format`: OpenAI's clients read floats as base64 without an error."""
    format_ = bytes(fields.get("encoding_format", b"null"))
    written = _FORM.search(body)
    return written is not None and written[1] == {b'"base64"': b"[", b'"float"': b'"', b"null": b'"'}.get(format_)


def in_other_form(body: bytes) -> bytes:
    """A response with floats in base64, or the reverse. Vectors of another type stay as they are."""
    with suppress(
        msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, ValueError, OverflowError, struct_error
    ):
        answer = _answer(body)
        data = [{**entry, "embedding": Raw(_encode(_other(entry["embedding"])))} for entry in _entries(answer["data"])]
        return _encode({**answer, "data": data})
    return body


def _other(raw: Raw) -> str | tuple[float, ...]:
    if bytes(memoryview(raw)[:1]) == b'"':
        return _floats(base64.b64decode(_text(raw), validate=True))
    values = _vector(raw)
    return base64.b64encode(pack(f"<{len(values)}f", *values)).decode()

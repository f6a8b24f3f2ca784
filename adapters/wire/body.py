"""Decodes a JSON body one level deep: values stay encoded until they are read."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.ignored_fields import FIELDS, is_misspelled
from adapters.wire import decoding
from adapters.wire.decoding import check_json, without_lone_surrogates

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

MAX_FIELDS = 1024
"""More than any API has. Later stages copy and check the fields of a body on the event loop."""

_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


def is_given(fields: Mapping[str, Raw], name: str) -> bool:
    """Whether a field is there and not null."""
    return name in fields and bytes(fields[name]) != b"null"


def open_body(body: bytes) -> dict[str, Raw]:
    """Decode a body's fields.

    Raises `CallerError` if it is not a JSON object of at most `MAX_FIELDS` fields, has a field in the wrong case, or
    fails `check_json`.
    """
    check_json(body)
    try:
        fields = mended(_fields, body)
    except RecursionError:
        raise CallerError("The JSON body is nested too deeply.", code="invalid_json") from None
    except msgspec.ValidationError:
        raise CallerError("The body must be a JSON object.", code="invalid_json") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CallerError(f"The body is not valid JSON: {error}.", code="invalid_json") from None
    if FIELDS.issuperset(fields):
        return fields
    if len(fields) > MAX_FIELDS:
        raise CallerError(f"The body has {len(fields):,} fields. Send at most {MAX_FIELDS:,}.", code="too_many_fields")
    for name in fields:
        if is_misspelled(name):
            message = f"`{name}` is not a field. Write `{name.casefold()}`: some servers would read one as the other."
            raise CallerError(message, param=name, code="unknown_parameter")
    return fields


def with_last_fields(body: bytes, fields: dict[str, Any]) -> bytes:
    """Add fields behind those of a JSON object, where they replace fields of the same names. The rest is not read: a
    body that is no object stays as it is, and its decoder reports that."""
    end = body.rstrip(b" \t\r\n")
    if not end.endswith(b"}"):
        return body
    rest = end[:-1].rstrip(b" \t\r\n")
    return b"%b%b%b" % (rest, b"" if rest.endswith(b"{") else b",", _encode(fields)[1:])


def mended(decoder: Callable[[bytes], T], body: bytes) -> T:
    """Decode JSON. Halves of surrogate pairs, which no decoder here accepts, are replaced. Raises the decoder's
    errors."""
    try:
        return decoder(body)
    except msgspec.DecodeError:
        if (text := without_lone_surrogates(body)) == body:
            raise
    return decoder(text)


class FieldDecoder(Protocol[T_co]):
    """A decoder of msgspec's, or one with the same errors."""

    def decode(self, raw: Raw, /) -> T_co: ...


def field(fields: dict[str, Raw], name: str, decoder: FieldDecoder[T], *, required: bool = False) -> T | None:
    """Decode one field. Raises `CallerError` that names the field."""
    raw = fields.get(name)
    if raw is None:
        if required:
            raise CallerError(f"`{name}` is missing.", param=name)
        return None
    try:
        return decoder.decode(raw)
    except decoding.MALFORMED_JSON as error:
        raise CallerError(f"`{name}` is not valid: {error}.", param=name) from None

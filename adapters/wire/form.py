"""Reads and replaces the name of a model in `multipart/form-data` (RFC 7578).

All other bytes are forwarded unchanged, and the server parses the form again. Ambiguous forms are therefore rejected:
the gateway must authorise the same model that the server decodes.
"""

import re
from typing import NamedTuple

from adapters.errors import CallerError

MAX_PARTS = 1000
MAX_HEAD = 8 * 1024
MAX_NAME = 1024
_BOUNDARY = re.compile(r"[A-Za-z0-9'()+_,./:=? -]{0,69}[A-Za-z0-9'()+_,./:=?-]")
_PARAMETER = re.compile(r';[ \t]*([A-Za-z0-9*_-]+)=("(?:[^"\\\r\n]|\\.)*"|[^\s;"]*)[ \t]*')


class FormField(NamedTuple):
    """A field's value and its position in the body."""

    value: str
    start: int
    end: int


def is_form(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "multipart/form-data"


def field_of(content_type: str, body: bytes, name: str) -> FormField | None:
    """Return the only field of a name. Raises `CallerError` for a malformed or ambiguous form."""
    boundary = _boundary(content_type)
    form_field: FormField | None = None
    for start, end in _parts(body, boundary):
        head_end = body.find(b"\r\n\r\n", start, min(end, start + MAX_HEAD))
        if head_end < 0:
            raise _unreadable("a part has no head, or its head is too long")
        options = _disposition(body[start:head_end])
        if "name*" in options:
            raise _unreadable("a part's name is encoded")
        given = options.get("name", "")
        if given != name and given.casefold() == name:
            raise _unreadable(f"`{name}` is written in another case")
        if given != name:
            continue
        if form_field is not None or "filename" in options or end - head_end > MAX_NAME:
            raise _unreadable(f"`{name}` occurs twice, is a file, or is too long")
        try:
            form_field = FormField(body[head_end + 4 : end].decode(), head_end + 4, end)
        except UnicodeDecodeError:
            raise _unreadable(f"`{name}` is not UTF-8") from None
    return form_field


def with_field(content_type: str, body: bytes, name: str, value: str) -> bytes:
    """Return the form with another field at its start. Neither the name nor the value may have a line break."""
    part = f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
    return b"%b\r\n%b%b" % (_boundary(content_type), part.encode(), body)


def _boundary(content_type: str) -> bytes:
    parameters = _parameters(content_type.partition(";")[1] + content_type.partition(";")[2])
    boundary = parameters.get("boundary", "")
    if not _BOUNDARY.fullmatch(boundary):
        raise _unreadable("its Content-Type has no boundary")
    return b"--" + boundary.encode()


def _parts(body: bytes, boundary: bytes) -> list[tuple[int, int]]:
    """Return the start and the end of each part, its head included."""
    if not body.startswith(boundary + b"\r\n"):
        raise _unreadable("it does not begin with its boundary")
    parts: list[tuple[int, int]] = []
    start = len(boundary) + 2
    while True:
        end = body.find(b"\r\n" + boundary, start - 2)
        after = end + 2 + len(boundary)
        if end < 0 or len(parts) == MAX_PARTS:
            raise _unreadable("it has no end, or too many parts")
        parts.append((start, end))
        if body[after : after + 2] == b"--":
            break
        if body[after : after + 2] != b"\r\n":
            raise _unreadable("a boundary does not end")
        start = after + 2
    if body.count(boundary) != len(parts) + 1 or body[after + 2 :].strip(b"\r\n"):
        # A lenient parser would split the part at another place.
        raise _unreadable("its boundary is in a part, or something follows the last one")
    return parts


def _disposition(head: bytes) -> dict[str, str]:
    """Return the parameters of a part's only Content-Disposition."""
    values: list[str] = []
    for line in head.decode("latin-1").split("\r\n"):
        name, colon, value = line.partition(":")
        if not colon or name != name.strip() or "\n" in line or "\r" in line:
            raise _unreadable("a part's head is not a list of fields")
        if name.lower() == "content-disposition":
            values.append(value.strip())
    if len(values) != 1 or values[0].partition(";")[0].strip().lower() != "form-data":
        raise _unreadable("a part has no Content-Disposition, or several")
    return _parameters("".join(values[0].partition(";")[1:]))


def _parameters(text: str) -> dict[str, str]:
    """Parse parameters. Raises `CallerError` for duplicates and for any other text."""
    values: dict[str, str] = {}
    at = 0
    while at < len(text.rstrip()):
        match = _PARAMETER.match(text, at)
        if match is None or match[1].lower() in values:
            raise _unreadable("a parameter occurs twice, or is missing")
        value = match[2]
        values[match[1].lower()] = re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
        at = match.end()
    return values


def _unreadable(why: str) -> CallerError:
    return CallerError(f"The form cannot be read: {why}.", code="invalid_form")

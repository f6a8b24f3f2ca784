"""Decodes upstream responses and texts: any malformed response raises the same error, `upstream_bad_response`."""

import json
import re
from collections.abc import Callable
from types import TracebackType
from typing import Any, AnyStr, Final, TypeVar

import msgspec

from adapters.errors import BackendError, CallerError

MALFORMED_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of a JSON decoder for text that is not JSON, is nested too deeply, or has another type."""

BAD_RESPONSE: Final = "upstream_bad_response"

B = TypeVar("B")
T = TypeVar("T")


def decode(decoder: Callable[[B], T], body: B, subject: str = "response") -> T:
    """Decode JSON from an upstream. Raises `BackendError`, whose message names the `subject`."""
    try:
        return decoder(body)
    except MALFORMED_JSON:
        raise malformed(subject) from None


def loose(body: bytes) -> Any:
    """Decode JSON as some servers write it. Texts may have halves of surrogate pairs, numbers that JSON lacks are null,
    and bytes that are not UTF-8 are replaced. Raises one of `MALFORMED_JSON`."""
    try:
        return json.loads(body.decode("utf-8", "replace"), parse_constant=lambda _: None)
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from None


def strict(body: bytes) -> bytes:
    """Encode such JSON as the standard has it, for a decoder. Raises one of `MALFORMED_JSON`."""
    return json.dumps(loose(body), ensure_ascii=False).encode("utf-8", "replace")


class Checked:
    """A context that converts malformed JSON and the given exceptions to a `BackendError`."""

    __slots__ = ("_exceptions", "_subject")

    def __init__(self, *exceptions: type[Exception], subject: str = "response") -> None:
        self._exceptions = (*MALFORMED_JSON, *exceptions)
        self._subject = subject

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is not None and issubclass(kind, self._exceptions):
            raise malformed(self._subject) from None


def malformed(subject: str = "response") -> BackendError:
    """Return the error for an upstream body that violates its protocol."""
    return bad_response(f"The upstream's {subject} cannot be decoded.")


def bad_response(message: str) -> BackendError:
    """Return the error for an unusable upstream response."""
    return BackendError(message, code=BAD_RESPONSE)


# Checks texts of clients before anything else reads them.
#
# A value that is forwarded without decoding is checked too: a server that cannot decode it would report a failure of
# its own, which counts against the server.

MOST_DIGITS = 4300
"""Digits of a number in JSON: Python's own limit, so servers in Python fail on more."""
LONGEST_NUMBER = 19
"""Digits of a whole number in a text, leading zeros included: every one fits in 64 bits."""
LONGEST_ID = 512
"""Characters of an id that is looked up in a database."""
_DIGITS = b"0123456789"
_LETTER = ord("x")
_BLOCK = MOST_DIGITS // 2
_RUN = re.compile(rb"[0-9]++")
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|[\s\S])"
)
_skip = msgspec.json.Decoder(msgspec.Raw).decode


def check_json(body: bytes | memoryview) -> None:
    """Check what a decoder that skips values leaves unchecked: UTF-8, and the length of numbers. Raises `CallerError`.

    Such a decoder checks the nesting, the escapes and the surrogates of skipped values itself.
    """
    data = body if isinstance(body, bytes) else bytes(body)
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            message = f"The JSON body is not UTF-8: {error.reason} at byte {error.start}."
            raise CallerError(message, code="invalid_json") from None
    if len(data) > MOST_DIGITS and (runs := _long_runs(data)):
        changed = bytearray(data)
        for at in runs:
            changed[at] = _LETTER  # a text may have any letter, and no number has one
        try:
            _skip(changed)
        except MALFORMED_JSON:
            message = f"The JSON body is malformed, or has a number of more than {MOST_DIGITS:,} digits."
            raise CallerError(message, code="invalid_json") from None


def _long_runs(data: bytes) -> list[int]:
    """A place in each run of too many digits. Looks at one byte of each block first: such a run fills a block."""
    places, at = list[int](), 0
    while at < len(data):
        if data[at] in _DIGITS and data[at : at + _BLOCK].isdigit():
            run = _RUN.match(data, at)
            assert run is not None
            before = data[max(0, at - _BLOCK) : at]
            if run.end() - at + len(before) - len(before.rstrip(_DIGITS)) > MOST_DIGITS:
                places.append(at)
            at = run.end() - run.end() % _BLOCK
        at += _BLOCK
    return places


def without_lone_surrogates(body: bytes) -> bytes:
    """Replace each escape of half of a surrogate pair in JSON by U+FFFD.

    The text is valid JSON (RFC 8259 8.2), but no encoding has such a character. Clients that cut a text by UTF-16 units
    send it, and send it again with each turn of the session.
    """
    return _ESCAPE.sub(lambda escape: rb"\ufffd" if escape["lone"] else escape[0], body)


def whole_number(text: AnyStr, least: int = 0, most: int = 2**63 - 1) -> int | None:
    """The number in a text of ASCII digits; None for any other text, and for a number outside of the bounds."""
    if not (0 < len(text) <= LONGEST_NUMBER and text.isascii() and text.isdigit()):
        return None
    number = int(text)
    return number if least <= number <= most else None


def is_id(text: str) -> bool:
    """Whether a text may be an id in a database: it is short, and printable, as Postgres refuses NUL."""
    return 0 < len(text) <= LONGEST_ID and text.isprintable()

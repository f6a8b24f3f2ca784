"""Checks texts of clients before anything else reads them.

A value that is forwarded without decoding is checked too: a server that cannot decode it would report a failure of its
own, which counts against the server.
"""

import re
from typing import AnyStr

import msgspec

from adapters.errors import CallerError
from adapters.wire import decoding

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
        except decoding.MALFORMED_JSON:
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

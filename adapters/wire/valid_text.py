"""Checks texts of clients before anything else reads them.

A value that is forwarded without decoding is checked too: a server that cannot decode it would report a failure of its
own, which counts against the server.
"""

import re
from typing import AnyStr

from adapters.errors import CallerError

MOST_DIGITS = 4300
"""Digits of a number in JSON: Python's own limit, so servers in Python fail on more."""
LONGEST_NUMBER = 19
"""Digits of a whole number in a text, leading zeros included: every one fits in 64 bits."""
LONGEST_ID = 512
"""Characters of an id that is looked up in a database."""
_DIGITS = frozenset(b"0123456789")
_STRING_OR_NUMBER = re.compile(rb'"(?:[^"\\]++|\\.)*+"|([0-9]{%d})' % (MOST_DIGITS + 1), re.DOTALL)


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
    if len(data) > MOST_DIGITS and _may_have_long_number(data):
        for match in _STRING_OR_NUMBER.finditer(data):
            if match[1] is not None:
                message = f"A number in the JSON body has more than {MOST_DIGITS:,} digits."
                raise CallerError(message, code="invalid_json")


def _may_have_long_number(data: bytes) -> bool:
    """Whether any run of digits is too long. Looks at one byte in `MOST_DIGITS`, as such a run has one of them."""
    for at in range(MOST_DIGITS, len(data), MOST_DIGITS):
        if data[at] in _DIGITS:
            before, after = data[at - MOST_DIGITS : at], data[at : at + MOST_DIGITS + 1]
            digits = b"0123456789"
            length = len(before) - len(before.rstrip(digits)) + len(after) - len(after.lstrip(digits))
            if length > MOST_DIGITS:
                return True
    return False


def whole_number(text: AnyStr, least: int = 0, most: int = 2**63 - 1) -> int | None:
    """The number in a text of ASCII digits; None for any other text, and for a number outside of the bounds."""
    if not (0 < len(text) <= LONGEST_NUMBER and text.isascii() and text.isdigit()):
        return None
    number = int(text)
    return number if least <= number <= most else None


def is_id(text: str) -> bool:
    """Whether a text may be an id in a database: it is short, and printable, as Postgres refuses NUL."""
    return 0 < len(text) <= LONGEST_ID and text.isprintable()

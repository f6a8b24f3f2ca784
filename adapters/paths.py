"""Checks the part of an upstream's path that comes from a client, for every front door, before any call.

A path is rejected if a server may interpret it differently from the gateway: after one or two rounds of decoding, with
`\\` as `/`, without `;` and its parameters, or with empty and dot segments resolved. Therefore no path leaves the
address of its endpoint.
"""

import re
from functools import lru_cache
from urllib.parse import quote, unquote

from adapters.errors import CallerError

LONGEST = 4096
_PLAIN = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*")
_HIDDEN = re.compile(r"%(?:2[ef]|5c|25|3b|[01][0-9a-f]|7f)", re.IGNORECASE)
"""Encoded dots, slashes, backslashes, percent signs, semicolons and control characters."""
_ELSEWHERE = re.compile(r"(?:^|/)(?:\.{1,2}(?:;[^/]*)?|;[^/]*)(?:/|$)|//")
"""A segment that is `.`, `..` or empty, optionally followed by a `;`."""
_QUERY = re.compile(r'[!"$-~\x80-\xff]*')
_BAD = (
    "The path or its query has an empty segment, `.` or `..`, an encoding of them, a `;` behind them, "
    "or characters that need an encoding."
)


def check_path(path: str, query: str = "") -> None:
    """Check a percent-encoded path and query. Raises `CallerError` if a server may interpret the path differently."""
    if len(path) > LONGEST or not _is_plain(path) or not _QUERY.fullmatch(query):
        raise CallerError(_BAD, code="bad_path")


@lru_cache(1024)
def _is_plain(path: str) -> bool:
    if (path and not path.startswith("/")) or not _PLAIN.fullmatch(path) or _HIDDEN.search(path):
        return False
    if _ELSEWHERE.search(path):
        return False
    try:
        unquote(path, errors="strict")
    except UnicodeDecodeError:  # an overlong encoding of a dot is not valid UTF-8
        return False
    return True


def segment(name: str) -> str:
    """Encode a client's name of a model or a version as one segment of a path. Raises `CallerError`."""
    if (
        not {"", ".", ".."}.isdisjoint(name.split("/"))
        or not {"%", ";", "\\"}.isdisjoint(name)
        or not name.isprintable()
    ):
        raise CallerError("The name cannot be a part of a path.", code="bad_path")
    return quote(name, safe="")

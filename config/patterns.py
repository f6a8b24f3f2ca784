"""Regular expressions of guards in linear time (RE2), each with the length of its longest match.

A stream releases a text only when no match can begin in it, so a pattern without a longest match would hold all of it.
"""

import re
import warnings
from collections.abc import Callable
from typing import Any

MOST_MATCH = 4096
"""Characters of the longest match of a pattern."""
MEMORY = 16 * 1024 * 1024
"""Bytes that one compiled pattern and its automaton use."""

Search = Callable[[str, int], Any]
"""`(text, begin)` → the first match from there on, or None. Only the spans of a match are used."""
_PROPERTY = re.compile(r"\\[pP](?:\{\^?\w+\}|[A-Z])")


class PatternError(ValueError):
    """A pattern that cannot be used. The message is for the author of the file."""


class EngineMissing(Exception):
    """The package of the engine is not installed."""


def compiled(pattern: str, *, longest: bool = False) -> Search:
    """Compile a pattern. `longest` prefers the longest match at a place. Raises `PatternError` and `EngineMissing`."""
    try:
        import re2  # of an extra
    except ImportError:
        raise EngineMissing("google-re2") from None
    options = re2.Options()
    options.log_errors = False
    options.longest_match = longest
    options.max_mem = MEMORY
    try:
        search = re2.compile(pattern, options).search
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if isinstance(error, re2.error) and error.args else "not valid Unicode"
        if isinstance(reason, bytes):
            reason = reason.decode(errors="replace")
        raise PatternError(f"is no pattern of RE2: {reason}") from None
    # The places in a text of ASCII are those in its bytes, which need no conversion.
    return lambda text, begin: search(text.encode() if text.isascii() else text, begin)


def longest_match(pattern: str) -> int:
    """The characters of the longest match of a pattern, or somewhat more. Raises `PatternError` without a bound."""
    plain = _PROPERTY.sub(r"\\w", pattern).replace(r"\z", r"\Z").replace(r"\C", r"\w")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            least, most = re._parser.parse(plain).getwidth()  # type: ignore[attr-defined]
    except (re.error, RecursionError, OverflowError):
        raise PatternError("has a part whose longest match cannot be computed") from None
    if least == 0:
        raise PatternError("matches the empty text")
    if most > MOST_MATCH:
        raise PatternError(
            f"has no longest match of at most {MOST_MATCH} characters: write {{1,64}} for +, and {{0,64}} for *"
        )
    return int(most)

"""Texts that are JSON, such as the arguments of tools: a change of a literal leaves the text JSON."""

import re
from collections.abc import Callable

import msgspec

Change = Callable[[str, str], str]
"""Receives a text, and the key before it in an object of JSON; an empty one for none."""

_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*', re.DOTALL)
_COLON = re.compile(r"\s*:")
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def begins_json(text: str) -> bool:
    """Whether a text begins as an object, an array or a text of JSON."""
    return text.lstrip()[:1] in ("{", "[", '"')


def changed(text: str, change: Change, key: str = "") -> str:
    """A text with what `change` makes of it, or, if the text is JSON, of each of its literals, however often they are
    nested. Everything else of the text stays as it is, and a changed number becomes a text. `key` is that of the text
    itself."""
    return _changed(text, change, key)


def escaped(text: str) -> str:
    """A text as it stands in a literal of JSON."""
    return _encode(text).decode()[1:-1]


def _changed(text: str, change: Change, key: str) -> str:
    if not text or not begins_json(text) or not _is_json(text):
        return change(text, key)
    last = key

    def literal(match: re.Match[str]) -> str:
        nonlocal last
        if _COLON.match(text, match.end()) is None:
            return _literal(match.group(), change, last)
        last = match.group()[1:-1]
        return _literal(match.group(), change, "")

    return _LITERAL.sub(literal, text)


def _literal(literal: str, change: Change, key: str) -> str:
    if literal[0] != '"':
        other = change(literal, key)
        return literal if other == literal else _encode(other).decode()
    try:
        text: str = _decode(literal)
        other = _changed(text, change, key)
        return literal if other == text else _encode(other).decode()
    except (msgspec.DecodeError, UnicodeError):  # half of a pair
        return change(literal, key)


def _is_json(text: str) -> bool:
    try:
        _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True

"""Texts that are JSON, such as the arguments of tools: a change of a literal leaves the text JSON."""

import re
from collections.abc import Callable

import msgspec

Change = Callable[[str], str]

_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*', re.DOTALL)
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def begins_json(text: str) -> bool:
    """Whether a text begins as an object, an array or a text of JSON."""
    return text.lstrip()[:1] in ("{", "[", '"')


def changed(text: str, change: Change) -> str:
    """A text with what `change` makes of it, or, if the text is JSON, of each of its literals, however often they are
    nested. Everything else of the text stays as it is, and a changed number becomes a text."""
    if not text or not begins_json(text) or not _is_json(text):
        return change(text)
    return _LITERAL.sub(lambda match: _literal(match.group(), change), text)


def escaped(text: str) -> str:
    """A text as it stands in a literal of JSON."""
    return _encode(text).decode()[1:-1]


def _literal(literal: str, change: Change) -> str:
    if literal[0] != '"':
        other = change(literal)
        return literal if other == literal else _encode(other).decode()
    try:
        text: str = _decode(literal)
        other = changed(text, change)
        return literal if other == text else _encode(other).decode()
    except (msgspec.DecodeError, UnicodeError):  # half of a pair
        return change(literal)


def _is_json(text: str) -> bool:
    try:
        _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True

"""Removes secrets and personal data from texts and from JSON.

Keys and other secrets are always removed: a record never has a credential. Other kinds are removed if they are
configured. A text is replaced by its kind in brackets, such as `[email]`. JSON inside of JSON strings, as in the
arguments of tools, is redacted too, to some depth.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from adapters.wire import decoding
from gateway.telemetry.redaction.secrets import forms_in, pattern_of, without_secrets

DEEPEST = 4
"""JSON texts inside of JSON texts that are redacted as JSON. Deeper ones are redacted as text."""
_MOST_DEPTH = 200
"""Levels of a JSON value. A deeper value is removed."""
REMOVED = "[redacted]"

_PATTERNS: dict[str, re.Pattern[str]] = {
    "email": re.compile(
        r"(?<![A-Za-z0-9._+'-])[A-Za-z0-9._+'-]++(?:@|%40)[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}"
    ),
    "card": re.compile(r"(?<![\d.])\d(?:[ -]?\d){12,18}(?![\d.])"),
    "phone": re.compile(
        r"(?<![A-Za-z0-9_.+-])(?:\+\d{1,3}|\(\d{2,5}\)|0)[ ./()-]{0,2}\d(?:[ ./()-]{0,2}\d){5,12}(?![A-Za-z0-9_-])"
    ),
    "ip": re.compile(
        r"(?<![A-Za-z0-9_.])(?:\d{1,3}\.){3}\d{1,3}(?![A-Za-z0-9_.]*\d)"
        r"|(?<![A-Za-z0-9_:])(?:[0-9a-fA-F]{1,4}:){3,7}[0-9a-fA-F:]{1,9}"
    ),
}


_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\[(\*|\d+)\]")
_SECRET_FIELDS = re.compile(
    r"(?i)(?:[a-z0-9_-]{0,64}[_-])?(?:api[_-]?key|(?:access|refresh|auth)[_-]?token|secret|passwd|password"
    r"|private[_-]?key|authorization|cookie|credentials?)"
)
_PLAIN = re.compile(r"[A-Za-z_]{0,15}")
"""Texts that are too short for any pattern: most names of fields."""
Path = tuple[str | int, ...]


class Redacted(NamedTuple):
    """A redacted value, and whether it differs."""

    data: bytes
    changed: bool


class Redaction:
    """The compiled `redact` of a configuration."""

    __slots__ = ("_paths", "_patterns")

    def __init__(self, written: Iterable[str]) -> None:
        """Cards precede phone numbers, because a card number looks like one."""
        chosen = frozenset(written)
        self._patterns = [(f"[{name}]", _PATTERNS[name]) for name in _PATTERNS if name in chosen]
        self._paths = [path_of(entry) for entry in sorted(chosen) if entry.startswith("json:")]

    def text(self, text: str) -> str:
        """The text without secrets and configured kinds."""
        if _PLAIN.fullmatch(text):
            return text
        text = without_secrets(text)
        for replacement, pattern in self._patterns:
            text = pattern.sub(_card if replacement == "[card]" else replacement, text)
        return text

    def value(self, value: Any, inner: int = DEEPEST) -> Any:
        """A JSON value with redacted texts, also those of its keys, but not at the configured paths."""
        return self._walked(value, inner, 0)

    def json(self, value: Any) -> Any:
        """A JSON value without the values at the configured paths, and with redacted texts."""
        for path in self._paths:
            value = _without(value, path)
        return self.value(value)

    def body(self, body: bytes) -> Redacted:
        """A redacted body: as JSON if it is JSON, else as text, in its length."""
        try:
            decoded = msgspec.json.decode(body)
        except decoding.MALFORMED_JSON:
            masked = self.masked(body)
            return Redacted(masked, masked != body)
        redacted = self.json(decoded)
        if redacted == decoded:
            return Redacted(body, False)
        return Redacted(msgspec.json.encode(redacted), True)

    def masked(self, data: bytes) -> bytes:
        """Binary data with its secrets overwritten, in its length."""
        text = data.decode("latin-1")
        secrets = [pattern_of(forms)] if (forms := forms_in(text)) else []
        for pattern in (*secrets, *(pattern for _, pattern in self._patterns)):
            text = pattern.sub(lambda match: "*" * len(match[0]), text)
        return text.encode("latin-1")

    def _walked(self, value: Any, inner: int, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(value, inner)
        if depth > _MOST_DEPTH:
            return REMOVED
        if isinstance(value, list):
            return [self._walked(item, inner, depth + 1) for item in value]
        if isinstance(value, dict):
            return {self.text(name): self._named(name, item, inner, depth) for name, item in value.items()}
        return self._number(value)

    def _named(self, name: str, value: Any, inner: int, depth: int) -> Any:
        """The value of a field. A text in a field such as `password` is a secret in every form."""
        if isinstance(value, str) and len(value) >= 4 and _SECRET_FIELDS.fullmatch(name):
            return "[secret]"
        return self._walked(value, inner, depth + 1)

    def _text(self, text: str, inner: int) -> str:
        if inner and text[:1] in "{[" and len(text) > 1:
            try:
                decoded = msgspec.json.decode(text)
            except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
                return self.text(text)
            redacted = self._walked(decoded, inner - 1, 0)
            if redacted != decoded:
                return msgspec.json.encode(redacted).decode()
        return self.text(text)

    def _number(self, value: Any) -> Any:
        """A number, or null or a boolean. A card or phone number may be written as a number."""
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**6:
            text = str(value)
            return value if self.text(text) == text else self.text(text)
        return value


@lru_cache(16)
def compiled(written: tuple[str, ...]) -> Redaction:
    """The redaction of a configuration. A worker process compiles it once."""
    return Redaction(written)


def path_of(written: str) -> Path:
    """Parse ``json:$.messages[*].content``. ``*`` stands for every item."""
    return tuple(name or (index if index == "*" else int(index)) for name, index in _STEP.findall(written))


def _without(value: Any, path: Path) -> Any:
    """The value with each value at the path replaced."""
    if not path:
        return REMOVED
    step, rest = path[0], path[1:]
    if isinstance(value, dict) and step in value:
        return {**value, step: _without(value[step], rest)}
    if isinstance(value, list):
        if step == "*":
            return [_without(item, rest) for item in value]
        if isinstance(step, int) and step < len(value):
            return [_without(item, rest) if index == step else item for index, item in enumerate(value)]
    if isinstance(value, dict) and step == "*":
        return {name: _without(item, rest) for name, item in value.items()}
    return value


def _card(match: re.Match[str]) -> str:
    """The replacement of a number with the checksum of cards (Luhn, ISO/IEC 7812); other numbers stay."""
    digits = [int(sign) for sign in match[0] if sign.isdigit()]
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return "[card]" if (sum(doubled) + sum(digits[-1::-2])) % 10 == 0 else match[0]

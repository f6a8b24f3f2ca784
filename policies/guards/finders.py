"""What finds forbidden spans in a folded text.

A finder reads a text that begins with one character of context, and reports the first place at which a match may still
begin or grow when more text follows: everything before that place is settled.
"""

import re
from collections.abc import Iterable
from typing import Protocol

from config.patterns import Search, compiled, longest_match
from policies.guards.secrets import SHAPES

_NO_LETTER = r"[^\pL\pN\pM_]"
_URL = r"[^\s<>\"'\x60|]"
"""The characters of an address."""
_SCHEMES = ("http://", "https://", "ftp://", "ws://", "wss://", "http:\\\\", "https:\\\\", "www.", "//")
_HOST = re.compile(r"(?:[a-z]+:)?[/\\]*(?P<authority>[^/\\?#]*)")
_PORT = re.compile(r":\d*$")


class Finder(Protocol):
    """Finds spans of one kind."""

    def find(self, text: str, begin: int) -> tuple[int, int] | None:
        """The first span that begins at `begin` or later."""
        ...

    def open(self, text: str, begin: int) -> int:
        """The first place at which a span may begin that is not settled; the length of the text for none."""
        ...


class PatternFinder:
    """Spans of one regular expression. Raises `PatternError` and `EngineMissing`."""

    def __init__(self, pattern: str) -> None:
        self._longest = longest_match(pattern)
        self._search = compiled(f"(?m:{pattern})")

    def find(self, text: str, begin: int) -> tuple[int, int] | None:
        match = self._search(text, begin)
        return None if match is None else match.span()

    def open(self, text: str, begin: int) -> int:
        return max(begin, len(text) - self._longest)


class WordFinder:
    """Spans of words, which are folded already. With `whole`, no letter, digit or mark stands beside a word."""

    def __init__(self, words: Iterable[str], *, whole: bool) -> None:
        words = sorted(set(words))
        self._longest = max(map(len, words))
        self._whole = whole
        one = "|".join(map(_quoted, words))
        pattern = rf"{_NO_LETTER}({one})(?:{_NO_LETTER}|\z)" if whole else f"({one})"
        self._search = compiled(pattern, longest=True)

    def find(self, text: str, begin: int) -> tuple[int, int] | None:
        at = begin - self._whole
        while (match := self._search(text, at)) is not None:
            first, end = match.span(1)
            if first >= begin:
                return first, end
            at = match.start() + 1
        return None

    def open(self, text: str, begin: int) -> int:
        return max(begin, len(text) - self._longest)


class SecretFinder:
    """Spans that look like keys and tokens. No letter or digit stands before one."""

    def __init__(self) -> None:
        self._search = compiled("|".join(f"(?:{re.escape(shape.begin)}{shape.rest})" for shape in SHAPES))
        self._open = _partial([(shape.begin, shape.run) for shape in SHAPES])

    def find(self, text: str, begin: int) -> tuple[int, int] | None:
        at = begin
        while (match := self._search(text, at)) is not None:
            first, end = match.span()
            if not text[first - 1].isalnum():
                return first, end
            at = first + 1
        return None

    def open(self, text: str, begin: int) -> int:
        match = self._open(text, begin)
        return len(text) if match is None else match.start()


class UrlFinder:
    """Spans of addresses whose host is denied, or is not allowed. The text is in lower case.

    A name covers its subdomains. Without `allow`, denied hosts are found without a scheme too.
    """

    def __init__(self, allow: Iterable[str], deny: Iterable[str]) -> None:
        self._allow, self._deny = tuple(map(_ascii_host, allow)), tuple(map(_ascii_host, deny))
        schemes = "|".join(map(re.escape, _SCHEMES))
        bare = "|".join(map(re.escape, self._deny))
        hosts = rf"|(?:[a-z0-9-]+\.)*(?:{bare})(?:{_URL}*)" if bare else ""
        self._search = compiled(rf"(?:{schemes}){_URL}+{hosts}")
        self._open = _partial([(scheme, _URL) for scheme in _SCHEMES], r"[a-z0-9-][a-z0-9.-]*" + f"(?:{_URL}*)")

    def find(self, text: str, begin: int) -> tuple[int, int] | None:
        at = begin
        while (match := self._search(text, at)) is not None:
            first, end = match.span()
            if self._is_forbidden(text[first:end], is_inside=text[first - 1].isalnum()):
                return first, end
            at = first + 1
        return None

    def open(self, text: str, begin: int) -> int:
        match = self._open(text, begin)
        return len(text) if match is None else match.start()

    def _is_forbidden(self, address: str, *, is_inside: bool) -> bool:
        has_scheme = address.startswith(_SCHEMES)
        if not has_scheme and is_inside:
            return False
        match = _HOST.match(address)
        authority = "" if match is None else match["authority"].rpartition("@")[2]
        host = _ascii_host(_PORT.sub("", authority).rstrip(".,;:!)]}"))
        if address.startswith("//") and "." not in host:
            return False
        if _covers(self._deny, host):
            return True
        return has_scheme and bool(self._allow) and not _covers(self._allow, host)


def _covers(names: tuple[str, ...], host: str) -> bool:
    return any(host == name or host.endswith("." + name) for name in names)


def _ascii_host(host: str) -> str:
    """A host in lower case, with the names of IDNA."""
    host = host.lower().removeprefix("*.").rstrip(".")
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return host


def _quoted(word: str) -> str:
    return re.sub(r"[^\w\s]", lambda match: f"\\x{{{ord(match.group()):x}}}", word)


def _partial(shapes: Iterable[tuple[str, str]], *others: str) -> Search:
    """A search for the first place from which the text may be the beginning of a shape, up to its end.

    A shape is its first letters, and the class of the characters after them.
    """
    parts = []
    for begin, run in shapes:
        part = f"(?:{run}*)"
        for letter in reversed(begin[1:]):
            part = f"(?:{re.escape(letter)}{part})?"
        parts.append(re.escape(begin[0]) + part)
    return compiled(f"(?:{'|'.join([*parts, *others])})\\z", longest=True)

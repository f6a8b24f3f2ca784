"""What finds forbidden spans in a folded text.

A finder reads a text that begins with one character of context, and reports the first place at which a match may still
begin or grow when more text follows: everything before that place is settled.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable
from urllib.parse import unquote

from config.patterns import Search, compiled, longest_match
from policies.guards.secrets import SHAPES, is_random

_NO_LETTER = r"[^\pL\pN\pM_]"
_URL = r"[^\t\n\f\r <>\"'\x60|]"
"""The characters of an address."""
_AUTHORITY = r"[^\t\n\f\r <>\"'\x60|/\\?#]"
"""Those before its path."""
_SLASHES = re.compile("/*")
_HEAD = re.compile(rf"[/\\]*{_AUTHORITY}*")
_SHORT_HEAD = re.compile(_AUTHORITY + "{0,255}")
"""Of an address without a scheme; no host is longer."""
_REST = re.compile(_URL + "*")
_SCHEMES = ("http:/", "https:/", "ftp://", "ws://", "wss://", "http:\\", "https:\\", "www.", "//")
"""Browsers read one slash and backslashes after `https:` as two slashes."""
_HOST = re.compile(r"(?:[a-z]+:(?=[/\\]))?[/\\]*(?P<authority>[^/\\?#]*)")
_PORT = re.compile(r":\d*$")
_AFTER = ".,;:!)]}>*_~"
"""Characters after an address that are part of the sentence, or of Markdown."""
_LEADING = re.compile(r"[a-z0-9.-]*")


class Finder(Protocol):
    """Finds spans of one kind."""

    def find(self, text: str, begin: int) -> tuple[int, int] | None:
        """The first span that begins at `begin` or later."""
        ...

    def open(self, text: str, begin: int) -> int:
        """The first place at which a span may begin that is not settled; the length of the text for none."""
        ...

    def is_clear(self, text: str) -> bool:
        """Whether there is no span in any text that stands between quotes in this one, and in no number. False if in
        doubt."""
        ...


@runtime_checkable
class NamedFinder(Finder, Protocol):
    """Finds spans of which some need a word before them."""

    def named(self, text: str) -> Iterator[tuple[int, int]]:
        """The spans that only a word before them makes some."""
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

    def is_clear(self, text: str) -> bool:
        return False  # `^` and `$` are at the begin and the end of each text


_SPACE = re.compile(r"\s+")
_MOST_SPACE = 4
"""Characters of white space that may stand between the words of a phrase: a text may be set in lines."""
_NUMBER = re.compile(r"[0-9.+eE-]+")
"""A part of a number, which JSON writes in several forms."""


class WordFinder:
    """Spans of words, which are folded already. With `whole`, no letter, digit or mark stands beside a word."""

    def __init__(self, words: Iterable[str], *, whole: bool) -> None:
        words = sorted(set(words))
        self._longest = max(len(word) + (_MOST_SPACE - 1) * len(_SPACE.findall(word)) for word in words)
        self._whole = whole
        self._has_numbers = any(map(_NUMBER.fullmatch, words))
        space = rf"\s{{1,{_MOST_SPACE}}}"
        one = "|".join(_SPACE.sub(lambda _: space, _quoted(word)) for word in words)
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

    def is_clear(self, text: str) -> bool:
        return not self._has_numbers and self._search(text, 0) is None


class SecretFinder:
    """Spans that look like keys and tokens. No letter or digit stands before one."""

    def __init__(self) -> None:
        one = "|".join(f"(?:{re.escape(shape.begin)}{shape.rest})" for shape in SHAPES)
        self._search = compiled(rf"[^\pL\pN]({one})")
        self._names = compiled("|".join(re.escape(shape.begin) for shape in SHAPES if shape.is_named))
        self._open = _partial([(shape.begin, shape.run) for shape in SHAPES])

    def find(self, text: str, begin: int) -> tuple[int, int] | None:
        at = begin - 1
        while (match := self._search(text, at)) is not None:
            first, end = match.span(1)
            if is_random(text[first:end]):
                return first, end
            at = end - 1  # a text has as many tries as names of this form
        return None

    def open(self, text: str, begin: int) -> int:
        match = self._open(text, begin)
        return len(text) if match is None else match.start()

    def is_clear(self, text: str) -> bool:
        return self._search(text, 0) is None and self._names(text, 0) is None

    def named(self, text: str) -> Iterator[tuple[int, int]]:
        """The spans that only a name before them makes some, from the name on."""
        at = 1
        while self._names(text, 0) is not None and (span := self.find(text, at)) is not None:
            if self._names(text[slice(*span)], 0) is not None:
                yield span
            at = span[1]


class UrlFinder:
    """Spans of addresses whose host is denied, or is not allowed. The text is in lower case.

    A name covers its subdomains. Without `allow`, denied hosts are found without a scheme too.
    """

    def __init__(self, allow: Iterable[str], deny: Iterable[str]) -> None:
        self._allow, self._deny = frozenset(map(_ascii_host, allow)), frozenset(map(_ascii_host, deny))
        schemes = "|".join(re.escape(scheme) for scheme in _SCHEMES if scheme != "www.")
        bare = "|".join(map(re.escape, sorted(self._deny)))
        hosts = rf"|(?:[a-z0-9-]+\.)*(?:{bare})" if bare else ""
        self._search = compiled(rf"{schemes}|www\.{_AUTHORITY}{hosts}")
        self._open = _partial([(scheme, _URL) for scheme in _SCHEMES], r"[a-z0-9-][a-z0-9.-]*" + f"(?:{_URL}*)")

    def find(self, text: str, begin: int) -> tuple[int, int] | None:
        at = begin
        while (match := self._search(text, at)) is not None:
            first, end = match.span()
            # No more than decides it, so that many addresses without a space between them take linear time.
            head = _HEAD if text[end - 1] in "/\\" else _SHORT_HEAD
            if self._is_forbidden(text[first : _end(head, text, end)], is_inside=text[first - 1].isalnum()):
                return first, _end(_REST, text, end)
            at = first + 1
            if text[end - 1] in "/\\":  # the same address follows each of its slashes
                at = _end(_SLASHES, text, end)
        return None

    def open(self, text: str, begin: int) -> int:
        match = self._open(text, begin)
        return len(text) if match is None else match.start()

    def is_clear(self, text: str) -> bool:
        return not any(map(_NUMBER.fullmatch, self._deny)) and self._search(text, 0) is None

    def _is_forbidden(self, address: str, *, is_inside: bool) -> bool:
        has_scheme = address.startswith(_SCHEMES)
        if not has_scheme and is_inside:
            return False
        match = _HOST.match(address)
        authority = "" if match is None else match["authority"]
        host = _host(authority.rpartition("@")[2])
        if not host or (address.startswith("//") and "." not in host):
            return False
        if self._deny and any(_covers(self._deny, each) for each in (host, *_other_hosts(authority))):
            return True
        return has_scheme and bool(self._allow) and not _covers(self._allow, host)


def _end(pattern: re.Pattern[str], text: str, begin: int) -> int:
    match = pattern.match(text, begin)
    return begin if match is None else match.end()


def _host(authority: str) -> str:
    return _ascii_host(_PORT.sub("", authority.rstrip(_AFTER)).rstrip(_AFTER))


def _other_hosts(authority: str) -> Iterator[str]:
    """The hosts that other readers may find: with escapes resolved, and up to the first character of no host."""
    host = _host(unquote(authority.rpartition("@")[2]))
    yield host
    yield _leading(host)
    yield _leading(authority)


def _leading(text: str) -> str:
    match = _LEADING.match(text)
    return "" if match is None else match.group().rstrip(".-")


def _covers(names: frozenset[str], host: str) -> bool:
    """Whether the host or a domain above it is among the names. The time does not depend on their number."""
    while host:
        if host in names:
            return True
        host = host.partition(".")[2]
    return False


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

"""The placeholders of one request, and the values that they stand for.

A placeholder such as ``<EMAIL_48291375>`` is derived from the value under the key of a tenant. So the same value has
the same placeholder in all messages and in the next requests, and nothing is stored.
"""

import hmac
import re
from collections.abc import Mapping
from functools import lru_cache

from policies.guards.readable import readable

TEXT = "TEXT"
"""The kind of a text of the client that has the form of a placeholder. It is masked too, so that the client receives
its own text again, and never the value of somebody."""
_DIGITS = 8
_SPACE = 10**_DIGITS


class RequestPlaceholders:
    """The placeholders of one request. `earlier` are those of the conversation: values by their names."""

    __slots__ = ("_key", "_names", "values")

    def __init__(self, key: bytes, earlier: Mapping[str, str] | None = None) -> None:
        self._key = key
        self.values: dict[str, str] = dict(earlier or {})
        """The values by the names of their placeholders, such as ``EMAIL_48291375``."""
        self._names = {(_kind(name), value): name for name, value in self.values.items()}

    def of(self, kind: str, value: str) -> str:
        """The placeholder of a value. No two values have the same one."""
        name = self._names.get((kind, value))
        count = 0
        while name is None:
            given = b"\0".join((kind.encode(), value.encode(errors="surrogatepass"), str(count).encode()))
            number = int.from_bytes(hmac.digest(self._key, given, "sha256")[:8], "big") % _SPACE
            name = f"{kind}_{number:0{_DIGITS}}"
            if name in self.values:
                name, count = None, count + 1
        self.values[name] = readable(value)  # no answer of JSON has a lone surrogate
        self._names[kind, value] = name
        return f"<{name}>"

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of all placeholders."""
        return tuple(sorted({_kind(name) for name in self.values}))


def _kind(name: str) -> str:
    return name.rpartition("_")[0]


class PlaceholderGrammar:
    """How a model may write a placeholder of some kinds.

    Case makes no difference. The angle brackets may be missing, may be those of a closing tag, and may be escaped as in
    Markdown or in HTML. The line may be a hyphen, and within brackets a space.
    """

    def __init__(self, kinds: tuple[str, ...]) -> None:
        names = "|".join(sorted(kinds, key=len, reverse=True))
        self._whole = re.compile(
            rf"(?P<open>(?:\\?<|&lt;)\s?/?\s?)?(?P<kind>{names})(?P<line>\s?\\?[_-]\s?|\s)(?P<digits>\d{{{_DIGITS}}})"
            r"(?(open)(?:\s?/?\s?(?:\\?>|&gt;))?)",
            re.IGNORECASE | re.ASCII,
        )
        close = _optional([r"\s", "/", r"\s"], r"(?:\\|&(?:g(?:t)?)?)?")
        rest = rf"(?:\s?(?:\\?(?:[_-](?:\s?(?:\d{{0,{_DIGITS - 1}}}|\d{{{_DIGITS}}}{close})?)?)?)?|\s\d{{0,{_DIGITS}}}"
        rest += f"{close})?"
        bare = rf"(?:\\?(?:[_-]\d{{0,{_DIGITS - 1}}})?)?"
        opened = "|".join(_begun(name, rest) for name in kinds)
        plain = "|".join(_begun(name, bare) for name in kinds)
        self._begun = re.compile(
            rf"(?:(?:\\?<|&lt;)\s?/?\s?(?:{opened})?|\\|&(?:l(?:t)?)?|{plain})\Z", re.IGNORECASE | re.ASCII
        )
        self.longest = max(map(len, kinds)) + _DIGITS + 24
        """Characters of the longest way to write a placeholder."""

    def search(self, text: str, begin: int) -> tuple[str, int, int] | None:
        """The name and the span of the first placeholder that begins at `begin` or later."""
        while (match := self._whole.search(text, begin)) is not None:
            if match["open"] or not any(map(str.isspace, match["line"])):
                return f"{match['kind'].upper()}_{match['digits']}", *match.span()
            begin = match.start() + 1
        return None

    def begun(self, text: str, begin: int) -> int:
        """The place from which the text may be the begin of a placeholder; its length for none."""
        match = self._begun.search(text, max(begin, len(text) - self.longest))
        return len(text) if match is None else match.start()


def _begun(name: str, rest: str) -> str:
    """A pattern for all begins of a name, and for the name with the begin of what follows it."""
    pattern = rest
    for letter in reversed(name[1:]):
        pattern = f"(?:{letter}{pattern})?"
    return name[0] + pattern


def _optional(parts: list[str], last: str) -> str:
    return "".join(f"{part}?" for part in parts) + last


@lru_cache(maxsize=256)
def grammar_of(kinds: tuple[str, ...]) -> PlaceholderGrammar:
    """The grammar of some kinds, compiled once."""
    return PlaceholderGrammar(kinds)

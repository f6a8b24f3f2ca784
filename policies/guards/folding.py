"""Texts in the form in which guards compare them.

The form is NFKC of Unicode (UAX #15), without characters that nobody sees, and with the escapes of JSON resolved. Each
character of the form has its span in the original, so that a mask replaces whole characters of the original.
"""

import re
import unicodedata
from typing import NamedTuple

_ESCAPE = re.compile(r"\\+(?:u(?P<hex>[0-9a-fA-F]{4})|(?P<short>[\"\\/bfnrt]))")
_UNFINISHED = re.compile(r"\\+(?:u[0-9a-fA-F]{0,3})?\Z|\\+u[dD][89abAB][0-9a-fA-F]{2}(?:\\+(?:u[0-9a-fA-F]{0,3})?)?\Z")
"""An escape that the next characters may complete, or the first half of a pair."""
_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HIDDEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""The code points that Unicode calls default ignorable."""
_JOINING = re.compile("[\u1161-\u11ff\ud7b0-\ud7ff]")
"""Vowels and final consonants of Hangul, which join the letter before them."""
_SPECIAL = re.compile(f"{_HIDDEN.pattern}|{_JOINING.pattern}|[\ud800-\udfff]")
"""Characters that the form does not have, or that join others."""
_LOOKALIKES = str.maketrans(
    "аеорсухіјѕԁԛԝһӏкмнтвгпАВЕКМНОРСТУХІЈЅαβεικνορτυχγΑΒΕΖΗΙΚΜΝΟΡΤΥΧıǀ０",
    "aeopcyxijsdqwhlkmhtbrnABEKMHOPCTYXIJSabeiknoptuxyABEZHIKMNOPTYXil0",
)
"""Letters of Cyrillic and Greek that look like Latin ones (a part of UTS #39's confusables)."""


class Folded(NamedTuple):
    """A text in its compared form."""

    text: str
    begins: list[int] | None
    """The begin of each character in the original; None if all places are the same."""
    ends: list[int] | None
    """The end of each character in the original."""
    size: int
    """The characters of the original that it contains."""

    def span(self, begin: int, end: int) -> tuple[int, int]:
        """The span in the original of a span that is not empty."""
        if self.begins is None or self.ends is None:
            return begin, end
        return self.begins[begin], self.ends[end - 1]

    def begin(self, at: int) -> int:
        """The place in the original of a place in the form."""
        if self.begins is None:
            return at
        return self.begins[at] if at < len(self.begins) else self.size


def fold(text: str, lower: bool, lookalikes: bool, escapes: bool, whole: bool) -> Folded:
    """The compared form. `escapes` resolves the escapes of JSON, however often they are nested.

    Without `whole`, more text may follow: an escape that is not complete then is left out.
    """
    if escapes and not whole and (tail := _UNFINISHED.search(text)) is not None:
        text = text[: tail.start()]
    if text.isascii() and not (escapes and "\\" in text):
        return Folded(text.lower() if lower else text, None, None, len(text))
    if not (escapes and "\\" in text) and _is_plain(text):
        form = text.translate(_LOOKALIKES) if lookalikes else text
        form = form.lower() if lower else form
        if len(form) == len(text):
            return Folded(form, None, None, len(text))
    letters: list[str] = []
    begins: list[int] = []
    ends: list[int] = []
    for letter, begin, end in _clusters(text, escapes=escapes):
        form = unicodedata.normalize("NFKC", letter)
        if lookalikes:
            form = form.translate(_LOOKALIKES)
        form = _HIDDEN.sub("", form.lower() if lower else form)
        if "\ud800" <= form[:1] <= "\udfff":
            form = "\ufffd"  # half of a pair
        letters.append(form)
        begins += [begin] * len(form)
        ends += [end] * len(form)
    return Folded("".join(letters), begins, ends, len(text))


def _is_plain(text: str) -> bool:
    """Whether each character of a text is one of the form, too."""
    return (
        unicodedata.is_normalized("NFKC", text)
        and _SPECIAL.search(text) is None
        and not any(map(unicodedata.combining, text))
    )


def _clusters(text: str, *, escapes: bool) -> list[tuple[str, int, int]]:
    """Each visible character with the marks that follow it, and its span."""
    out: list[tuple[str, int, int]] = []
    for letter, begin, end in _characters(text) if not escapes else _unescaped(text):
        if not letter.isascii():
            if _HIDDEN.match(letter):
                continue
            if out and (unicodedata.combining(letter) or _JOINING.match(letter)):
                base, first, _ = out[-1]
                out[-1] = base + letter, first, end
                continue
        out.append((letter, begin, end))
    return out


def _characters(text: str) -> list[tuple[str, int, int]]:
    return [(letter, at, at + 1) for at, letter in enumerate(text)]


def _unescaped(text: str) -> list[tuple[str, int, int]]:
    """The characters with escapes resolved, and their spans. Two escapes of surrogates make one character."""
    out: list[tuple[str, int, int]] = []
    at = 0
    for match in _ESCAPE.finditer(text):
        out += [(letter, place, place + 1) for place, letter in enumerate(text[at : match.start()], at)]
        short = match["short"]
        letter = _SHORT.get(short, short) if short else chr(int(match["hex"], 16))
        begin, at = match.span()
        if "\udc00" <= letter <= "\udfff" and out and "\ud800" <= out[-1][0] <= "\udbff" and out[-1][2] == begin:
            high, begin, _ = out.pop()
            letter = (high + letter).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        out.append((letter, begin, at))
    return [*out, *((letter, place, place + 1) for place, letter in enumerate(text[at:], at))]

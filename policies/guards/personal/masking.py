"""A prompt with placeholders in the place of personal data."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from policies.guards.finders import Finder
from policies.guards.folding import fold
from policies.guards.personal import json_texts
from policies.guards.personal.entities import EntityFinder
from policies.guards.personal.placeholders import TEXT, RequestPlaceholders, grammar_of

Span = tuple[int, int]
_REPEATED = 3
"""Characters of the shortest name that is masked wherever it stands."""
_LONGEST = 128
"""Those of the longest one. So a search takes time that is linear in its text, however many names there are."""
_FIRST = re.compile(r"(?<!\w)(?:\w+|\W)")
"""The first word of a name, or the sign with which it begins."""
_NEAR = 64
"""Characters of a key, and of the value after it, in which a word may name a number."""


class PersonalRule:
    """What finds one kind of personal data. `index` names the guard."""

    __slots__ = ("finder", "index", "kind")

    def __init__(self, index: int, kind: str, finder: Finder) -> None:
        self.index = index
        self.kind = kind
        self.finder = finder

    def spans(self, text: str) -> Iterable[Span]:
        """All spans in a folded text."""
        if isinstance(self.finder, EntityFinder):
            return self.finder.all(text)
        return _spans_of(self.finder, text)

    def named(self, text: str) -> Iterable[Span]:
        """The spans in a folded text that only a word before them makes some."""
        return self.finder.named(text) if isinstance(self.finder, EntityFinder) else ()


class Recognised(NamedTuple):
    """A value that a recogniser has found in a text: its place in code points, its kind, and the index of its guard."""

    begin: int
    end: int
    kind: str
    guard: int


class PersonalMasker:
    """Masks the texts of one request. `report` receives the index of a guard, once for each value.

    `named` are the kinds that a recogniser has, with the indexes of their guards.
    """

    __slots__ = ("_grammar", "_guards", "_placeholders", "_recognised", "_report", "_rules", "_sizes", "_values")

    def __init__(
        self,
        rules: Sequence[PersonalRule],
        placeholders: RequestPlaceholders,
        report: Callable[[int], None],
        named: Mapping[str, int] | None = None,
    ) -> None:
        self._rules = rules
        self._placeholders = placeholders
        self._report = report
        self._guards = named or {}
        kinds = {rule.kind for rule in rules} | {TEXT, *placeholders.kinds, *self._guards}
        self._grammar = grammar_of(tuple(sorted(kinds)))
        self._recognised: Mapping[str, Sequence[Recognised]] = {}
        self._values: dict[str, Recognised] = {}
        self._sizes: dict[str, list[int]] = {}
        """The sizes of the values with a first word or sign, the longest first."""

    def learn(self, recognised: Mapping[str, Sequence[Recognised]]) -> None:
        """Mask what a recogniser has found in each text, and the same values wherever they stand: a name that is found
        in one message may be unknown to the recogniser in another one."""
        self._recognised = recognised
        values = {
            value: Recognised(0, 0, kind, self._guards[kind])
            for name, value in self._placeholders.values.items()
            if (kind := name.rpartition("_")[0]) in self._guards
        }
        values |= {text[each.begin : each.end]: each for text, spans in recognised.items() for each in spans}
        self._values = {value: each for value, each in values.items() if _REPEATED <= len(value) <= _LONGEST}
        sizes: dict[str, set[int]] = {}
        for value in self._values:
            if (first := _FIRST.match(value)) is not None:
                sizes.setdefault(first.group(), set()).add(len(value))
        self._sizes = {first: sorted(each, reverse=True) for first, each in sizes.items()}

    def masked(self, text: str, key: str = "") -> str:
        """A whole text with placeholders, whose key in an object of JSON may say what it is. A text that is JSON stays
        JSON."""
        return json_texts.changed(text, self._masked, key)

    def _masked(self, text: str, key: str) -> str:
        spans = self._spans(text)
        if key:
            spans = sorted((*spans, *self._named(text, key)), key=_order)
        if not spans:
            return text
        out, at, index = list[str](), 0, 0
        while index < len(spans):
            begin, end, kind, guard = spans[index]
            index += 1
            while index < len(spans) and spans[index][0] < end:  # what overlaps is one value
                end = max(end, spans[index][1])
                index += 1
            if guard is not None:
                self._report(guard)
            out += [text[at:begin], self._placeholders.of(kind, text[begin:end])]
            at = end
        return "".join((*out, text[at:]))

    def _spans(self, text: str) -> list[tuple[int, int, str, int | None]]:
        """The spans of all forms of a text, in their order, each with its kind and its guard."""
        spans: list[tuple[int, int, str, int | None]] = []
        for escapes in (False, True) if "\\" in text else (False,):
            form = fold(text, False, False, escapes, True)
            for rule in self._rules:
                spans += [(*form.span(*span), rule.kind, rule.index) for span in rule.spans(form.text)]
            spans += [(*form.span(*span), TEXT, None) for span in self._written(form.text)]
        if self._recognised or self._sizes:
            spans += self._of_recogniser(text)
        return sorted(spans, key=_order)

    def _of_recogniser(self, text: str) -> Iterable[tuple[int, int, str, int | None]]:
        """What a recogniser has found in a text, but for placeholders of the conversation, which stay."""
        own = list(self._own(text))
        ends = [last for _, last in own]
        for begin, end, kind, guard in (*self._recognised.get(text, ()), *self._repeated(text)):
            for at in range(bisect_right(ends, begin), len(own)):
                first, last = own[at]
                if first >= end:
                    break
                if begin < first and text[begin:first].strip():
                    yield begin, first, kind, guard
                begin = last
            if begin < end and text[begin:end].strip():
                yield begin, end, kind, guard

    def _repeated(self, text: str) -> Iterable[Recognised]:
        """The learnt values as whole words, the longest one at each place."""
        at = 0
        for first in _FIRST.finditer(text) if self._sizes else ():
            begin = first.start()
            if begin < at:
                continue
            for size in self._sizes.get(first.group(), ()):
                value = text[begin : begin + size]
                end = begin + len(value)
                if value in self._values and not _is_word(text[end : end + 1]):
                    yield self._values[value]._replace(begin=begin, end=end)
                    at = end
                    break

    def _own(self, text: str) -> Iterable[Span]:
        """The placeholders of the conversation in a text."""
        at = 0
        while (match := self._grammar.search(text, at)) is not None:
            name, begin, at = match
            if name in self._placeholders.values:
                yield begin, at

    def _named(self, text: str, key: str) -> list[tuple[int, int, str, int | None]]:
        """The spans that the key of a value makes some, as in ``{"passport": "C01X00T47"}``."""
        before = f"{key[-_NEAR:]}: "
        form, size = fold(before + text[:_NEAR], False, False, False, True), len(before)
        spans = [(*form.span(*span), rule) for rule in self._rules for span in rule.named(form.text)]
        return [(begin - size, end - size, rule.kind, rule.index) for begin, end, rule in spans if begin >= size]

    def _written(self, text: str) -> Iterable[Span]:
        """What the client has written in the form of a placeholder. Those of the conversation stay."""
        at = 0
        while (match := self._grammar.search(text, at)) is not None:
            name, begin, at = match
            if name not in self._placeholders.values:
                yield begin, at


def _is_word(letter: str) -> bool:
    return letter.isalnum() or letter == "_"


def _order(span: tuple[int, int, str, int | None]) -> tuple[int, int]:
    return span[0], -span[1]


def _spans_of(finder: Finder, text: str) -> Iterable[Span]:
    at = 0
    while at < len(text) and (span := finder.find(text, at)) is not None:
        yield span
        at = max(span[1], at + 1)

"""A foreign document in parts, with an account of its values: each is used, left out for a reason, or unread.

An import reads the document through `ForeignValue` only. What it did not use is then in `Survey.left`, so that no
value is dropped silently. A message names the place of a value and never the value itself, which may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Any

from config.document import Document
from config.place import Place, written
from config.problem import Problem

UNREAD = "has no equivalent"
_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})
_NUMBER = re.compile(r"[-+]?(\d{1,18}(\.\d{0,18})?|\.\d{1,18})([eE][-+]?\d{1,2})?")


class Survey:
    """The account of one document."""

    def __init__(self, doc: Document) -> None:
        self.doc = doc
        self.used: set[Place] = set()
        self.reasons: dict[Place, str] = {}

    @property
    def root(self) -> ForeignValue:
        """The whole document."""
        return ForeignValue(self, (), self.doc.data)

    def left(self) -> list[Problem]:
        """Every value that was not used, with its line and the reason. Values with a common reason are one entry."""
        problems: dict[Place, Problem] = {}
        for leaf in _leaves(self.doc.data, ()):
            above = [leaf[:length] for length in range(len(leaf), -1, -1)]
            place = next((place for place in above if place in self.used or place in self.reasons), leaf)
            if place not in self.used:
                problems.setdefault(place, self.doc.problem_with_key(place, self.reasons.get(place, UNREAD)))
        return sorted(problems.values(), key=lambda problem: problem.line or 0)


@dataclass(frozen=True)
class ForeignValue:
    """The value at a place of the document; None without one."""

    survey: Survey
    place: Place
    value: object

    def __getitem__(self, step: str | int) -> ForeignValue:
        value: object = None
        if isinstance(self.value, dict):
            value = self.value.get(step)
        elif isinstance(self.value, tuple) and isinstance(step, int) and step < len(self.value):
            value = self.value[step]
        return ForeignValue(self.survey, (*self.place, step), value)

    def __bool__(self) -> bool:
        return self.value is not None

    def __iter__(self) -> Iterator[ForeignValue]:
        """The entries of a list, or the fields of a mapping."""
        steps: Mapping[str, object] | range = {}
        if isinstance(self.value, dict):
            steps = self.value
        elif isinstance(self.value, tuple):
            steps = range(len(self.value))
        return (self[step] for step in steps)

    @property
    def name(self) -> str:
        """The name of the field."""
        return str(self.place[-1])

    @property
    def line(self) -> int:
        """The line of the value."""
        return self.survey.doc.line(self.place)

    @property
    def path(self) -> str:
        """The place as text: ``model_list[0].litellm_params``."""
        return written(self.place)

    def use(self) -> object:
        """The value, which then counts as used with all parts of it."""
        self.survey.used.add(self.place)
        return self.value

    def leave(self, reason: str) -> None:
        """Report the value with all its parts, also those that were used before."""
        if self.value is not None:
            length = len(self.place)
            self.survey.used -= {place for place in self.survey.used if place[:length] == self.place}
            self.survey.reasons[self.place] = reason

    def text(self) -> str | None:
        """The text, used; None for any other value, which then stays unused."""
        return str(self.use()) if isinstance(self.value, str) and self.value else None

    def number(self) -> Decimal | None:
        """The number, used. Quoted numbers and those with an exponent count."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return None
        if not _NUMBER.fullmatch(str(value)) and not isinstance(value, float):
            return None
        try:
            made = Decimal(str(value))
        except InvalidOperation:
            return None
        if not made.is_finite():
            return None
        self.use()
        return made

    def whole(self, least: int = 0, most: int = 10**12) -> int | None:
        """The whole number within bounds, used."""
        number = self.number()
        if number is None:
            return None
        if number != number.to_integral_value() or not least <= number <= most:
            self.leave("is not a whole number in the range that is possible here")
            return None
        return int(number)

    def flag(self) -> bool | None:
        """The truth value, used. ``True``, ``yes`` and ``"false"`` count."""
        written = str(self.value).lower() if isinstance(self.value, str | bool) else ""
        if written not in _TRUE | _FALSE:
            return None
        self.use()
        return written in _TRUE

    def texts(self) -> list[str]:
        """The texts of a list, or the one text, used."""
        single = self.text()
        return [single] if single is not None else [text for part in self if (text := part.text()) is not None]


def _leaves(value: object, place: Place) -> Iterator[Place]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, (*place, name))
    elif isinstance(value, tuple):
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*place, index))
    elif value is not None:
        yield place


def plain(value: object) -> Any:
    """A value of the document as data for YAML."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, tuple) else _constant(value)


def _constant(value: object) -> object:
    """YAML's older constants, and numbers with an exponent, which the document has as texts."""
    return {"True": True, "False": False}.get(value, value) if isinstance(value, str) else value


def duration(value: Decimal) -> str:
    """Seconds as a duration, in milliseconds unless they are whole."""
    if value == value.to_integral_value():
        return f"{int(value)}s"
    return f"{int((value * 1000).to_integral_value(ROUND_CEILING))}ms"

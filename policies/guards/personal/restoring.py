"""An answer with values in the place of placeholders."""

import re
from collections.abc import Mapping
from functools import cached_property

from policies.guards.folding import fold
from policies.guards.masking import HeldText, Rule, by_view
from policies.guards.personal import json_texts
from policies.guards.personal.placeholders import RequestPlaceholders, grammar_of


class PlaceholderFinder:
    """Finds the placeholders that stand for a value."""

    def __init__(self, placeholders: RequestPlaceholders) -> None:
        self._values: Mapping[str, str] = placeholders.values
        self._grammar = grammar_of(placeholders.kinds)

    def find(self, text: str, begin: int) -> tuple[int, int] | None:
        while (match := self._grammar.search(text, begin)) is not None:
            name, first, end = match
            if name in self._values:
                return first, end
            begin = first + 1
        return None

    def open(self, text: str, begin: int) -> int:
        return self._grammar.begun(text, begin)

    def is_clear(self, text: str) -> bool:
        """False: a placeholder is read in many forms."""
        return False

    def value(self, written: str) -> str:
        """The value of a placeholder as a model has written it."""
        match = self._grammar.search(fold(written, False, False, True, True).text, 0)
        return written if match is None else self._values.get(match[0], written)


class Restorer:
    """Replaces the placeholders of one request by their values."""

    def __init__(self, placeholders: RequestPlaceholders) -> None:
        self._placeholders = placeholders
        self._finder = PlaceholderFinder(placeholders)
        self._rules = by_view([Rule(0, self._finder, masks=True, write=self._finder.value)])
        self._escaped = by_view([Rule(0, self._finder, masks=True, write=self._escaped_value)])
        self._without = by_view([Rule(0, self._finder, masks=True)])

    def restored(self, text: str, _: str = "") -> str:
        """A whole text with values, whatever its key is. A text that is JSON stays JSON."""
        return json_texts.changed(text, self._restored)

    def without(self, text: str) -> str:
        """A whole text with ``[…]`` in the place of placeholders: of an error, which logs have too."""
        return HeldText(self._without, _ignore).whole(text)

    def text(self, *, is_json: bool = False) -> "RestoredText":
        """A text of a stream."""
        return RestoredText(self, is_json=is_json)

    def held(self, *, is_json: bool) -> HeldText:
        """A text of a stream. `is_json` for one whose values stand in literals of JSON."""
        return HeldText(self._escaped if is_json else self._rules, _ignore)

    @cached_property
    def streams_json(self) -> bool:
        """Whether no value needs an escape in JSON, so that one may be written at any depth."""
        return all(json_texts.escaped(value) == value for value in self._placeholders.values.values())

    def hidden(self, text: str) -> str:
        """A text with placeholders in the place of all values again."""
        return json_texts.changed(text, self._hidden)

    def _restored(self, text: str, _: str) -> str:
        return self.held(is_json=json_texts.begins_json(text) and text.lstrip()[0] != '"').whole(text)

    def _escaped_value(self, written: str) -> str:
        return json_texts.escaped(self._finder.value(written))

    def _hidden(self, text: str, _: str) -> str:
        return self._any_value.sub(lambda match: f"<{self._names[match.group()]}>", text)

    @cached_property
    def _names(self) -> dict[str, str]:
        names: dict[str, str] = {}
        for name, value in self._placeholders.values.items():
            names |= {value: name, json_texts.escaped(value): name}
        return names

    @cached_property
    def _any_value(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, sorted(self._names, key=len, reverse=True))))


class RestoredText:
    """One text of a stream, which leaves when no placeholder can be open."""

    __slots__ = ("_held", "_is_json", "_restorer")

    def __init__(self, restorer: Restorer, *, is_json: bool) -> None:
        self._restorer = restorer
        self._is_json = is_json
        self._held: HeldText | None = None

    def feed(self, text: str) -> str:
        """Add the next part. Returns what may leave. Raises `TextTooLong`."""
        if self._held is None:
            begin = text.lstrip()[:1]
            if not begin:
                return text
            self._held = self._restorer.held(is_json=self._is_json or begin in "{[")
        return self._held.feed(text)

    def end(self) -> str:
        """The rest."""
        return "" if self._held is None else self._held.end()


def _ignore(_: int) -> None:
    """No guard counts what is restored."""

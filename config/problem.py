"""A problem of a file, with its place and the change that solves it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

LEAST = 4
"""Characters of a value that texts are searched for: a shorter one occurs in ordinary words, and is no secret."""


@dataclass(frozen=True)
class Problem:
    """One problem. It never contains a value from the environment or of a secret."""

    file: str
    line: int | None
    """The line, from 1; None if the file cannot be read."""
    path: str
    """The place, such as ``pools[1].endpoints[0].url``; empty for the whole file."""
    message: str
    suggestion: str | None = None
    is_warning: bool = False

    def hiding(self, names: Mapping[str, str]) -> "Problem":
        """The problem with the name of each value instead of the value."""
        suggestion = self.suggestion and hidden(self.suggestion, names)
        return replace(self, message=hidden(self.message, names), suggestion=suggestion)

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        hint = f' (did you mean "{self.suggestion}"?)' if self.suggestion else ""
        parts = (place, "warning" if self.is_warning else "", self.path, self.message)
        return ": ".join(part for part in parts if part) + hint


class ConfigError(Exception):
    """The file is invalid. ``problems`` has every reason, in the order of the file."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(problems)
        self.problems = list(problems)

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


def hidden(text: str, names: Mapping[str, str]) -> str:
    """A text with the name of each value instead of the value, the longest value first."""
    for value in sorted(names, key=len, reverse=True):
        if len(value) >= LEAST:
            text = text.replace(value, names[value])
    return text


def closest(word: str, names: Iterable[str]) -> str | None:
    """The most similar known word, if any is similar enough."""
    by_lower = {name.lower(): name for name in names}
    matches = get_close_matches(word.lower(), by_lower, n=1)
    return by_lower[matches[0]] if matches else None

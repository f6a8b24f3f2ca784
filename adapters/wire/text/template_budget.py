"""The work that one rendering of a template may do: its steps, and the characters that it makes or reads."""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.utils import Namespace

MAX_STEPS = 200_000
"""Steps of one rendering: sufficient for thousands of messages. A step is an iteration, a call or an element."""
MAX_BITS = 16_384
"""Bits of an integer, before and after an operation."""
MAX_POWER = 1_000
MAX_WIDTH = 4_096
"""The width to which a text or a number is padded, in characters."""
ELEMENTS_PER_STEP = 64
"""Elements of a list that are copied in one step."""
READ_PER_MADE = 8
"""Characters that may be read in place of one that is made."""
TEXTS_PER_RENDERING = 4
"""Texts of the largest size that one rendering makes."""


class TemplateBudget(threading.local):
    """The remaining budget of this thread's rendering. Every method raises `SecurityError` when it is spent.

    `longest` is the largest size of a text, in characters.
    """

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self.steps = 0
        self.characters = 0

    def refill(self) -> None:
        """Begin a rendering."""
        self.steps = MAX_STEPS
        self.characters = self.longest * TEXTS_PER_RENDERING

    def spend(self, steps: int = 1) -> None:
        """Spend steps."""
        self.steps -= steps
        if self.steps < 0:
            raise SecurityError("the template takes too many steps")

    def make(self, characters: int) -> None:
        """Spend the characters of one new text, before it is made if possible."""
        if characters > self.longest:
            raise SecurityError(f"a text has more than {self.longest} characters")
        self.characters -= characters
        if self.characters < 0:
            raise SecurityError("the template makes too many texts")

    def copy(self, elements: int) -> None:
        """Spend the elements of a list that is copied."""
        self.spend(1 + elements // ELEMENTS_PER_STEP)
        self.make(elements)

    def read(self, value: Any) -> int:
        """Spend a complete reading of a value, such as for a comparison. Return the characters of its texts.

        Each element of a list or of an object is a step, as often as the value contains it.
        """
        if isinstance(value, str):
            self._look_at(value)
            return len(value)
        if value is None or isinstance(value, bool | float):
            return 8
        size, waiting = 0, [value]
        while waiting:
            one = waiting.pop()
            if isinstance(one, str):
                self._look_at(one)
                size += len(one) + 8
                continue
            size += 32
            if (parts := _parts(one)) is not None:
                self.spend(len(parts))
                waiting += parts
            elif isinstance(one, int):
                self.check_number(one)
        return size

    def _look_at(self, text: str) -> None:
        self.characters -= len(text) // READ_PER_MADE
        if self.characters < 0:
            raise SecurityError("the template reads too many texts")

    def counted(self, items: Any, steps: int = 1, text: int = 0) -> Any:
        """The items of a loop. Each iteration spends `steps`, and writes `text` characters of the template."""
        if not isinstance(items, Sized):
            return self._one_by_one(items, steps, text)
        self.run(steps, text, len(items))
        return items

    def run(self, steps: int, text: int, times: int = 1) -> None:
        """Spend the steps and the constant text of a part of the template that runs several times."""
        self.spend(steps * times)
        self.characters -= text * times
        if self.characters < 0:
            raise SecurityError("the template makes too many texts")

    def _one_by_one(self, items: Iterable[Any], steps: int, text: int) -> Iterator[Any]:
        for item in items:
            self.run(steps, text)
            yield item

    @staticmethod
    def check_number(value: Any, bits: int = MAX_BITS) -> None:
        """Refuse a long integer, whose division or power takes long."""
        if isinstance(value, int) and value.bit_length() > bits:
            raise SecurityError(f"a number has more than {bits} bits")

    @staticmethod
    def check_width(value: Any) -> None:
        """Refuse a wide padding."""
        if isinstance(value, int) and abs(value) > MAX_WIDTH:
            raise SecurityError(f"a text is padded to more than {MAX_WIDTH} characters")


def _parts(value: Any) -> list[Any] | None:
    """The elements of a container; None for another value."""
    if isinstance(value, Namespace):
        return [vars(value).get("_Namespace__attrs", {})]
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set | frozenset) or type(value).__name__ in ("dict_items", "dict_values"):
        return list(value)
    return None

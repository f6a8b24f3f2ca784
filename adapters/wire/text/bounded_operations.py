"""Bounds of the operations of templates whose results may be larger than their inputs: each check runs before."""

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.utils import Namespace

# The work that one rendering of a template may do: its steps, and the characters that it makes or reads.

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


MAX_FORMAT = 4_096
"""Characters of a format, such as that of `%`."""
MAX_DIGITS = 3
"""Digits of a width in a format."""
MAX_TAGGED = 16_384
"""Characters of a text whose tags, links or lines a filter looks for: some of these take quadratic time."""
MAX_ELEMENTS = 100_000
"""Elements of a list that an operation makes."""
_DIRECTIVE = re.compile(r"%(?:\([^)]*\))?[-#0 +]*(\*|\d*)(?:\.(\*|\d*))?")
_DIGITS = re.compile(rf"\d{{{MAX_DIGITS + 1},}}")

Arguments = tuple[Any, ...]
Options = Mapping[str, Any]
Check = Callable[[TemplateBudget, Arguments, Options], None]


def check_operation(budget: TemplateBudget, operator: str, left: Any, right: Any) -> None:
    """Refuse an arithmetic operation whose result is too large."""
    budget.check_number(left)
    budget.check_number(right)
    if operator == "**":
        if not all(isinstance(side, int | float) for side in (left, right)) or max(abs(left), abs(right)) > MAX_POWER:
            raise SecurityError("`**` makes too much")
    elif operator == "%" and isinstance(left, str):
        check_percent(budget, left, right)
    elif operator in "+*":
        _check_joined(budget, operator, left, right)


def _check_joined(budget: TemplateBudget, operator: str, left: Any, right: Any) -> None:
    """Refuse a sum or a product of texts or lists that is too large."""
    sizes = [len(side) for side in (left, right) if isinstance(side, str | list | tuple)]
    if not sizes:
        return
    times = next((side for side in (left, right) if isinstance(side, int)), 1) if operator == "*" else 1
    total = sum(sizes) * max(times, 0)
    if isinstance(left, str) or isinstance(right, str):
        budget.make(total)
    elif operator == "*" and total > MAX_ELEMENTS:
        raise SecurityError("`*` makes too much")
    else:
        budget.copy(total)


def check_percent(budget: TemplateBudget, text: str, values: Any) -> None:
    """Refuse a format of `%` with wide fields, or with a result that is too large."""
    if len(text) > MAX_FORMAT:
        raise SecurityError(f"a format has more than {MAX_FORMAT} characters")
    directives = _DIRECTIVE.findall(text)
    if any(width == "*" or len(width) > MAX_DIGITS for directive in directives for width in directive):
        raise SecurityError("a format pads too much")
    budget.make(len(text) + len(directives) * (2 * 10**MAX_DIGITS + budget.read(values)))


def check_format(budget: TemplateBudget, text: str, arguments: Arguments, options: Options) -> None:
    """Check `str.format`, whose widths may be arguments."""
    if len(text) > MAX_FORMAT:
        raise SecurityError(f"a format has more than {MAX_FORMAT} characters")
    if _DIGITS.search(text) or re.search(r"{[^{}]*:[^{}]*{", text):
        raise SecurityError("a format pads too much")
    size = budget.read(list(arguments)) + budget.read(dict(options))
    budget.make(len(text) + text.count("{") * (10**MAX_DIGITS + size))


def check_replacement(budget: TemplateBudget, text: str, old: str, new: str) -> None:
    """Refuse a replacement that makes a text too large."""
    budget.read(text)
    count = text.count(old) if old else len(text) + 1
    budget.make(len(text) + max(count * (len(new) - len(old)), 0))


def _option(arguments: Arguments, options: Options, place: int, name: str, default: Any = None) -> Any:
    return arguments[place] if len(arguments) > place else options.get(name, default)


# ── filters ───────────────────────────────────────────────────────────────────────────────────────────────


def _replaced(budget: TemplateBudget, arguments: Arguments, options: Options) -> None:
    text, old, new = (str(_option(arguments, options, place, ("s", "old", "new")[place], "")) for place in range(3))
    check_replacement(budget, text, old, new)


def _padded(budget: TemplateBudget, arguments: Arguments, options: Options) -> None:
    budget.check_width(_option(arguments, options, 1, "width", 0))


def _indented(budget: TemplateBudget, arguments: Arguments, options: Options) -> None:
    text, width = str(_option(arguments, options, 0, "s", "")), _option(arguments, options, 1, "width", 4)
    budget.check_width(width)
    step, lines = len(width) if isinstance(width, str) else int(width), text.count("\n") + 1
    if lines > MAX_ELEMENTS:
        raise SecurityError("`indent` has too many lines")
    budget.make(len(text) + lines * step)


def _formatted(budget: TemplateBudget, arguments: Arguments, options: Options) -> None:
    check_percent(budget, str(arguments[0]), dict(options) if options else arguments[1:])


def _encoded(budget: TemplateBudget, arguments: Arguments, options: Options) -> None:
    indent = _option(arguments, options, 2, "indent")
    if isinstance(indent, str | int | float) and (indent if isinstance(indent, int | float) else len(indent)) > 64:
        raise SecurityError("`tojson` indents too much")
    budget.make(2 * budget.read(arguments[0]))


def _escaped(budget: TemplateBudget, arguments: Arguments, options: Options) -> None:
    budget.make(6 * budget.read(arguments[0]))


def _by_word(budget: TemplateBudget, arguments: Arguments, options: Options) -> None:
    if len(str(arguments[0])) > MAX_ELEMENTS:
        raise SecurityError(f"a text has more than {MAX_ELEMENTS} characters")


def _by_tag(budget: TemplateBudget, arguments: Arguments, options: Options) -> None:
    if len(str(arguments[0])) > MAX_TAGGED:
        raise SecurityError(f"a text has more than {MAX_TAGGED} characters")


def _wrapped(budget: TemplateBudget, arguments: Arguments, options: Options) -> None:
    _by_tag(budget, arguments, options)
    size = len(str(arguments[0]))
    budget.spend(size)  # each character may become a line
    budget.make(size * (2 + len(str(_option(arguments, options, 3, "wrapstring", "")))))


def _batched(budget: TemplateBudget, arguments: Arguments, options: Options) -> None:
    count = _option(arguments, options, 1, "linecount", _option(arguments, options, 1, "slices", 0))
    if not isinstance(count, int) or not 0 < count <= MAX_ELEMENTS:
        raise SecurityError("a list has too many parts")
    budget.copy(count)


def _rounded(budget: TemplateBudget, arguments: Arguments, options: Options) -> None:
    precision = _option(arguments, options, 1, "precision", 0)
    if not isinstance(precision, int) or abs(precision) > 300:
        raise SecurityError("`round` has too many digits")


def _as_number(budget: TemplateBudget, arguments: Arguments, options: Options) -> None:
    if isinstance(value := arguments[0], str) and len(value) > MAX_FORMAT:
        raise SecurityError("a number has too many digits")


def _summed(budget: TemplateBudget, arguments: Arguments, options: Options) -> None:
    if not isinstance(_option(arguments, options, 2, "start", 0), int | float):
        raise SecurityError("`sum` adds numbers")


FILTER_CHECKS: dict[str, Check] = {
    "batch": _batched, "center": _padded, "e": _escaped, "escape": _escaped, "float": _as_number,
    "filesizeformat": _as_number, "forceescape": _escaped, "format": _formatted, "indent": _indented,
    "int": _as_number, "pprint": _escaped, "replace": _replaced, "round": _rounded, "slice": _batched,
    "striptags": _by_tag, "sum": _summed, "title": _by_word, "tojson": _encoded, "urlencode": _by_word,
    "urlize": _by_tag, "wordcount": _by_word, "wordwrap": _wrapped, "xmlattr": _escaped,
}  # fmt: skip
"""A check of the arguments of each filter."""

# ── methods of texts ──────────────────────────────────────────────────────────────────────────────────────


def _method_replaced(budget: TemplateBudget, arguments: Arguments, options: Options) -> None:
    check_replacement(budget, *(str(each) for each in (*arguments, "", "")[:3]))


def _method_tabs(budget: TemplateBudget, arguments: Arguments, options: Options) -> None:
    size = _option(arguments, options, 1, "tabsize", 8)
    budget.check_width(size)
    budget.make(len(arguments[0]) + arguments[0].count("\t") * max(size, 0))


def _method_split(budget: TemplateBudget, arguments: Arguments, options: Options) -> None:
    text, separator = arguments[0], _option(arguments, options, 1, "sep")
    budget.read(text)
    count = text.count(separator) if isinstance(separator, str) and separator else len(text) // 2
    if count > MAX_ELEMENTS:
        raise SecurityError("`split` makes too much")
    budget.copy(count)


def _method_made(budget: TemplateBudget, arguments: Arguments, options: Options) -> None:
    budget.make(len(arguments[0]))


def _method_read(budget: TemplateBudget, arguments: Arguments, options: Options) -> None:
    budget.read(arguments[0])
    budget.read(list(arguments[1:]))


def _lines(budget: TemplateBudget, arguments: Arguments, options: Options) -> None:
    _method_split(budget, (arguments[0], "\n"), {})


_READS = (
    "startswith", "endswith", "find", "rfind", "index", "rindex", "count", "isalnum", "isalpha", "isascii",
    "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper",
)  # fmt: skip
_MAKES = (
    "strip", "lstrip", "rstrip", "lower", "upper", "casefold", "capitalize", "title", "swapcase", "removeprefix",
    "removesuffix", "partition", "rpartition",
)  # fmt: skip
TEXT_METHODS: dict[str, Check] = {
    **dict.fromkeys(_READS, _method_read),
    **dict.fromkeys(_MAKES, _method_made),
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), _padded),
    **dict.fromkeys(("split", "rsplit"), _method_split),
    "splitlines": _lines,
    "expandtabs": _method_tabs,
    "replace": _method_replaced,
}
"""The methods of texts that a template may call, each with a check of the text and its arguments."""
LIST_METHODS = frozenset(("index", "count", "copy"))
OBJECT_METHODS = frozenset(("keys", "values", "items", "get", "copy"))

"""Command-line options of the runtimes. A type raises `ArgumentTypeError`, which argparse reports with the option."""

from argparse import Action, ArgumentDefaultsHelpFormatter, ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from typing import TypeVar

from config.schema.units import HELD_COPIES, format_size, parse_duration, parse_size, parse_size_or_share

MAX_HELD_HELP = (
    f"memory for request bodies; each counts {HELD_COPIES} times; 2GiB, or the memory of eight of the largest"
    " bodies, if not given"
)

T = TypeVar("T")


class HelpFormatter(ArgumentDefaultsHelpFormatter):
    """Adds an option's default to its help, unless the option is a flag or has no default."""

    def _get_help_string(self, action: Action) -> str | None:
        has_default = action.default not in (None, "", []) and action.nargs != 0
        return super()._get_help_string(action) if has_default else action.help


def held_bytes(parser: ArgumentParser, max_held: int | None, max_body: int) -> int:
    """The budget for request bodies of `--max-held`, or its default. Exits if the largest body does not fit."""
    largest = HELD_COPIES * max_body
    if max_held is None:
        return max(2 << 30, 8 * largest)
    if max_held < largest:
        parser.error(f"argument --max-held: the largest body takes {format_size(largest)}: give at least as much")
    return max_held


def positive(text: str) -> int:
    """An integer of 1 or more."""
    number = int(text)
    if number < 1:
        raise ArgumentTypeError(f"must be 1 or more, not {number}")
    return number


def port(text: str) -> int:
    """The number of a port; 0 selects a free port."""
    number = int(text)
    if not 0 <= number < 65536:
        raise ArgumentTypeError(f"must be 0 to 65535, not {number}")
    return number


def explained(parse: Callable[[str], T]) -> Callable[[str], T]:
    """The type of an option whose ValueError is the explanation for the user."""

    def parsed(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None

    return parsed


size = explained(lambda text: int(text) if text.isdigit() else parse_size(text))
"""Bytes, with or without a unit."""
size_or_share = explained(lambda text: int(text) if text.isdigit() else parse_size_or_share(text))
"""Bytes, with or without a unit, or a share of all memory: 30% is 0.3."""
duration = explained(parse_duration)
"""Seconds, from a number with a unit."""

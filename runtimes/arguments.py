"""Types of command-line options that the runtimes share. Each raises what argparse tells as a sentence."""

from argparse import ArgumentTypeError

from config.schema.units import parse_duration, parse_size, parse_size_or_share


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ArgumentTypeError(f"must be 1 or more, not {number}")
    return number


def port(text: str) -> int:
    """0 for a free one."""
    number = int(text)
    if not 0 <= number < 65536:
        raise ArgumentTypeError(f"must be 0 to 65535, not {number}")
    return number


def size(text: str) -> int:
    """Bytes, with a unit or without."""
    try:
        return int(text) if text.isdigit() else parse_size(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def size_or_share(text: str) -> int | float:
    """Bytes, with a unit or without, or a share of all there is: 30% is 0.3."""
    try:
        return int(text) if text.isdigit() else parse_size_or_share(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def duration(text: str) -> float:
    """Seconds, from a number with its unit."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None

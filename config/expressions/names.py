"""The names in an expression, before any of them is resolved."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from config.expressions.errors import CompileError
from config.expressions.nodes import NameNode
from config.expressions.parser import parse
from config.expressions.types import Path


def names(text: str) -> tuple[Path, ...]:
    """The dotted names of an expression, without duplicates; none if it is invalid."""
    try:
        return tuple(dict.fromkeys(_names(parse(text))))
    except CompileError:
        return ()


def _names(part: object) -> Iterator[Path]:
    if isinstance(part, NameNode):
        yield part.parts
    elif isinstance(part, tuple):
        for each in part:
            yield from _names(each)
    elif is_dataclass(part) and not isinstance(part, type):
        for each in fields(part):
            yield from _names(getattr(part, each.name))

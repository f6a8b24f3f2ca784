"""A cursor over the file's data that tolerates a wrong shape, so that a check reads all valid parts.

The checks between sections run on the same data as the schema's: a mistake in one pool does not hide a mistake in a
route.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from pydantic import ValidationError

from config.place import Place, field_at

T = TypeVar("T")


@dataclass(frozen=True)
class Node:
    """The value at a place; None for ``null`` and without a value."""

    value: object
    place: Place = ()

    def __getitem__(self, name: str) -> Node:
        value = self.value.get(name) if isinstance(self.value, dict) else None
        return Node(value, (*self.place, name))

    def __contains__(self, name: str) -> bool:
        """Whether a field has a value other than ``null``."""
        return self[name].value is not None

    def __iter__(self) -> Iterator[Node]:
        """The entries of a list; none for any other value."""
        items = self.value if isinstance(self.value, tuple) else ()
        return (Node(item, (*self.place, i)) for i, item in enumerate(items))

    def read(self, kind: type[T]) -> T | None:
        """The value that the schema parses from this field, or the field's default if the file has none.

        None for an invalid value, a value of another type and a field that the schema does not have.
        """
        field = field_at(self.place)
        if field is None:
            return None
        if self.value is None:
            value = field.default
        else:
            try:
                value = field.parser.validate_python(self.value, strict=True)
            except ValidationError:
                return None
        return value if isinstance(value, kind) else None

    def fields(self) -> Iterator[tuple[str, Node]]:
        """The fields of a section; none for any other value."""
        fields = self.value if isinstance(self.value, dict) else {}
        return ((name, Node(value, (*self.place, name))) for name, value in fields.items())

    @property
    def text(self) -> str | None:
        """The value if it is text, else None."""
        return self.value if isinstance(self.value, str) else None

    def texts(self) -> list[str]:
        """The texts of a list."""
        return [item.text for item in self if item.text is not None]


def names(entries: Node) -> list[str]:
    """The ``name`` of each entry that has one."""
    return [name for entry in entries if (name := entry["name"].text) is not None]

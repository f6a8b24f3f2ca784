"""A cursor over the file's data that forgives a wrong shape, so that a check sees all that is readable.

The checks between sections run beside the schema's, on the same data: a mistake in one pool does not hide
a mistake in a route.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from config.place import Place


@dataclass(frozen=True)
class Node:
    """What is written at a place; None both for ``null`` and for nothing."""

    value: object
    place: Place = ()

    def __getitem__(self, name: str) -> Node:
        value = self.value.get(name) if isinstance(self.value, dict) else None
        return Node(value, (*self.place, name))

    def __contains__(self, name: str) -> bool:
        """Whether a field has a value; ``null`` is none."""
        return self[name].value is not None

    def __iter__(self) -> Iterator[Node]:
        """A list's entries; of anything else, none."""
        items = self.value if isinstance(self.value, tuple) else ()
        return (Node(item, (*self.place, i)) for i, item in enumerate(items))

    def fields(self) -> Iterator[tuple[str, Node]]:
        """A section's fields; of anything else, none."""
        fields = self.value if isinstance(self.value, dict) else {}
        return ((name, Node(value, (*self.place, name))) for name, value in fields.items())

    @property
    def text(self) -> str | None:
        """The value, where it is text."""
        return self.value if isinstance(self.value, str) else None

    def texts(self) -> list[str]:
        """The texts of a list."""
        return [item.text for item in self if item.text is not None]


def names(entries: Node) -> list[str]:
    """The ``name`` of each entry that has one."""
    return [name for entry in entries if (name := entry["name"].text) is not None]

"""The table of a configuration's fields: the rules for reading both files and for writing Triton's.

A field of `model_config` is one row: its type and default are the dataclass's, the rest is its `At`. A field without an
`At` has its own name in both files and takes any value of its type. Processes of models import this module: it needs
the standard library only.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from runtimes.tensor.configuration.codecs import MICROSECONDS, PLAIN, FieldCodec

Step = str | int
PARAMETER = "parameters"
"""The path of a field that Triton lacks: it is the parameter `headrace.NAME`, written as in `model.yaml`."""


@dataclass(frozen=True, slots=True)
class At:
    """The place of a field in both files, and its permitted values."""

    pbtxt: str | None = ""
    """Its path in Triton's message, such as `reshape.shape`; its own name when empty; None: not there.

    Paths with `|` between them are those of a oneof's members.
    """
    yaml: str | None = ""
    """Its name in `model.yaml`; its own when empty; None: it has none."""
    codec: FieldCodec = PLAIN
    """Converts the value of the message."""
    unit: Literal["", "seconds", "bytes"] = ""
    """In `model.yaml` it is text with a unit; seconds are microseconds in the message."""
    only: Literal["", "inputs", "outputs"] = ""
    """Tensors that have it; all when empty."""
    required: str = ""
    """The message where `config.pbtxt` lacks it."""
    zero_is_default: bool = False
    """Whether 0 in the message stands for the default."""
    always: bool = False
    """Whether it is written to the message if it has its default."""
    least: float | None = None
    """The smallest value, or the smallest of each of several values."""
    most: float | None = None
    above: float | None = None
    """An exclusive lower bound."""
    lengths: bool = False
    """Whether the field is a shape: lengths, or -1 for any."""
    named: bool = False
    """Whether the field is a name, which must not be empty."""
    key: str = ""
    """The field of its entries that is the key of the message's map."""


class Row(NamedTuple):
    """One field."""

    name: str
    at: At
    hint: Any
    """The field's type, without the `At`."""
    default: Any
    """`MISSING` if it has none."""
    nested: type | None
    """The dataclass of its value, or of each of its values."""

    @property
    def yaml(self) -> str | None:
        return self.at.yaml if self.at.yaml != "" else self.name

    @property
    def paths(self) -> list[tuple[Step, ...]]:
        """The paths in Triton's message; several for members of a oneof."""
        if self.at.pbtxt is None:
            return []
        own = f"{self.name}_microseconds" if self.at.unit == "seconds" else self.name
        written = (self.at.pbtxt or own).split("|")
        return [tuple(int(step) if step.isdigit() else step for step in path.split(".")) for path in written]

    @property
    def codec(self) -> FieldCodec:
        return MICROSECONDS if self.at.unit == "seconds" else self.at.codec

    @property
    def is_list(self) -> bool:
        """Whether the value is a tuple, of any length."""
        return any(get_origin(hint) is tuple for hint in (self.hint, *get_args(self.hint)))

    @property
    def is_map(self) -> bool:
        return get_origin(self.hint) is Mapping

    @property
    def is_parameter(self) -> bool:
        return self.at.pbtxt == PARAMETER


def _rows(kind: Any) -> tuple[Row, ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple(_row(field, hints[field.name]) for field in dataclasses.fields(kind))


rows: Callable[[Any], tuple[Row, ...]] = functools.cache(_rows)
"""The fields of a dataclass of `model_config`, in order."""


def _row(field: dataclasses.Field[Any], hint: Any) -> Row:
    at = At()
    if get_origin(hint) is Annotated:
        hint, at = get_args(hint)
    default = field.default_factory() if field.default_factory is not MISSING else field.default
    return Row(field.name, at, hint, default, _nested(hint))


def _nested(hint: Any) -> type | None:
    """The dataclass in `C`, `C | None`, `tuple[C, ...]` or `Mapping[int, C]`."""
    kinds = [kind for kind in (hint, *get_args(hint)) if isinstance(kind, type) and dataclasses.is_dataclass(kind)]
    return kinds[0] if kinds else None


def along(kind: type | None, place: tuple[Step, ...]) -> Iterator[tuple[Step, Row | None]]:
    """The steps of a place in a dataclass, each with its row if it is a field."""
    for step in place:
        row = next((row for row in rows(kind) if row.name == step), None) if kind is not None else None
        yield step, row
        if row is not None:
            kind = row.nested

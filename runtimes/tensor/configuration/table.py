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
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

MICROSECONDS_PER_SECOND: Final = 1_000_000
DATATYPES: Final = {
    name: f"TYPE_{'STRING' if name == 'BYTES' else name}"
    for name in (
        "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
        "FP16", "FP32", "FP64", "BF16", "BYTES",
    )
}  # fmt: skip


class FieldCodec:
    """Reads and writes the field `name` of a message. `owner` is the configuration that has the value."""

    def read(self, message: Any, name: str) -> Any:
        value = getattr(message, name)
        return tuple(value) if message.DESCRIPTOR.fields_by_name[name].is_repeated else value

    def write(self, message: Any, name: str, value: Any, owner: Any) -> None:
        if isinstance(value, tuple):
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)


class _Microseconds(FieldCodec):
    """Seconds."""

    def read(self, message: Any, name: str) -> float:
        return float(getattr(message, name) / MICROSECONDS_PER_SECOND)

    def write(self, message: Any, name: str, value: float, owner: Any) -> None:
        setattr(message, name, round(value * MICROSECONDS_PER_SECOND))


class Names(FieldCodec):
    """A word for each value of an enum; `other`, which is absent if None, for values without a word."""

    def __init__(self, names: Mapping[str, str], other: str | None = None) -> None:
        self._names = names
        self._words = {name: word for word, name in names.items()}
        self._other = other

    def read(self, message: Any, name: str) -> str | None:
        value = _enum(message, name).values_by_number.get(getattr(message, name))
        return self._other if value is None else self._words.get(value.name, self._other)

    def write(self, message: Any, name: str, value: str, owner: Any) -> None:
        setattr(message, name, _enum(message, name).values_by_name[self._names[value]].number)


class _Kind(Names):
    """An instance group's kind. `auto` is written as the kind that it resolves to."""

    def write(self, message: Any, name: str, value: str, owner: Any) -> None:
        auto = "gpu" if owner.gpus else "cpu"
        super().write(message, name, auto if value == "auto" else value, owner)


class _Choice(FieldCodec):
    """The member of a oneof that is set; `name` is the oneof's."""

    def read(self, message: Any, name: str) -> str | None:
        chosen: str | None = message.WhichOneof(name)
        return chosen

    def write(self, message: Any, name: str, value: str, owner: Any) -> None:
        getattr(message, value).SetInParent()


class _ControlType(Names):
    """A control's datatype. Except for `corrid` it is that of the pair of values that is given."""

    def read(self, message: Any, name: str) -> str | None:
        pairs = (kind for kind, pair in _PAIRS.items() if len(getattr(message, pair)) == 2)
        return next(pairs, None) or super().read(message, name)

    def write(self, message: Any, name: str, value: str, owner: Any) -> None:
        if owner.kind == "corrid":
            super().write(message, name, value, owner)


class _FalseTrue(FieldCodec):
    """A control's pair of values."""

    def read(self, message: Any, name: str) -> tuple[float, ...] | None:
        given = (getattr(message, pair) for pair in _PAIRS.values())
        return next((tuple(float(value) for value in pair) for pair in given if len(pair) == 2), None)

    def write(self, message: Any, name: str, value: tuple[float, float], owner: Any) -> None:
        if owner.kind != "corrid":
            kind = {"INT32": int, "FP32": float, "BOOL": bool}[owner.datatype]
            getattr(message, _PAIRS[owner.datatype]).extend(kind(number) for number in value)


class _WarmupData(FieldCodec):
    """`zero`, `random` or `file:NAME`; `name` is the name of a oneof."""

    def read(self, message: Any, name: str) -> str:
        if message.WhichOneof(name) == "input_data_file":
            return f"file:{message.input_data_file}"
        return "random" if message.random_data else "zero"

    def write(self, message: Any, name: str, value: str, owner: Any) -> None:
        if value.startswith("file:"):
            message.input_data_file = value.removeprefix("file:")
        else:
            setattr(message, f"{value}_data", True)


class _Texts(FieldCodec):
    """A map of texts, each in a separate message."""

    def read(self, message: Any, name: str) -> dict[str, str]:
        return {key: value.string_value for key, value in getattr(message, name).items()}

    def write(self, message: Any, name: str, value: Mapping[str, str], owner: Any) -> None:
        for key, text in value.items():
            getattr(message, name)[key].string_value = text


class _Names(FieldCodec):
    """A map from names to names."""

    def read(self, message: Any, name: str) -> dict[str, str]:
        return dict(sorted(getattr(message, name).items()))

    def write(self, message: Any, name: str, value: Mapping[str, str], owner: Any) -> None:
        for key, text in value.items():
            getattr(message, name)[key] = text


def _enum(message: Any, name: str) -> Any:
    return message.DESCRIPTOR.fields_by_name[name].enum_type


_PAIRS: Final = {"INT32": "int32_false_true", "FP32": "fp32_false_true", "BOOL": "bool_false_true"}
PLAIN: Final = FieldCodec()
MICROSECONDS: Final = _Microseconds()
DATATYPE: Final = Names(DATATYPES, other="")
LAYOUT: Final = Names({"": "FORMAT_NONE", "nhwc": "FORMAT_NHWC", "nchw": "FORMAT_NCHW"})
TIMEOUT_ACTION: Final = Names({"reject": "REJECT", "delay": "DELAY"})
CONTROL_KIND: Final = Names({kind: f"CONTROL_SEQUENCE_{kind.upper()}" for kind in ("start", "ready", "end", "corrid")})
CONTROL_TYPE: Final = _ControlType(DATATYPES, other="")
BATCH_INPUT_KIND: Final = Names(
    {
        kind: f"BATCH_{kind.upper()}"
        for kind in (
            "element_count", "accumulated_element_count", "accumulated_element_count_with_zero",
            "max_element_count_as_shape", "item_shape", "item_shape_flatten",
        )
    }
)  # fmt: skip
BATCH_OUTPUT_KIND: Final = Names({"scatter_with_input_shape": "BATCH_SCATTER_WITH_INPUT_SHAPE"})
GROUP_KIND: Final = _Kind({"gpu": "KIND_GPU", "cpu": "KIND_CPU"})
FALSE_TRUE: Final = _FalseTrue()
WARMUP_DATA: Final = _WarmupData()
CHOICE: Final = _Choice()
TEXTS: Final = _Texts()
NAMES: Final = _Names()


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

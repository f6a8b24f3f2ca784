"""Triton's `ModelConfig` message ↔ the dataclasses of `model_config`, by the table of their fields.

A field is refused if answers would differ without it. A field without an effect causes a warning. The other fields
of each message are rows of `model_config`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import MISSING
from typing import Any, Final, NamedTuple

from config.place import Place
from runtimes.tensor.configuration.complaint import Complaint
from runtimes.tensor.configuration.model_config import (
    EnsembleStep,
    InstanceGroup,
    ModelConfig,
    SequenceState,
    TensorSpec,
)
from runtimes.tensor.configuration.table import PARAMETER, Row, Step, along, rows

_ENGINE = "is written for a TensorRT engine, which this runtime does not serve as a file"


class Unserved(NamedTuple):
    """The reason that a field is not supported."""

    reason: str
    is_refused: bool = False


def _refused(reason: str) -> Unserved:
    return Unserved(reason, is_refused=True)


_NO_EFFECT = Unserved("has no effect here")
UNSERVED: Final[Mapping[type, Mapping[str, Unserved]]] = {
    ModelConfig: {
        "model_operations": _refused("loads libraries into the process, which this runtime does not: leave it out"),
        "model_repository_agents": _refused(
            "are not run by this runtime: leave them out (SHA256SUMS beside the files is checked)"
        ),
        "optimization": Unserved("has no effect here: set the backend's own parameters"),
        "cc_model_filenames": Unserved("has no effect here: default_model_filename is loaded on any GPU"),
        "metric_tags": _NO_EFFECT,
        "model_metrics": Unserved("has no effect here: the buckets are fixed"),
        "runtime": Unserved("has no effect here: the backend chooses"),
    },
    TensorSpec: {"is_shape_tensor": _refused(_ENGINE), "is_non_linear_format_io": _refused(_ENGINE)},
    EnsembleStep: {"model_namespace": Unserved("has no effect here: models of one server have one namespace")},
    InstanceGroup: {
        "passive": _refused("computes nothing: leave the group out"),
        **dict.fromkeys(("rate_limiter", "secondary_devices", "profile", "host_policy"), _NO_EFFECT),
    },
    SequenceState: dict.fromkeys(("use_same_buffer_for_input_output", "use_growable_memory"), _NO_EFFECT),
}


class MessageReader:
    """Reads messages. Places of complaints and warnings are the message's own."""

    def __init__(self) -> None:
        self.complaints: list[Complaint] = []
        self.warnings: list[Complaint] = []

    def read(self, kind: Any, message: Any, place: Place = (), **given: Any) -> Any:
        """A `kind` with the fields of the message and those that are given. It is valid if there is no complaint."""
        present = {descriptor.name for descriptor, _ in message.ListFields()}
        for field, (reason, is_refused) in UNSERVED.get(kind, {}).items():
            if field in present:
                (self.complaints if is_refused else self.warnings).append(Complaint((*place, field), reason))
        fields = {row.name: self._field(row, message, place) for row in rows(kind) if _is_in(row, message)}
        return kind(**fields, **given)

    def _field(self, row: Row, message: Any, place: Place) -> Any:
        for path in row.paths:
            parent = self._parent(path, message, place)
            value = self._value(row, parent, path[-1], (*place, *path)) if parent is not None else None
            if value or not (value is None or row.at.zero_is_default):
                return value
        if row.default is MISSING:
            self._complain((*place, row.paths[0][0]), "is required")
        return row.default

    def _parent(self, path: tuple[Step, ...], message: Any, place: Place) -> Any:
        """The message that has the last step of the path; None if it is absent."""
        for step in path[:-1]:
            if isinstance(step, int):
                if len(message) > 1:
                    self._complain((*place, path[0]), "is given twice: keep one")
                message = message[step] if message else None
            elif message.DESCRIPTOR.fields_by_name[step].is_repeated or message.HasField(step):
                message = getattr(message, step)
            else:
                message = None
            if message is None:
                break
        return message

    def _value(self, row: Row, message: Any, name: Any, place: Place) -> Any:
        if row.nested is None:
            value = row.codec.read(message, name)
            if row.at.required and not value:
                self._complain(place, row.at.required)
            return value
        field = getattr(message, name)
        if row.at.key:
            entries = ((key, {row.at.key: key}) for key in sorted(field))
            return tuple(self.read(row.nested, field[key], (*place, key), **name) for key, name in entries)
        if row.is_map:
            return {key: self.read(row.nested, field[key], (*place, str(key))) for key in sorted(field)}
        if row.is_list:
            return tuple(self.read(row.nested, item, (*place, i)) for i, item in enumerate(field)) or row.default
        return self.read(row.nested, field, place) if message.HasField(name) else None

    def _complain(self, place: Place, message: str) -> None:
        if (complaint := Complaint(place, message)) not in self.complaints:
            self.complaints.append(complaint)


def write(value: Any, message: Any) -> None:
    """Fill the message with a dataclass of `model_config`."""
    for row in rows(type(value)):
        if _is_in(row, message):
            _write_field(row, value, message)


def _write_field(row: Row, owner: Any, message: Any) -> None:
    value = getattr(owner, row.name)
    path = next((path for path in row.paths if _may_write(path, message)), None)
    if path is None or value is None or (value == row.default and _is_omitted(row, path, message)):
        return
    *parents, name = path
    for step in parents:
        message = (message[step] if message else message.add()) if isinstance(step, int) else getattr(message, step)
    if row.nested is None:
        row.codec.write(message, str(name), value, owner)
        return
    field = getattr(message, str(name))
    if row.at.key:
        for item in value:
            write(item, field[getattr(item, row.at.key)])
    elif row.is_map:
        for key, item in value.items():
            write(item, field[key])
    elif row.is_list:
        for item in value:
            write(item, field.add())
    else:
        field.SetInParent()
        write(value, field)


def _may_write(path: tuple[Step, ...], message: Any) -> bool:
    """Whether the path is in the chosen member of a oneof, or in none."""
    oneof = _oneof(path, message)
    return oneof is None or message.WhichOneof(oneof) == path[0]


def _is_omitted(row: Row, path: tuple[Step, ...], message: Any) -> bool:
    """Whether the field is left out if it has its default: it is a message of its own, or in one."""
    is_message = row.nested is not None and not row.is_list
    return not row.at.always and (is_message or (len(path) > 1 and _oneof(path, message) is None))


def _oneof(path: tuple[Step, ...], message: Any) -> str | None:
    """The oneof of the message that the path goes through."""
    if len(path) == 1:
        return None
    oneof = message.DESCRIPTOR.fields_by_name[path[0]].containing_oneof
    return None if oneof is None else str(oneof.name)


def _is_in(row: Row, message: Any) -> bool:
    """Whether this kind of message has the field."""
    descriptor = message.DESCRIPTOR
    tables = descriptor.fields_by_name, descriptor.oneofs_by_name
    return not row.is_parameter and any(path[0] in names for path in row.paths for names in tables)


def written_place(place: Place, lines: Container[Place]) -> Place:
    """A place of `ModelConfig` as a place of the message. `lines` has the places that the file has."""
    written: Place = ()
    for step, row in along(ModelConfig, place):
        if row is None or not row.paths:
            written = (*written, step)
        elif row.is_parameter:
            written = (PARAMETER,)
        else:
            paths = [(*written, *path) for path in row.paths]
            written = next((path for path in paths if path in lines), paths[0])
    return written

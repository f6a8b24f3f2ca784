"""Settings of traces, for the server and for single models (Triton's trace extension)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from adapters.errors import CallerError
from adapters.wire.decoding import whole_number

LEVELS = ("OFF", "TIMESTAMPS", "TENSORS")
FIELDS = ("trace_file", "trace_level", "trace_rate", "trace_count", "log_frequency", "trace_mode")
_LIMIT = 2**31


@dataclass(frozen=True, slots=True)
class Traced:
    """Every `rate`-th request, `count` of them (-1: all); a file for every `frequency` traces (0: one at the end)."""

    timestamps: bool = False
    tensors: bool = False
    rate: int = 1000
    count: int = -1
    frequency: int = 0

    @property
    def on(self) -> bool:
        return (self.timestamps or self.tensors) and self.rate > 0 and self.count != 0


class TraceSettings:
    """The trace settings. Only the operator sets `file`; without a file clients cannot enable traces."""

    def __init__(self, file: str = "") -> None:
        self.file = file
        self._server: dict[str, Any] = {}
        self._models: dict[str, dict[str, Any]] = {}
        self.any = False
        """Whether any request is traced."""

    def of(self, model: str) -> Traced:
        """The settings of a model."""
        return _traced({**self._server, **self._models.get(model, {})})

    def scope(self, model: str) -> str:
        """The names whose requests the model counts together: its own, or the server's, which is ""."""
        return model if model in self._models else ""

    def report(self, model: str = "") -> dict[str, Any]:
        """The settings of the server or of a model in Triton's form: numbers as strings."""
        changed = {**self._server, **self._models.get(model, {})}
        traced = _traced(changed)
        levels = [name for name, on in (("TIMESTAMPS", traced.timestamps), ("TENSORS", traced.tensors)) if on]
        return {
            "trace_file": self.file,
            "trace_level": levels or ["OFF"],
            "trace_rate": str(traced.rate),
            "trace_count": str(traced.count),
            "log_frequency": str(traced.frequency),
            "trace_mode": "triton",
        }

    def update(self, changes: Mapping[str, Any], model: str = "") -> dict[str, Any]:
        """Change all given settings, or none. None resets a setting to the server's, or to the default. Raises
        `CallerError`."""
        read = {name: _read(name, value) for name, value in changes.items()}
        if "trace_level" in read and read["trace_level"] and not self.file:
            raise CallerError("Traces have no file: the operator can set it with --trace-file.", param="trace_level")
        current = self._models.get(model, {}) if model else self._server
        settings = {name: value for name, value in {**current, **read}.items() if value is not None}
        if model and settings:
            self._models[model] = settings
        elif model:
            self._models.pop(model, None)
        else:
            self._server = settings
        self.any = any(_traced({**self._server, **one}).on for one in ({}, *self._models.values()))
        return self.report(model)


def _traced(changed: Mapping[str, Any]) -> Traced:
    levels = changed.get("trace_level", ())
    return replace(
        Traced("TIMESTAMPS" in levels, "TENSORS" in levels),
        rate=changed.get("trace_rate", 1000),
        count=changed.get("trace_count", -1),
        frequency=changed.get("log_frequency", 0),
    )


def _read(name: str, value: Any) -> Any:
    if name not in FIELDS:
        raise CallerError(f"There is no trace setting `{name[:64]}`: expected {', '.join(FIELDS)}.", param=name)
    if name == "trace_file":
        raise CallerError("Only the operator can set the traces' file.", param=name)
    # gRPC sends lists: one value for a scalar, and none to reset it.
    if value is None or value == []:
        return None
    if name == "trace_level":
        levels = [value] if isinstance(value, str) else value
        if not isinstance(levels, list) or not all(level in LEVELS for level in levels):
            raise CallerError(f"`trace_level` is a list of {', '.join(LEVELS)}.", param=name)
        return tuple(level for level in levels if level != "OFF")
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if name == "trace_mode":
        if value != "triton":
            raise CallerError("The only `trace_mode` is triton.", param=name)
        return value
    return _number(name, value, -1 if name == "trace_count" else 0)


def _number(name: str, value: Any, least: int) -> int:
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    number = whole_number(text.removeprefix("-"), most=_LIMIT - 1)
    if number is None or (number := -number if text.startswith("-") else number) < least:
        raise CallerError(f"`{name}` is a number of {least} or more.", param=name)
    return number

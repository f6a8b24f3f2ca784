"""Traces of single requests with timestamps, in Triton's JSON, and the settings that select them.

Traces are buffered in memory and written by a thread: no request waits for the disk.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from adapters.errors import CallerError
from adapters.tensors import Inference, Inferred, Tensor
from adapters.wire.decoding import whole_number
from adapters.wire.oip import json_data as oip_data
from runtimes.tensor.scheduling.clock import clock

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


MAX_BUFFERED = 10_000
MAX_ELEMENTS = 1_000
"""Elements of one tensor; a trace of a larger tensor has its shape and datatype only."""
log = logging.getLogger(__name__)


class RequestTrace:
    """One request. Times are the loop's, in seconds; they are written in nanoseconds of the system's clock."""

    __slots__ = ("entries", "id", "last", "traced")

    def __init__(
        self, id_: int, traced: Traced, inference: Inference, version: str, *, last: bool, parent: int = 0
    ) -> None:
        """`parent` is the trace of the ensemble that the request is a step of; 0 for none."""
        self.id = id_
        self.last = last
        self.traced = traced
        head: dict[str, Any] = {"id": id_, "model_name": inference.model_name, "model_version": int(version)}
        if inference.id:
            head["request_id"] = inference.id
        if parent:
            head["parent_id"] = parent
        self.entries: list[dict[str, Any]] = [head]
        if traced.tensors:
            self._tensors("TENSOR_QUEUE_INPUT", inference.inputs)

    def times(self, **moments: float) -> None:
        """Times by their event, in order."""
        if self.traced.timestamps:
            offset = time.time() - clock(asyncio.get_running_loop())()
            stamps = [{"name": name, "ns": round((at + offset) * 1e9)} for name, at in moments.items()]
            self.entries.append({"id": self.id, "timestamps": stamps})

    def answered(self, inferred: Inferred) -> None:
        if self.traced.tensors:
            self._tensors("TENSOR_BACKEND_OUTPUT", inferred.outputs)

    def _tensors(self, activity: str, tensors: Iterable[Tensor]) -> None:
        self.entries += [{"id": self.id, "activity": activity, "tensor": _tensor(tensor)} for tensor in tensors]


_parent: ContextVar[RequestTrace | None] = ContextVar("parent_trace", default=None)


@contextmanager
def parent_of_steps(trace: RequestTrace | None) -> Iterator[None]:
    """Mark the requests of tasks that begin here as steps of this trace's request."""
    token = _parent.set(trace)
    try:
        yield
    finally:
        _parent.reset(token)


class Tracer:
    """Selects requests, and writes their traces."""

    def __init__(self, settings: TraceSettings) -> None:
        self.settings = settings
        self._seen: dict[str, int] = {}
        self._left: dict[str, int] = {}
        self._ids = 0
        self._files = 0
        self._buffer: list[RequestTrace] = []
        self._writing: set[asyncio.Task[None]] = set()

    def update(self, changes: Mapping[str, Any], model: str = "") -> dict[str, Any]:
        """See `TraceSettings.update`. Earlier traces are written; counts restart."""
        entry = self.settings.update(changes, model)
        self._seen.clear()
        self._left.clear()
        self._write()
        return entry

    def begin(self, inference: Inference, version: str) -> RequestTrace | None:
        """The trace of a request if it is traced, else None. Only called while `settings.any`.

        Steps of a traced ensemble are traced with it, as in Triton.
        """
        if (parent := _parent.get()) is not None:
            self._ids += 1
            return RequestTrace(self._ids, parent.traced, inference, version, last=False, parent=parent.id)
        traced = self.settings.of(inference.model_name)
        if not traced.on:
            return None
        scope = self.settings.scope(inference.model_name)
        seen = self._seen[scope] = self._seen.get(scope, 0) + 1
        left = self._left.get(scope, traced.count)
        if seen % traced.rate or left == 0:
            return None
        self._left[scope] = left - 1 if left > 0 else left
        self._ids += 1
        return RequestTrace(self._ids, traced, inference, version, last=left == 1)

    def end(self, trace: RequestTrace) -> None:
        """Record the end of a request, in success or failure."""
        self._buffer.append(trace)
        frequency = trace.traced.frequency
        if len(self._buffer) >= min(frequency or MAX_BUFFERED, MAX_BUFFERED):
            self._write(indexed=True)
        elif trace.last:
            self._write()

    def _write(self, *, indexed: bool = False) -> None:
        traces, self._buffer = self._buffer, []
        if not traces:
            return
        path = Path(f"{self.settings.file}.{self._files}" if indexed or self._files else self.settings.file)
        self._files += 1
        task = asyncio.get_running_loop().create_task(asyncio.to_thread(_write, path, traces))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def aclose(self) -> None:
        """Write all traces, and stop the thread."""
        self._write()
        if self._writing:
            await asyncio.wait(self._writing)


def _write(path: Path, traces: list[RequestTrace]) -> None:
    try:
        path.write_text(json.dumps([entry for trace in traces for entry in trace.entries]))
    except OSError as error:
        log.error("traces cannot be written to %s: %s", path, error.strerror)


def _tensor(tensor: Tensor) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": tensor.name, "dtype": tensor.datatype, "shape": ",".join(map(str, tensor.shape))}
    size = len(tensor.data)
    if size <= MAX_ELEMENTS and tensor.datatype not in ("BF16", "BYTES"):
        entry["data"] = ",".join(map(str, oip_data.written(tensor)))
    return entry

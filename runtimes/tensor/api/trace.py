"""Traces of single requests with timestamps, in Triton's JSON.

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
from pathlib import Path
from typing import Any

from adapters.tensors import Inference, Inferred, Tensor
from adapters.wire.oip import json_data as oip_data
from runtimes.tensor.api.trace_settings import Traced, TraceSettings
from runtimes.tensor.scheduling.clock import clock

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

"""The windows of a model whose drift is followed.

A request costs the loop one entry of a list. Entries are counted in a thread, many at a time: their data is joined, so
that numpy sees few large arrays. A window ends with its last row or at its age, and its figures stay for the metrics.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from adapters.errors import CallerError
from adapters.tensors import ITEM_SIZE, Data, Tensor, split_bytes
from runtimes.tensor.configuration.model_config import Drift
from runtimes.tensor.datatypes import DTYPES, bf16_to_fp32
from runtimes.tensor.drift.plans import FeaturePlan, TensorPlan
from runtimes.tensor.drift.sketches import Numbers
from runtimes.tensor.drift.statistics import Counts

DELAY: Final = 1.0
"""Seconds until entries are counted."""
MAX_ENTRIES: Final = 1024
"""Entries that are counted at once, without that delay. Four times as many wait at most."""
MAX_BYTES: Final = 16 << 20
"""Bytes of the tensors that wait."""
LEAST_ROWS: Final = 500
"""A window with fewer rows does not end at its age: its figures would be chance."""
log = logging.getLogger(__name__)
Entry = tuple[Sequence[Tensor], Sequence[Tensor]]


class FeatureDrift(NamedTuple):
    """The figures of one feature in the last window. `ks` is None for labels, `shares` is empty for numbers."""

    name: str
    psi: float
    ks: float | None
    shares: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class DriftReport:
    """The last window that ended, at `ended` of the clock."""

    rows: int
    ended: float
    features: Sequence[FeatureDrift]


class DriftMonitor:
    """Belongs to the loop that created it."""

    def __init__(self, plans: Sequence[TensorPlan], settings: Drift, clock: Callable[[], float]) -> None:
        self._plans = plans
        self._settings = settings
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._entries: list[Entry] = []
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._counting: asyncio.Task[None] | None = None
        self._counts: list[list[Counts]] = []
        self._window_rows = 0
        self._began = 0.0
        self._report: DriftReport | None = None
        self.rows = 0
        """Rows that were counted."""
        self.skipped = 0
        """Requests that were not counted: too large, or more than can be counted."""
        self._clear()

    def observe(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        """Note a request that was answered. It never raises, and never waits."""
        size = 0
        for tensor in inputs:
            size += len(tensor.data)
        for tensor in outputs:
            size += len(tensor.data)
        if self._bytes + size > MAX_BYTES or len(self._entries) >= 4 * MAX_ENTRIES:
            self.skipped += 1
        else:
            self._entries.append((inputs, outputs))
            self._bytes += size
        if self._timer is None:
            self._timer = self._loop.call_later(DELAY, self._due)
        elif len(self._entries) == MAX_ENTRIES or self._bytes > MAX_BYTES // 2:
            self._start()

    @property
    def report(self) -> DriftReport | None:
        """The last window; None before the first, and if none has ended for twice the age of a window."""
        report = self._report
        if report is None or self._clock() - report.ended > 2 * self._settings.max_age:
            return None
        return report

    async def aclose(self) -> None:
        """Forget the entries that wait."""
        if self._timer is not None:
            self._timer.cancel()
        self._entries, self._bytes = [], 0
        if self._counting is not None:
            await asyncio.wait((self._counting,))

    def _due(self) -> None:
        self._timer = None
        self._start()

    def _start(self) -> None:
        if self._entries and (self._counting is None or self._counting.done()):
            self._counting = self._loop.create_task(self._run())

    async def _run(self) -> None:
        await self._count()
        while len(self._entries) >= MAX_ENTRIES:
            await self._count()
        if self._entries and self._timer is None:
            self._timer = self._loop.call_later(DELAY, self._due)

    async def _count(self) -> None:
        """Count the entries that wait, and end the window if that is due."""
        entries, self._entries, self._bytes = self._entries, [], 0
        try:
            rows = await asyncio.to_thread(self._add, entries)
        except Exception:
            log.exception("requests could not be compared with the reference of drift")
            self.skipped += len(entries)
            rows = 0
        self.rows += rows
        self._window_rows += rows
        now = self._clock()
        old = now - self._began >= self._settings.max_age and self._window_rows >= min(LEAST_ROWS, self._settings.rows)
        if self._window_rows >= self._settings.rows or old:
            self._report = DriftReport(self._window_rows, now, await asyncio.to_thread(self._figures))
            self._clear()

    def _clear(self) -> None:
        self._counts = [[np.zeros(f.sketch.bins, np.int64) for f in plan.features] for plan in self._plans]
        self._window_rows = 0
        self._began = self._clock()

    # ── in a thread, one call at a time ───────────────────────────────────────────────────────────────

    def _add(self, entries: Sequence[Entry]) -> int:
        """Count entries. Returns the rows: the most of any tensor."""
        most = 0
        for plan, counts in zip(self._plans, self._counts, strict=True):
            side = 0 if plan.is_input else 1
            rows = _rows(plan, (tensor for entry in entries for tensor in entry[side] if tensor.name == plan.name))
            for feature, counted in zip(plan.features, counts, strict=True):
                counted += feature.sketch.count(_values(rows, feature, plan.width))
            most = max(most, len(rows) // plan.width if isinstance(rows, list) else len(rows))
        return most

    def _figures(self) -> list[FeatureDrift]:
        figures = []
        for plan, each in zip(self._plans, self._counts, strict=True):
            for (name, _, sketch), counts in zip(plan.features, each, strict=True):
                shares = {} if plan.is_input else sketch.shares(counts)
                figures.append(FeatureDrift(name, sketch.psi(counts), sketch.ks(counts), shares))
        return figures


def _rows(plan: TensorPlan, tensors: Iterable[Tensor]) -> Any:
    """All rows of a tensor: an array of rows and elements, or the list of all elements of BYTES. Tensors that do not
    fit the plan are left out."""
    fitting = [tensor for tensor in tensors if _fits(plan, tensor)]
    if plan.datatype == "BYTES":
        return [element for tensor in fitting for element in _texts(tensor)]
    joined: Data = b"".join([tensor.data for tensor in fitting])
    array = np.frombuffer(joined, DTYPES[plan.datatype])
    if plan.datatype == "BF16":
        array = bf16_to_fp32(array)
    return array.reshape(-1, plan.width)


def _values(rows: Any, feature: FeaturePlan, width: int) -> Any:
    if isinstance(rows, list):
        return rows[feature.place :: width]
    values = rows[:, feature.place]
    return values.astype(np.float64) if isinstance(feature.sketch, Numbers) else values


def _fits(plan: TensorPlan, tensor: Tensor) -> bool:
    shape, width = tensor.shape, plan.width
    is_row = width == 1 or width in (shape[-1:] and shape[-1], prod(shape[1:]), prod(shape))
    if tensor.datatype != plan.datatype or not is_row or prod(shape) % width:
        return False
    return plan.datatype == "BYTES" or len(tensor.data) == prod(shape) * ITEM_SIZE[plan.datatype]


def _texts(tensor: Tensor) -> list[bytes]:
    try:
        return split_bytes(tensor.data, prod(tensor.shape), tensor.name)
    except CallerError:
        return []

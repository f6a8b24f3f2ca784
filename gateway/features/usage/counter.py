"""Counts the ended requests of one process."""

import logging
from pathlib import Path
from uuid import uuid4

from gateway.features.usage.files import CounterFile, FileFull
from gateway.features.usage.labels import OTHERS, UsageLabels, hour_of
from gateway.state.private_folder import make_private
from gateway.telemetry.record import Record

log = logging.getLogger(__name__)
LARGEST = 2**62
"""Picos of one slot, whose counters have 63 bits."""
_FAILURES = frozenset({"backend", "transport", "deadline"})


class UsageCounter:
    """`count` each ended request, then `close`. A full disk loses usage, which `lost` counts, and no request."""

    def __init__(self, folder: Path, process: str | None = None) -> None:
        self.folder = folder
        self._process = process or uuid4().hex
        self.currency = ""
        """The currency of requests without a cost, such as failed ones."""
        self.lost = 0
        """Requests that were not counted."""
        self._file: CounterFile | None = None
        self._hour = -1
        self._slots: dict[UsageLabels, memoryview[int]] = {}

    def count(self, record: Record) -> None:
        """Count a request. A request without a tenant or a model is not usage: a list of models, a wrong key."""
        if not record.tenant or not record.model:
            return
        try:
            counters = self._counters(record)
        except OSError as problem:
            if not self.lost:
                log.warning("usage: %s: requests are not counted: %s", self.folder, problem.strerror or problem)
            self.lost += 1
            return
        record.counted = True
        cost, usage, error = record.cost, record.usage, record.error
        if cost is not None:
            if counters[0] + cost.picos > LARGEST:
                counters = self._carry(record, cost.picos)
            else:
                counters[0] += cost.picos
        counters[1] += 1
        if error is not None and error.kind in _FAILURES:
            counters[2] += 1
        if usage is not None:
            counters[3] += usage.prompt_tokens
            counters[4] += usage.completion_tokens
            counters[5] += usage.rows
            counters[6] += usage.bytes
            counters[7] += int(usage.device_ms * 1000)

    def close(self) -> None:
        """Leave the file to the writer."""
        self._slots.clear()
        if self._file is not None:
            self._file.close()
            self._file, self._hour = None, -1

    def _counters(self, record: Record) -> "memoryview[int]":
        # A clock that jumps back begins another file of an hour that has one already: both are summed.
        if (hour := hour_of(record.time)) != self._hour:
            self.close()
            make_private(self.folder)
            self._file, self._hour = CounterFile(self.folder, hour, self._process), hour
        currency = self.currency if record.cost is None else record.cost.currency
        labels = UsageLabels(record.tenant, record.key, record.model, record.arm or "", currency, record.team)
        counters = self._slots.get(labels)
        if counters is None:
            counters = self._slots[labels] = self._slot(labels)
        return counters

    def _carry(self, record: Record, picos: int) -> "memoryview[int]":
        """Add money beyond the range of a slot: further slots with the same labels have the rest. Returns the last."""
        counters = self._counters(record)
        while (room := LARGEST - counters[0]) < picos:
            counters[0], picos = LARGEST, picos - room
            labels = next(labels for labels, slot in self._slots.items() if slot is counters)
            assert self._file is not None
            counters = self._slots[labels] = self._file.add_slot(labels, is_summary=True)
        counters[0] += picos
        return counters

    def _slot(self, labels: UsageLabels) -> "memoryview[int]":
        assert self._file is not None
        try:
            return self._file.add_slot(labels)
        except FileFull:
            # Few of these: tenants, models and currencies are those of the configuration.
            others = labels._replace(key=OTHERS, arm="")
            if (counters := self._slots.get(others)) is None:
                counters = self._slots[others] = self._file.add_slot(others, is_summary=True)
            return counters

"""The results of a shard: collected in memory, and made durable together with their charges."""

import asyncio
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from gateway.features.batches.records import Charges, LineResult, encode_result
from gateway.features.batches.recovery import add_result, usage_rows
from gateway.features.batches.rows import log_object
from gateway.features.usage.store import write_hours

if TYPE_CHECKING:
    from gateway.features.batches.work import Unit

LOOK = 0.1
MOST_BYTES = 4 * 1024 * 1024
"""Bytes of results that are written at once, earlier than `commit`."""


class ResultLog:
    """The log of one holder of a shard."""

    def __init__(self, unit: "Unit") -> None:
        self._unit = unit
        self._charges = Charges()
        self._pending: list[LineResult] = []
        self._bytes = 0
        self._numbers = set[int]()
        self._committing = asyncio.Lock()
        self.finishing = False
        """Whether no further result comes: `commit_often` writes the last ones and returns."""

    @property
    def is_full(self) -> bool:
        """Whether so much waits to be written that no further line should begin."""
        return self._bytes >= 4 * MOST_BYTES

    def has(self, number: int) -> bool:
        """Whether a line has a result of this holder."""
        return number in self._numbers

    def add(self, result: LineResult) -> None:
        """Add the result of a line. Only the first one counts."""
        if result.number not in self._numbers:
            self._numbers.add(result.number)
            self._pending.append(result)
            self._bytes += len(result.output)

    async def commit_often(self) -> None:
        """Commit at the configured interval, or earlier if much waits."""
        waited, seconds = 0.0, self._unit.parts.commit_seconds
        while not self.finishing:
            look = min(1.0 if self._unit.parked else LOOK, seconds)
            await asyncio.sleep(look)
            waited += look
            if waited >= seconds or self._bytes >= MOST_BYTES:
                waited = 0.0
                await self.commit()
        await self.commit()

    async def commit(self) -> None:
        """Make the pending results durable: first the log, then the transaction that names its size."""
        async with self._committing:
            if self._pending:
                await self._write()

    async def _write(self) -> None:
        unit, pending, self._pending = self._unit, self._pending, []
        self._bytes = 0
        counts, part = unit.claim.counts, unit.claim.counts.logs[-1]
        name = log_object(unit.claim.spec.id, unit.claim.number, part.token)
        data = b"".join(map(encode_result, pending))
        await unit.parts.insist(unit.name, unit.parts.storage.append, name, part.size, data)
        part.size += len(data)
        for result in pending:
            add_result(counts, result)
            self._charges.add(result)
        rows = usage_rows(unit.claim, part.token, self._charges)
        await unit.save(lambda connection: self.write_usage(connection, rows))

    def write_usage(self, connection: Connection, rows: list[dict[str, Any]]) -> None:
        """Write rows of usage, if usage is recorded."""
        if rows and self._unit.parts.counts_usage():
            write_hours(connection, rows)

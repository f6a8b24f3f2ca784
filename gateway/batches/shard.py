"""Runs the lines of one shard, and logs each result once.

A result exists when its record is in the durable part of the log, which the database names together with the charge.
After a crash the next holder reads the log, cuts its torn end, and runs the lines without a record.
"""

import asyncio
import time
from typing import Any

from sqlalchemy import Connection

from adapters import offload
from gateway.auth.keys import Principal
from gateway.batches import outputs
from gateway.batches.calls import LineEnd, model_of
from gateway.batches.gate import Rank
from gateway.batches.records import Charges, LineResult, encode_result
from gateway.batches.recovery import add_result, recover, usage_rows
from gateway.batches.rows import file_object, log_object, order_object
from gateway.batches.storage import NoObject
from gateway.batches.store import change_progress
from gateway.batches.tasks import FINISH, Claim, add_task, open_shards
from gateway.batches.work import Unit, WorkParts
from gateway.usage.store import write_hours
from policies.batches.attempts import retry_of
from policies.batches.lines import TOO_LONG, BatchLine, decode_line
from policies.batches.order import LineEntry, entries_of, shard_range
from policies.batches.states import BatchProgress

LOOK = 0.1
MOST_BYTES = 4 * 1024 * 1024
"""Bytes of results that are written at once, earlier than `commit`."""
GRACE = 10.0
"""Seconds in which lines in flight may end after a cancellation or the end of the window."""


class ShardRun(Unit):
    """One shard. `run` returns when all lines have a result, or none may begin any more."""

    def __init__(self, claim: Claim, parts: WorkParts) -> None:
        super().__init__(claim, parts)
        self._principal: Principal = claim.spec.holder.principal()
        self._rank: Rank = (claim.spec.expires_at, claim.spec.id, claim.number)
        self._charges = Charges()
        self._pending: list[LineResult] = []
        self._pending_bytes = 0
        self._running: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        self._finishing = False

    async def run(self) -> None:
        entries = await self._remaining()
        committing = asyncio.create_task(self._commit_often())
        try:
            await self._begin_lines(entries, committing)
            await self._end_lines(committing)
            self._finishing = True
            await committing
        finally:
            committing.cancel()
            await self._cancel_lines()
            await asyncio.gather(committing, return_exceptions=True)
        if not self.closing:
            await self.save(self._after_shard, done=True)

    async def _remaining(self) -> list[LineEntry]:
        """The lines without a result."""
        parts, spec = self.parts, self.claim.spec
        start, length = shard_range(self.claim.number)
        packed = await parts.insist(self.name, parts.storage.read, order_object(spec.id), start, length)
        recovered = await parts.insist(self.name, recover, parts.storage, self.claim)
        await self.save(lambda connection: self._write_usage(connection, recovered.rows))
        return [entry for entry in entries_of(packed) if entry.number not in recovered.ended]

    # ── lines ─────────────────────────────────────────────────────────────────────────────────────────

    async def _begin_lines(self, entries: list[LineEntry], committing: "asyncio.Task[None]") -> None:
        for entry in entries:
            while len(self._running) >= self.parts.most_running or self._pending_bytes >= 4 * MOST_BYTES:
                if committing.done() or self.stops:
                    return
                await self._look()
            if self.stops or committing.done():
                return
            task = asyncio.create_task(self._line(entry))
            self._running.add(task)
            task.add_done_callback(self._line_ended)

    async def _end_lines(self, committing: "asyncio.Task[None]") -> None:
        """Wait for the lines in flight. A batch that stops waits for them for a bounded time."""
        stopped_at: float | None = None
        while self._running and not committing.done():
            if self.stops:
                stopped_at = stopped_at or time.monotonic()
                if self.hurries or time.monotonic() - stopped_at > GRACE:
                    await self._cancel_lines()
                    return
            await self._look()

    async def _cancel_lines(self) -> None:
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _line_ended(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        self._ended.set()

    async def _look(self) -> None:
        self._ended.clear()
        await asyncio.wait([asyncio.ensure_future(self._ended.wait())], timeout=LOOK)

    async def _line(self, entry: LineEntry) -> None:
        line, problem = await self._read(entry)
        if line is None:
            self._add(LineResult(entry.number, False, problem))
            return
        end = await self._answered(line)
        if end is None:
            return  # the batch stops: the line has no result
        output = outputs.answered(self.claim.spec.api, line.custom_id, end.status, end.request_id, end.body)
        charge = end.charge
        amounts = tuple(charge.amounts)
        self._add(LineResult(entry.number, end.status < 400, output, charge.labels, charge.hour, amounts))

    async def _read(self, entry: LineEntry) -> tuple[BatchLine | None, bytes]:
        """The line, or the output of a line that cannot be sent."""
        if entry.length == TOO_LONG or entry.length > self.parts.max_line:
            message = f"it is longer than {self.parts.max_line} bytes."
            return None, outputs.unreadable(None, entry.number, "line_too_long", message)
        name, read = file_object(self.claim.spec.input_file), self.parts.storage.read
        try:
            raw = await self.parts.insist(self.name, read, name, entry.offset, entry.length)
        except NoObject:
            message = "the input file was deleted."
            return None, outputs.unreadable(None, entry.number, "input_file_not_found", message)
        line = await offload.scan(len(raw), decode_line, raw)
        if line is None:
            return None, outputs.unreadable(None, entry.number, "invalid_json_line", "it is not a JSON object.")
        return line, b""

    async def _answered(self, line: BatchLine) -> LineEnd | None:
        """The last attempt of a line; None if the batch stops before it ends."""
        failures, body = 0, bytes(line.body)
        model = await offload.scan(len(body), model_of, line.url, body)
        while not self.stops:
            end = await self._attempt(line.url, body, model)
            if end is None or end.error is None:
                return end
            left = self.claim.spec.expires_at - self.parts.wall()
            retry = retry_of(end.error.kind, end.error.retry_after, failures, left)
            if retry is None:
                return end
            failures += retry.counts
            await asyncio.sleep(retry.pause)
        return None

    async def _attempt(self, url: str, body: bytes, model: str | None) -> LineEnd | None:
        gate = self.parts.gate
        lane, end = await gate.enter(model, self._rank), None
        try:
            if not self.stops:
                end = await self.parts.calls.call(self._principal, url, body)
        finally:
            gate.leave(lane, None if end is None else end.error)
        return end

    # ── the log ───────────────────────────────────────────────────────────────────────────────────────

    def _add(self, result: LineResult) -> None:
        self._pending.append(result)
        self._pending_bytes += len(result.output)

    async def _commit_often(self) -> None:
        waited = 0.0
        while not self._finishing:
            await asyncio.sleep(min(LOOK, self.parts.commit_seconds))
            waited += LOOK
            if waited >= self.parts.commit_seconds or self._pending_bytes >= MOST_BYTES:
                waited = 0.0
                await self._commit()
        await self._commit()

    async def _commit(self) -> None:
        """Make the pending results durable: first the log, then the transaction that names its size."""
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        self._pending_bytes = 0
        counts, part = self.claim.counts, self.claim.counts.logs[-1]
        name = log_object(self.claim.spec.id, self.claim.number, part.token)
        data = b"".join(map(encode_result, pending))
        await self.parts.insist(self.name, self.parts.storage.append, name, part.size, data)
        part.size += len(data)
        for result in pending:
            add_result(counts, result)
            self._charges.add(result)
        rows = usage_rows(self.claim, part.token, self._charges)
        await self.save(lambda connection: self._write_usage(connection, rows))

    def _write_usage(self, connection: Connection, rows: list[dict[str, Any]]) -> None:
        if rows and self.parts.counts_usage():
            write_hours(connection, rows)

    def _after_shard(self, connection: Connection) -> None:
        """The last shard lets the output be written."""
        spec, now = self.claim.spec, self.parts.wall()
        if open_shards(connection, spec.id):
            return

        def finalizing(progress: BatchProgress) -> None:
            if progress.status == "in_progress":
                progress.move("finalizing", now)

        change_progress(connection, spec.id, finalizing)
        add_task(connection, spec, FINISH)

"""The results of a shard: collected in memory, and made durable in a log together with their charges.

Each line has one record with its output, which is a line of the output file or of the error file, and its charge.

log    = records, in the order in which the lines ended
record = length, checksum (CRC-32 of the rest), then a msgpack array
"""

import asyncio
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from sqlalchemy import Connection

from gateway.features.batches.rows import log_object
from gateway.features.batches.storage import Storage, StorageError
from gateway.features.batches.tasks import Claim
from gateway.features.usage.labels import UsageLabels, UsageRow
from gateway.features.usage.rows import hour_values
from gateway.features.usage.store import write_hours
from gateway.state.journal import framed, frames
from policies.batches.states import LogPart, ShardCounts

if TYPE_CHECKING:
    from gateway.features.batches.work import Unit
from msgspec import Raw

from gateway.features.batches.rows import Api, new_id

_encode_json = msgspec.json.Encoder().encode
_UNFINISHED = {
    "batch_expired": "The batch expired before this request ran.",
    "batch_cancelled": "The batch was cancelled before this request ran.",
}
_ANTHROPIC = {"batch_expired": "expired", "batch_cancelled": "canceled"}
MAX_RECORD = 1 << 30
_encode = msgspec.msgpack.Encoder().encode
LOOK = 0.1
MOST_BYTES = 4 * 1024 * 1024
"""Bytes of results that are written at once, earlier than `commit`."""


def answered_line(api: Api, custom_id: str, status: int, request_id: str, body: Raw) -> bytes:
    """The line of a request that has a response, also that of a failure."""
    if api == "anthropic":
        result = {"type": "succeeded", "message": body} if status < 400 else {"type": "errored", "error": body}
        return _encode_json({"custom_id": custom_id, "result": result})
    response = {"status_code": status, "request_id": request_id, "body": body}
    return _encode_json({"id": new_id("batch_req_"), "custom_id": custom_id, "response": response, "error": None})


def unreadable_line(custom_id: str | None, number: int, code: str, message: str) -> bytes:
    """The line of a request that cannot be sent. Only OpenAI's batches have such lines."""
    error = {"code": code, "message": f"Line {number}: {message}", "line": number}
    return _encode_json({"id": new_id("batch_req_"), "custom_id": custom_id, "response": None, "error": error})


def unfinished_line(api: Api, custom_id: Any, code: str) -> bytes:
    """The line of a request without a result."""
    if api == "anthropic":
        return _encode_json({"custom_id": custom_id, "result": {"type": _ANTHROPIC[code]}})
    error = {"code": code, "message": _UNFINISHED[code]}
    return _encode_json({"id": new_id("batch_req_"), "custom_id": custom_id, "response": None, "error": error})


class LineResult(msgspec.Struct, array_like=True, frozen=True):
    """The result of one line. `output` is the line of the output file or the error file, without its end."""

    number: int
    succeeded: bool
    output: bytes
    labels: UsageLabels | None = None
    """The labels of the charge; None for a line that costs nothing and used nothing."""
    hour: int = 0
    amounts: tuple[int, ...] = ()
    """In the order of `gateway.features.usage.labels.COUNTERS`."""

    @property
    def prompt_tokens(self) -> int:
        return self.amounts[3] if self.amounts else 0

    @property
    def completion_tokens(self) -> int:
        return self.amounts[4] if self.amounts else 0


_decode = msgspec.msgpack.Decoder(LineResult).decode


class ReadLog(NamedTuple):
    """The whole records of a log, and their size in bytes."""

    results: list[LineResult]
    size: int


def encode_result(result: LineResult) -> bytes:
    """One record."""
    return framed(_encode(result))


def read_log(data: bytes) -> ReadLog:
    """Read records up to the first one that is torn or damaged."""
    results, size = list[LineResult](), 0
    for end, payload in frames(BytesIO(data), len(data)):
        try:
            results.append(_decode(payload))
        except msgspec.DecodeError:
            break
        size = end
    return ReadLog(results, size)


class Charges:
    """The charges of one log, as rows of usage. The same log always has the same rows."""

    def __init__(self) -> None:
        self._slots: dict[tuple[UsageLabels, int], list[int]] = {}

    def add(self, result: LineResult) -> None:
        """Add the charge of a result."""
        if result.labels is None:
            return
        key = (UsageLabels(*result.labels), result.hour)
        sums = self._slots.setdefault(key, [0] * len(result.amounts))
        for i, amount in enumerate(result.amounts):
            sums[i] += amount

    def rows(self) -> list[tuple[int, UsageRow]]:
        """The hour and the row of each slot."""
        slots = enumerate(self._slots.items())
        return [(hour, UsageRow(slot, labels, tuple(sums))) for slot, ((labels, hour), sums) in slots]


class RecoveredShard(NamedTuple):
    """The lines that have a result, and the rows of their charges."""

    ended: set[int]
    rows: list[dict[str, Any]]


def recover(storage: Storage, claim: Claim) -> RecoveredShard:
    """Read the logs of earlier holders, set the counts, and begin this holder's own log. Blocks.

    Only the last holder may have records that its last transaction did not name. They count too, up to the first torn
    one; a record that a replaced holder writes later is never read. Raises `StorageError`.
    """
    counts, ended, rows = claim.counts, set[int](), list[dict[str, Any]]()
    counts.succeeded = counts.failed = counts.prompt_tokens = counts.completion_tokens = 0
    for part in counts.logs:
        results = durable_results(storage, claim, part, is_last=part is counts.logs[-1])
        charges = Charges()
        for result in results:
            if result.number not in ended:
                ended.add(result.number)
                add_result(counts, result)
                charges.add(result)
        rows += usage_rows(claim, part.token, charges)
    counts.logs.append(LogPart(claim.token, 0))
    return RecoveredShard(ended, rows)


def durable_results(storage: Storage, claim: Claim, part: LogPart, *, is_last: bool) -> list[LineResult]:
    """The results in the durable part of a log; `is_last` extends it to all whole records. Raises `StorageError`."""
    name = log_object(claim.spec.id, claim.number, part.token)
    data = storage.log(name)
    if len(data) < part.size:
        raise StorageError(f"{name}: {len(data)} of {part.size} bytes are there")
    log = read_log(data if is_last else data[: part.size])
    if log.size < part.size:
        raise StorageError(f"{name}: the record at byte {log.size} is damaged")
    part.size = log.size
    return log.results


def add_result(counts: ShardCounts, result: LineResult) -> None:
    """Count a result."""
    if result.succeeded:
        counts.succeeded += 1
    else:
        counts.failed += 1
    counts.prompt_tokens += result.prompt_tokens
    counts.completion_tokens += result.completion_tokens


def usage_rows(claim: Claim, token: int, charges: Charges) -> list[dict[str, Any]]:
    """The rows of usage of one log. The same log has the same rows, so that no line is charged twice."""
    source = f"{claim.spec.id}.{claim.number}.{token}"
    return [hour_values(source, hour, row) for hour, row in charges.rows()]


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
        waited, seconds = 0.0, self._unit.context.config.commit
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
        await unit.context.durable.insist(unit.name, unit.context.durable.storage.append, name, part.size, data)
        part.size += len(data)
        for result in pending:
            add_result(counts, result)
            self._charges.add(result)
        rows = usage_rows(unit.claim, part.token, self._charges)
        await unit.save(lambda connection: self.write_usage(connection, rows))

    def write_usage(self, connection: Connection, rows: list[dict[str, Any]]) -> None:
        """Write rows of usage, if usage is recorded."""
        if rows and self._unit.context.counts_usage():
            write_hours(connection, rows)

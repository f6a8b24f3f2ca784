"""Examines the input of a batch: every line before the first one runs."""

from sqlalchemy import Connection, func, select

from adapters import offload
from gateway.features.batches.rows import file_object, order_object
from gateway.features.batches.schema import batches
from gateway.features.batches.storage import NoObject, put_object
from gateway.features.batches.store import change_progress
from gateway.features.batches.tasks import FINISH, add_task
from gateway.features.batches.work import Unit
from policies.batches.lines import MOST_PROBLEMS, LineProblem
from policies.batches.order import SIZE, arranged, examine_lines, shards_of, too_long_entry
from policies.batches.states import ENDED, BatchProgress

PIECE = 4 * 1024 * 1024
"""Bytes of the file that are examined at once."""


class Examination(Unit):
    """The first task of a batch: it fails the batch, or adds its shards."""

    async def run(self) -> None:
        spec, context = self.claim.spec, self.context
        reading = _Reading(spec.endpoint)
        try:
            await self._read(reading)
        except NoObject:
            reading.problems = [LineProblem("input_file_not_found", "The input file does not exist any more.")]
        order = b""
        if not reading.problems:
            entries, ids = b"".join(reading.entries), b"".join(reading.ids)
            order, twice = await offload.run(len(entries), arranged, entries, ids)
            reading.problems = list(twice)
        lines = len(order) // SIZE
        if not reading.problems and not lines:
            reading.problems = [LineProblem("empty_file", "The input file has no line.")]
        if order and not reading.problems:
            await context.durable.insist(self.name, put_object, context.durable.storage, order_object(spec.id), order)
        await self.save(lambda connection: self._after(connection, reading, lines), done=True)

    async def _read(self, reading: "_Reading") -> None:
        context, name = self.context, file_object(self.claim.spec.input_file)
        at, rest = 0, b""
        skipping: int | None = None  # the offset of a line that is too long
        while piece := await context.durable.insist(self.name, context.durable.storage.read, name, at, PIECE):
            at += len(piece)
            end = piece.rfind(b"\n") + 1
            if skipping is not None:
                first = piece.find(b"\n") + 1
                if not first:
                    continue
                reading.skip(skipping)
                skipping, piece, end = None, piece[first:], end - first
            data, rest = (rest + piece[:end], piece[end:]) if end else (b"", rest + piece)
            if data:
                await reading.examine(data, at - len(rest) - len(data))
            if len(rest) > context.max_line:
                skipping, rest = at - len(rest), b""
            if reading.is_full(self._most_lines()) or len(reading.problems) >= MOST_PROBLEMS:
                break
        else:
            if skipping is not None:
                reading.skip(skipping)
        if rest and not reading.problems:
            await reading.examine(rest, at - len(rest))
        if reading.is_full(self._most_lines()):
            reading.problems = [_too_many(self._most_lines())]

    def _most_lines(self) -> int:
        return self.context.config.max_lines * (2 if self.claim.spec.api == "anthropic" else 1)

    def _after(self, connection: Connection, reading: "_Reading", lines: int) -> None:
        """Fail the batch, or add its shards, in the transaction of the task's end."""
        spec, now = self.claim.spec, self.context.wall()
        limit = self.context.token_limit(spec.tenant)
        if limit is not None and not reading.problems:
            query = select(func.sum(batches.c.tokens)).where(
                batches.c.tenant == spec.tenant, batches.c.status.not_in(ENDED)
            )
            enqueued = connection.execute(query).scalar() or 0
            if enqueued + reading.tokens > limit:
                reading.problems = [_over_limit(reading.tokens, enqueued, limit)]

        def examined(progress: BatchProgress) -> None:
            if progress.status == "cancelling":
                return
            if reading.problems:
                progress.problems = reading.problems[:MOST_PROBLEMS]
                progress.move("failed", now)
                return
            progress.total, progress.tokens = lines, reading.tokens
            progress.move("in_progress", now)

        progress = change_progress(connection, spec.id, examined)
        if progress.status == "cancelling":
            add_task(connection, spec, FINISH)
        elif progress.status == "in_progress":
            for number in range(shards_of(lines)):
                add_task(connection, spec, number)


class _Reading:
    """The results of the parts of a file."""

    def __init__(self, endpoint: str) -> None:
        self.entries: list[bytes] = []
        self.ids: list[bytes] = []
        self.problems: list[LineProblem] = []
        self.tokens = 0
        self._endpoint = endpoint
        self._next = 1

    async def examine(self, data: bytes, offset: int) -> None:
        examined = await offload.run(len(data), examine_lines, data, self._endpoint, self._next, offset)
        self.entries.append(examined.entries)
        self.ids.append(examined.ids)
        self.problems += examined.problems
        self.tokens += examined.tokens
        self._next += examined.lines

    def skip(self, offset: int) -> None:
        self.entries.append(too_long_entry(self._next, offset))
        self._next += 1

    def is_full(self, most: int) -> bool:
        return sum(map(len, self.entries)) // SIZE > most


def _too_many(most: int) -> LineProblem:
    return LineProblem("too_many_tasks", f"The input file has more than {most} lines.")


def _over_limit(tokens: int, enqueued: int, limit: int) -> LineProblem:
    message = (
        f"The batch has about {tokens} prompt tokens, and {enqueued} are enqueued: the limit is {limit}. "
        "Create it again when other batches have ended."
    )
    return LineProblem("token_limit_exceeded", message)

"""Runs the lines of one shard, and logs each result once.

A result exists when its record is in the durable part of the log, which the database names together with the charge.
After a crash the next holder reads the log, cuts its torn end, and runs the lines without a record.
"""

import asyncio
import time
from collections.abc import Coroutine

from msgspec import Raw
from sqlalchemy import Connection

from adapters import offload
from adapters.errors import CallerError, InferenceError, LimitExceeded
from adapters.upstreams.deferral import Deferred, LinePass, ProvidedResult
from adapters.wire import decoding
from gateway.auth.keys import Principal
from gateway.features.batches.calls import LineEnd, model_of
from gateway.features.batches.gate import Rank
from gateway.features.batches.results import LOOK, LineResult, ResultLog, answered_line, recover, unreadable_line
from gateway.features.batches.rows import file_object, order_object
from gateway.features.batches.storage import NoObject
from gateway.features.batches.store import change_progress
from gateway.features.batches.submissions import Download, EndedSubmission, Submissions
from gateway.features.batches.tasks import FINISH, Claim, add_task, open_shards
from gateway.features.batches.work import BatchContext, Unit
from gateway.fronts.errors import anthropic_response, openai_response
from policies.batches.lines import LONGEST_PAUSE, TOO_LONG, BatchLine, decode_line, retry_of
from policies.batches.order import LineEntry, entries_of, shard_range
from policies.batches.states import BatchProgress

PATIENCE = 600.0
"""Seconds after the window in which a result of a provider waits for a limit of the tenant."""
GRACE = 10.0
"""Seconds in which lines in flight may end after a cancellation or the end of the window."""
MOST_ROUNDS = 6
"""Submissions of a line whose provider returns no result, or a failure that may pass."""
MOST_RESULTS = 8
"""Results of a provider that are decoded at the same time."""


class LineRuns:
    """Runs lines with the rights of the batch's creator."""

    def __init__(self, unit: Unit, submissions: Submissions) -> None:
        spec = unit.claim.spec
        self._unit = unit
        self._context = unit.context
        self._submissions = submissions
        self._principal: Principal = spec.holder.principal()
        self._rank: Rank = (spec.expires_at, spec.id, unit.claim.number)
        self.is_full = False
        """Whether the deferred lines should be submitted."""

    async def run(self, entry: LineEntry) -> LineResult | None:
        """The result of a line; None if the batch stops before, or the line is deferred."""
        line = await self._read(entry)
        if isinstance(line, LineResult):
            return line
        end = await self._answered(entry, line)
        return None if end is None else await self._result(entry, line, end)

    async def run_provided(
        self, entry: LineEntry, results: dict[str, ProvidedResult], *, is_last: bool
    ) -> LineResult | None:
        """The result of a line from the provider's; None if the line has to run again. `is_last`: it may not."""
        line = await self._read(entry)
        if isinstance(line, LineResult):
            return line
        body, spec = bytes(line.body), self._unit.claim.spec
        while not self._unit.closing:
            end = await self._call(entry, line.url, body, LinePass(dict(results), repeats=is_last))
            if end is None:
                return None
            left = spec.expires_at - self._context.wall()
            if isinstance(end.error, LimitExceeded) and left > -PATIENCE:
                await asyncio.sleep(min(LONGEST_PAUSE, end.error.retry_after or 1.0))
                continue
            if end.error is not None and not is_last and _may_pass(end.error, left):
                return None
            return await self._result(entry, line, end)
        return None

    async def refuse(self, entry: LineEntry, error: InferenceError) -> LineResult:
        """The result of a line without a usable result of the provider."""
        line = await self._read(entry)
        if isinstance(line, LineResult):
            return line
        api = self._unit.claim.spec.api
        response = (anthropic_response if api == "anthropic" else openai_response)(error, [])
        assert isinstance(response.body, bytes)
        return LineResult(
            entry.number, False, answered_line(api, line.custom_id, response.status, "", Raw(response.body))
        )

    # ── one line ──────────────────────────────────────────────────────────────────────────────────────

    async def _read(self, entry: LineEntry) -> BatchLine | LineResult:
        """The line, or the result of a line that cannot be sent."""
        if entry.length == TOO_LONG or entry.length > self._context.max_line:
            message = f"it is longer than {self._context.max_line} bytes."
            return _unreadable(entry, "line_too_long", message)
        name, read = file_object(self._unit.claim.spec.input_file), self._context.durable.storage.read
        try:
            raw = await self._context.durable.insist(self._unit.name, read, name, entry.offset, entry.length)
        except NoObject:
            return _unreadable(entry, "input_file_not_found", "the input file was deleted.")
        line = await offload.scan(len(raw), decode_line, raw)
        return _unreadable(entry, "invalid_json_line", "it is not a JSON object.") if line is None else line

    async def _answered(self, entry: LineEntry, line: BatchLine) -> LineEnd | None:
        """The last attempt of a line; None if the batch stops before it ends."""
        failures, body, unit = 0, bytes(line.body), self._unit
        model = await offload.scan(len(body), model_of, line.url, body)
        while not unit.stops:
            end = await self._attempt(entry, line.url, body, model)
            if end is None or end.error is None:
                return end
            left = unit.claim.spec.expires_at - self._context.wall()
            retry = retry_of(end.error.kind, end.error.retry_after, failures, left)
            if retry is None:
                return end
            failures += retry.counts
            await asyncio.sleep(retry.pause)
        return None

    async def _attempt(self, entry: LineEntry, url: str, body: bytes, model: str | None) -> LineEnd | None:
        """One attempt. A line whose pools all have providers uses no capacity here, so the gate admits it at once."""
        gate, end = self._context.gate, None
        pools, provided = gate.own_pools(model), self._context.providers.pools
        passing = LinePass() if pools is not None and pools & provided else None
        if pools and pools <= provided:
            return await self._call(entry, url, body, passing)
        lane = await gate.enter(model, self._rank)
        began = time.monotonic()
        try:
            if not self._unit.stops:
                end = await self._call(entry, url, body, passing)
        finally:
            gate.leave(lane, None if end is None else end.error, time.monotonic() - began)
        return end

    async def _call(self, entry: LineEntry, url: str, body: bytes, passing: LinePass | None) -> LineEnd | None:
        seed = f"{self._unit.claim.spec.id} {entry.number}"
        try:
            return await self._context.calls.call(self._principal, url, body, passing, seed)
        except Deferred:
            assert passing is not None
            assert passing.deferred is not None
            self.is_full |= self._submissions.add(entry.number, passing.deferred)
            return None

    async def _result(self, entry: LineEntry, line: BatchLine, end: LineEnd) -> LineResult:
        spec, charge, succeeded = self._unit.claim.spec, end.charge, end.status < 400
        output = answered_line(spec.api, line.custom_id, end.status, end.request_id, end.body)
        if end.is_personal:
            file = spec.output_file if succeeded or spec.api == "anthropic" else spec.error_file
            output = await asyncio.to_thread(self._context.seals.closed, spec.tenant, file, line.custom_id, output)
        return LineResult(entry.number, succeeded, output, charge.labels, charge.hour, charge.amounts)


def _may_pass(error: InferenceError, left: float) -> bool:
    """Whether a line runs again after a result of the provider, which also charges for an answer of another form."""
    return error.code != decoding.BAD_RESPONSE and retry_of(error.kind, None, 0, left) is not None


def _unreadable(entry: LineEntry, code: str, message: str) -> LineResult:
    return LineResult(entry.number, False, unreadable_line(None, entry.number, code, message))


class ShardRun(Unit):
    """One shard. `run` returns when all lines have a result, or none may begin any more."""

    def __init__(self, claim: Claim, context: BatchContext) -> None:
        super().__init__(claim, context)
        self._log = ResultLog(self)
        self._submissions = Submissions(self)
        self._lines = LineRuns(self, self._submissions)
        self._entries: dict[int, LineEntry] = {}
        """The lines without a result when this process took the shard."""
        self._rounds: dict[int, int] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        self._failure: BaseException | None = None

    async def run(self) -> None:
        await self._recover()
        committing = asyncio.create_task(self._log.commit_often())
        try:
            await self._run_rounds(committing)
            self._log.finishing = True
            await committing
        finally:
            committing.cancel()
            await self._cancel_lines()
            await asyncio.gather(committing, return_exceptions=True)
        if not self.closing:
            await self.save(self._after_shard, done=True)

    async def _recover(self) -> None:
        """Read the lines without a result."""
        context, spec = self.context, self.claim.spec
        start, length = shard_range(self.claim.number)
        packed = await context.durable.insist(
            self.name, context.durable.storage.read, order_object(spec.id), start, length
        )
        recovered = await context.durable.insist(self.name, recover, context.durable.storage, self.claim)
        await self.save(lambda connection: self._log.write_usage(connection, recovered.rows))
        self._entries = {e.number: e for e in entries_of(packed) if e.number not in recovered.ended}

    async def _run_rounds(self, committing: "asyncio.Task[None]") -> None:
        """Run lines, and wait for those at providers, until none is left."""
        while not committing.done():
            await self._begin_lines(self._open_lines(), committing)
            await self._end_lines(committing)
            if self._failure is not None:
                raise self._failure
            if not self.stops:
                await self._submit()
            ended = await self._submissions.next()
            if ended is not None:
                await self._end_submission(ended)
            elif self.stops or not self._open_lines():
                return

    def _open_lines(self) -> list[LineEntry]:
        """The lines without a result that no provider has."""
        submitted = self._submissions.numbers
        return [e for e in self._entries.values() if not self._log.has(e.number) and e.number not in submitted]

    # ── lines ─────────────────────────────────────────────────────────────────────────────────────────

    async def _begin_lines(self, entries: list[LineEntry], committing: "asyncio.Task[None]") -> None:
        for entry in entries:
            while len(self._running) >= self.context.config.concurrency or self._log.is_full:
                if committing.done() or self.stops:
                    return
                await self._look()
            if self.stops or committing.done():
                return
            if self._lines.is_full:
                await self._submit()
            self._begin(self._line(entry))

    def _begin(self, line: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(line)
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
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = error

    async def _look(self) -> None:
        """Wait until a line ends, for a moment at most."""
        self._ended.clear()
        try:
            async with asyncio.timeout(LOOK):
                await self._ended.wait()
        except TimeoutError:
            return

    async def _line(self, entry: LineEntry) -> None:
        result = await self._lines.run(entry)
        if result is not None:
            self._log.add(result)

    # ── lines at providers ────────────────────────────────────────────────────────────────────────────

    async def _submit(self) -> None:
        self._lines.is_full = False
        for refused in await self._submissions.submit():
            await self._end_submission(refused)

    async def _end_submission(self, ended: EndedSubmission) -> None:
        """Log the results of a submission. Its other lines are open again."""
        lines = [self._entries[n] for n in ended.submission.numbers if n in self._entries and not self._log.has(n)]
        complete = True
        if ended.problem:
            await self._refuse(lines, _not_run(ended.problem))
        elif ended.provider is not None:
            for entry in lines:
                self._rounds[entry.number] = self._rounds.get(entry.number, 0) + 1
            complete = await self._take_results(lines, Download(self._submissions, ended.submission, ended.provider))
            if not self.stops:
                spent = [e for e in lines if not self._log.has(e.number) and self._rounds[e.number] >= MOST_ROUNDS]
                await self._refuse(spent, _not_run("it returned no result, several times"))
        if not self.closing:
            await self._log.commit()
            await self._submissions.remove(ended.submission, discards=complete)

    async def _take_results(self, lines: list[LineEntry], download: Download) -> bool:
        """Let each result pass. Returns whether all results could be read."""
        open_lines = {entry.number: entry for entry in lines}
        async for number, key, result in download.results():
            if (entry := open_lines.get(number)) is not None:
                while len(self._running) >= MOST_RESULTS or self._log.is_full:
                    await self._look()
                self._begin(self._provided(entry, key, result))
        while self._running:
            await self._look()
        if download.problem:
            error = decoding.bad_response(download.problem)
            await self._refuse([entry for entry in lines if entry.number in download.missing], error)
        return not download.problem

    async def _provided(self, entry: LineEntry, key: str, result: ProvidedResult) -> None:
        is_last = self._rounds[entry.number] >= MOST_ROUNDS
        line = await self._lines.run_provided(entry, {key: result}, is_last=is_last)
        if line is not None:
            self._log.add(line)

    async def _refuse(self, entries: list[LineEntry], error: InferenceError) -> None:
        for entry in entries:
            self._log.add(await self._lines.refuse(entry, error))

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────

    def _after_shard(self, connection: Connection) -> None:
        """The last shard lets the output be written."""
        spec, now = self.claim.spec, self.context.wall()
        if open_shards(connection, spec.id):
            return

        def finalizing(progress: BatchProgress) -> None:
            if progress.status == "in_progress":
                progress.move("finalizing", now)

        change_progress(connection, spec.id, finalizing)
        add_task(connection, spec, FINISH)


def _not_run(problem: str) -> CallerError:
    return CallerError(f"The provider did not run the request: {problem}", code="provider_batch")

"""The runs of single lines of a shard: here, or by a batch of the pool's provider."""

import asyncio
import time
from typing import TYPE_CHECKING

from msgspec import Raw

from adapters import offload
from adapters.errors import InferenceError, LimitExceeded
from adapters.upstreams.provided.deferral import Deferred, LinePass, ProvidedResult
from adapters.wire import decoding
from gateway.auth.keys import Principal
from gateway.features.batches import outputs
from gateway.features.batches.calls import LineEnd, model_of
from gateway.features.batches.gate import Rank
from gateway.features.batches.provided.submissions import Submissions
from gateway.features.batches.records import LineResult
from gateway.features.batches.rows import file_object
from gateway.features.batches.storage import NoObject
from gateway.fronts.errors import anthropic_response, openai_response
from policies.batches.attempts import LONGEST_PAUSE, retry_of
from policies.batches.lines import TOO_LONG, BatchLine, decode_line
from policies.batches.order import LineEntry

if TYPE_CHECKING:
    from gateway.features.batches.work import Unit

PATIENCE = 600.0
"""Seconds after the window in which a result of a provider waits for a limit of the tenant."""


class LineRuns:
    """Runs lines with the rights of the batch's creator."""

    def __init__(self, unit: "Unit", submissions: Submissions) -> None:
        spec = unit.claim.spec
        self._unit = unit
        self._parts = unit.parts
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
        return None if end is None else self._result(entry, line, end)

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
            left = spec.expires_at - self._parts.wall()
            if isinstance(end.error, LimitExceeded) and left > -PATIENCE:
                await asyncio.sleep(min(LONGEST_PAUSE, end.error.retry_after or 1.0))
                continue
            if end.error is not None and not is_last and _may_pass(end.error, left):
                return None
            return self._result(entry, line, end)
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
            entry.number, False, outputs.answered(api, line.custom_id, response.status, "", Raw(response.body))
        )

    # ── one line ──────────────────────────────────────────────────────────────────────────────────────

    async def _read(self, entry: LineEntry) -> BatchLine | LineResult:
        """The line, or the result of a line that cannot be sent."""
        if entry.length == TOO_LONG or entry.length > self._parts.max_line:
            message = f"it is longer than {self._parts.max_line} bytes."
            return _unreadable(entry, "line_too_long", message)
        name, read = file_object(self._unit.claim.spec.input_file), self._parts.storage.read
        try:
            raw = await self._parts.insist(self._unit.name, read, name, entry.offset, entry.length)
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
            left = unit.claim.spec.expires_at - self._parts.wall()
            retry = retry_of(end.error.kind, end.error.retry_after, failures, left)
            if retry is None:
                return end
            failures += retry.counts
            await asyncio.sleep(retry.pause)
        return None

    async def _attempt(self, entry: LineEntry, url: str, body: bytes, model: str | None) -> LineEnd | None:
        """One attempt. A line whose pools all have providers uses no capacity here, so the gate admits it at once."""
        gate, end = self._parts.gate, None
        pools, provided = gate.own_pools(model), self._parts.providers.pools
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
            return await self._parts.calls.call(self._principal, url, body, passing, seed)
        except Deferred:
            assert passing is not None
            assert passing.deferred is not None
            self.is_full |= self._submissions.add(entry.number, passing.deferred)
            return None

    def _result(self, entry: LineEntry, line: BatchLine, end: LineEnd) -> LineResult:
        output = outputs.answered(self._unit.claim.spec.api, line.custom_id, end.status, end.request_id, end.body)
        charge = end.charge
        return LineResult(entry.number, end.status < 400, output, charge.labels, charge.hour, charge.amounts)


def _may_pass(error: InferenceError, left: float) -> bool:
    """Whether a line runs again after a result of the provider, which also charges for an answer of another form."""
    return error.code != decoding.BAD_RESPONSE and retry_of(error.kind, None, 0, left) is not None


def _unreadable(entry: LineEntry, code: str, message: str) -> LineResult:
    return LineResult(entry.number, False, outputs.unreadable(None, entry.number, code, message))

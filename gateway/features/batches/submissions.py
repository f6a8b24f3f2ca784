"""The lines of a shard at providers: submitted once, waited for, and cancelled with their batch.

A submission is in the state database before the provider receives it, with its own id. After a crash the next holder
looks for the id among the provider's batches, so that no line is submitted twice.
"""

import asyncio
import logging
import math
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlalchemy import Connection

from adapters.errors import InferenceError
from adapters.upstreams.deferral import DeferredRequest, ProvidedResult
from adapters.upstreams.provided.exchanges import Missing
from adapters.upstreams.provided.provider import UNREADABLE, ProviderBatches, ProviderLines, ProviderState, Unsure
from gateway.features.batches.calls import model_of
from gateway.features.batches.tasks import submitted_batches
from gateway.features.batches.work import Unit
from policies.batches.states import STOPPED, Submission

log = logging.getLogger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
LOOK = 1.0
CANCELLING = 900.0
"""Seconds in which a provider may end a cancelled batch. OpenAI's takes up to ten minutes."""
FIRST_DOWNLOAD_PAUSE, LONGEST_DOWNLOAD_PAUSE = 1.0, 600.0
MOST_REFUSALS = 5
"""Downloads that the provider refuses, such as those of a file that it does not have."""
PATIENCE = 900.0
"""Seconds after the end or the cancellation of the batch in which downloads that fail are repeated."""


@dataclass
class _Group:
    """Requests that may be in one batch of a provider."""

    pool: str
    url: str
    id: str = field(default_factory=lambda: f"hr{secrets.token_hex(8)}")
    lines: list[bytes] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    size: int = 0


class EndedSubmission(NamedTuple):
    """A submission that waits no longer. Without a provider its lines have no results."""

    submission: Submission
    provider: ProviderBatches | None
    problem: str = ""
    """The reason why the provider refused all lines."""


class Submissions:
    """The submissions of one shard."""

    def __init__(self, unit: Unit) -> None:
        self.unit = self._unit = unit
        self._providers = unit.context.providers
        self._groups: dict[tuple[str, str, str], _Group] = {}
        self._clock = asyncio.get_running_loop().time
        self._stopped_at: float | None = None
        self._cancelled = set[str]()
        self._cancel_at, self._cancel_pause = 0.0, FIRST_PAUSE

    @property
    def all(self) -> list[Submission]:
        """The submissions that have not ended."""
        return self._unit.claim.counts.submissions

    @property
    def numbers(self) -> set[int]:
        """The lines in submissions, and those that will be submitted."""
        numbers = {number for submission in self.all for number in submission.numbers}
        return numbers.union(*(group.numbers for group in self._groups.values()))

    # ── submitting ────────────────────────────────────────────────────────────────────────────────────

    def add(self, number: int, request: DeferredRequest) -> bool:
        """Add a line. Returns whether a submission has reached its size."""
        provider = self._providers.of(request.pool)
        if provider is None or provider.config.provider_batches is None:
            return False  # the configuration has changed: the line runs again
        key = (request.pool, request.url, model_of(request.url, request.body) or "")
        group = self._groups.setdefault(key, _Group(request.pool, request.url))
        line = provider.batches.line(f"{group.id}-{number}-{request.key}", request)
        group.lines.append(line)
        group.numbers.append(number)
        group.size += len(line)
        return group.size >= provider.config.provider_batches.max_size

    async def submit(self) -> list[EndedSubmission]:
        """Submit all lines that were added. Returns the submissions that the provider refused."""
        groups, self._groups = list(self._groups.values()), {}
        return [refused for group in groups if (refused := await self._submit(group)) is not None]

    async def _submit(self, group: _Group) -> EndedSubmission | None:
        unit, pause = self._unit, FIRST_PAUSE
        submission = Submission(group.id, group.pool, unit.context.wall(), group.numbers)
        self.all.append(submission)
        await unit.save(_nothing)
        while not unit.stops and (provider := self._providers.of(group.pool)) is not None:
            try:
                lines = ProviderLines(group.id, group.url, group.lines, submission.since)
                submission.batch = await provider.batches.submit(lines)
                await unit.save(_nothing)
                return None
            except InferenceError as error:
                if error.kind == "caller":
                    return EndedSubmission(submission, provider.batches, error.message)
                self.report(submission, error)
                if error.delivered and not await self._lost(submission, provider.batches):
                    return None
            await self._sleep(pause)
            pause = min(LONGEST_PAUSE, 2.0 * pause)
        return None

    async def _lost(self, submission: Submission, provider: ProviderBatches) -> bool:
        """Whether a submission has not reached the provider. If it has, or may have, `next` waits for it."""
        try:
            batch = await self._look_up(submission, provider)
        except (Unsure, InferenceError):
            return False
        if batch is None:
            return True
        submission.batch = batch
        await self._unit.save(_nothing)
        return False

    async def _look_up(self, submission: Submission, provider: ProviderBatches) -> str | None:
        context = self._unit.context
        others = await context.durable.insist(self._unit.name, context.durable.store.read, submitted_batches)
        return await provider.submitted(submission.id, submission.since, len(submission.numbers), others)

    # ── waiting ───────────────────────────────────────────────────────────────────────────────────────

    async def next(self) -> EndedSubmission | None:
        """Wait for the next submission that ends; None if none is left, or the process ends."""
        unit = self._unit
        unit.parked = True
        try:
            while self.all and not unit.closing:
                await self._cancel_if_stopped()
                for submission in list(self.all):
                    if (ended := await self._ended(submission)) is not None:
                        return ended
                if self._stopped_at is not None and self._clock() - self._stopped_at > CANCELLING:
                    return None
                await self._sleep(self._poll())
            return None
        finally:
            unit.parked = False

    async def remove(self, submission: Submission, *, discards: bool) -> None:
        """Forget a submission whose results are durable. `discards`: delete its files at the provider."""
        self.all.remove(submission)
        await self._unit.save(_nothing)
        provider = self._providers.of(submission.pool)
        if discards and provider is not None and submission.batch:
            try:
                await provider.batches.discard(submission.batch)
            except InferenceError:
                return  # the provider deletes them after its own retention

    async def _ended(self, submission: Submission) -> EndedSubmission | None:
        pool = self._providers.of(submission.pool)
        if pool is None:
            log.warning("batches: %s: the pool %s has no provider_batches any more", self._unit.name, submission.pool)
            return EndedSubmission(submission, None)
        provider = pool.batches
        try:
            if not submission.batch:
                batch = await self._look_up(submission, provider)
                if batch is None:
                    return EndedSubmission(submission, None)
                submission.batch = batch
                await self._unit.save(_nothing)
            state = await provider.state(submission.batch)
        except Unsure:
            return None
        except Missing:
            return EndedSubmission(submission, None)
        except InferenceError as error:
            self.report(submission, error)
            return None
        return await self._of_state(submission, provider, state)

    async def _of_state(
        self, submission: Submission, provider: ProviderBatches, state: ProviderState
    ) -> EndedSubmission | None:
        if not state.ended:
            return None
        if state.is_full:  # the provider has too much enqueued: the lines are submitted again
            await self._sleep(LONGEST_PAUSE)
            return EndedSubmission(submission, None)
        return EndedSubmission(submission, provider, state.problem)

    async def _cancel_if_stopped(self) -> None:
        """Cancel each of the provider's batches once when the batch is cancelled or has expired."""
        unit, now = self._unit, self._clock()
        is_over = unit.status in STOPPED or unit.context.wall() >= unit.claim.spec.expires_at
        if not is_over or now < self._cancel_at:
            return
        self._stopped_at = self._stopped_at or now
        for submission in self.all:
            provider = self._providers.of(submission.pool)
            if provider is None or not submission.batch or submission.id in self._cancelled:
                continue
            try:
                await provider.batches.cancel(submission.batch)
                self._cancelled.add(submission.id)
            except InferenceError as error:
                self.report(submission, error)
                self._cancel_pause = min(LONGEST_PAUSE, 2.0 * self._cancel_pause)
                self._cancel_at = now + self._cancel_pause

    def _poll(self) -> float:
        """Seconds until the next request for a state."""
        if self._stopped_at is not None:
            return LOOK
        pools = [self._providers.of(submission.pool) for submission in self.all]
        return min((p.config.provider_batches.poll for p in pools if p and p.config.provider_batches), default=LOOK)

    async def _sleep(self, seconds: float, *, ends_with_batch: bool = True) -> None:
        """Sleep, but not beyond the end of the process, and of the batch."""
        unit, end = self._unit, self._clock() + seconds
        while (left := end - self._clock()) > 0:
            await asyncio.sleep(min(left, LOOK))
            if unit.closing or (ends_with_batch and unit.stops and self._stopped_at is None):
                return

    async def park(self, seconds: float) -> None:
        """Sleep for a repetition. The task takes no place of others meanwhile."""
        self._unit.parked = True
        try:
            await self._sleep(seconds, ends_with_batch=False)
        finally:
            self._unit.parked = False

    def report(self, submission: Submission, error: InferenceError) -> None:
        """Log a failure of the provider."""
        reason = error.detail or error.message
        log.warning("batches: %s: the provider of the pool %s: %s", self._unit.name, submission.pool, reason)

    def count_unused(self, submission: Submission, reason: str, count: int) -> None:
        """Count and log lines of results that are those of no request."""
        self._providers.unused[submission.pool, reason] += count
        lines = f"{count} lines of the results are {reason}"
        log.warning("batches: %s: the provider of the pool %s: %s", self._unit.name, submission.pool, lines)


def _nothing(_: Connection) -> None:
    """No other change beside the counts."""


class LineOfResults(NamedTuple):
    """A result of a line. `key` is that of its request."""

    number: int
    key: str
    result: ProvidedResult


class Download:
    """The results of one submission. A download that breaks is repeated, without the results that have passed."""

    def __init__(self, submissions: Submissions, submission: Submission, provider: ProviderBatches) -> None:
        self._submissions = submissions
        self._submission = submission
        self._provider = provider
        self._numbers = {f"{submission.id}-{number}": number for number in submission.numbers}
        self.missing = set(submission.numbers)
        """The lines of which the provider has said nothing, not even that it did not run them."""
        self.problem = ""
        """The reason why the missing lines have no result and never will; empty if the provider has none."""

    async def results(self) -> AsyncIterator[LineOfResults]:
        """Each result once. Ends when the results are complete, cannot be read, or the process ends."""
        pause, refusals, unit = FIRST_DOWNLOAD_PAUSE, 0, self._submissions.unit
        clock, stopped_at = asyncio.get_running_loop().time, math.inf
        while not unit.closing:
            left, unused = len(self.missing), {"unreadable": 0, "foreign": 0}
            try:
                async for each in self._provider.results(self._submission.batch):
                    prefix, _, key = each.custom_id.rpartition("-")
                    number = self._numbers.get(prefix)
                    if number is None:
                        unused["unreadable" if each is UNREADABLE else "foreign"] += 1
                    elif number in self.missing:
                        self.missing.discard(number)
                        if each.result is not None:
                            yield LineOfResults(number, key, each.result)
            except InferenceError as error:
                self._submissions.report(self._submission, error)
                refusals += error.kind == "caller"
                stopped_at = min(stopped_at, clock()) if unit.stops else math.inf
                if refusals >= MOST_REFUSALS or clock() - stopped_at >= PATIENCE:
                    self.problem = f"The results of the provider cannot be read: {error.message}"
                    return
                pause = FIRST_DOWNLOAD_PAUSE if len(self.missing) < left else min(LONGEST_DOWNLOAD_PAUSE, 2 * pause)
                await self._submissions.park(pause)
            else:
                self._count(unused)
                return

    def _count(self, unused: dict[str, int]) -> None:
        """Count results without a line. Those that cannot be read are taken for those of the missing lines: the
        provider has run them, and charges for them."""
        if unused["unreadable"]:
            self.problem = "The provider's result cannot be read."
        for reason, count in unused.items():
            if count:
                self._submissions.count_unused(self._submission, reason, count)

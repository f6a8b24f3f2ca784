"""Tries another upstream after a failure, and prefers a pool with a free slot."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from adapters.base import Answer, Upstream
from adapters.call import Call
from adapters.errors import ContentRefused, ContextTooLong, InferenceError, UpstreamSilent, UpstreamTimeout
from adapters.requests import ModelRequest
from config.schema.config import Failure

_NONE: frozenset[str] = frozenset()
_TOO_LONG: frozenset[str] = frozenset({"context_length"})
_FILTERED: frozenset[str] = frozenset({"filtered"})
_SILENT: frozenset[str] = frozenset({"timeout"})
_LATE = _SILENT | {"transport"}


class FallbackStep(NamedTuple):
    """An upstream for failures of these classes."""

    on: frozenset[Failure]
    upstream: Upstream


class Fallback:
    """An `Upstream` that calls the next of its steps that covers the failure."""

    def __init__(self, first: Upstream, steps: Sequence[FallbackStep]) -> None:
        self._first = first
        self._steps = steps
        filters = [number for number, step in enumerate(steps, 1) if "filtered" in step.on]
        self._filtered = max(filters, default=0)
        """The number of the last step for answers that a filter ends; 0 without one."""

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        upstream, tried = self._first, 0
        while True:
            try:
                answer = await upstream.call(request, call)
                if tried < self._filtered and call.repeatable and call.relay is None:
                    from gateway.traffic.filtered import unless_filtered

                    answer = await unless_filtered(answer)
            except InferenceError as error:
                classes, number = _classes(request, error), tried
                while number < len(self._steps) and self._steps[number].on.isdisjoint(classes):
                    number += 1
                if number == len(self._steps) or request.sequence or not call.again_after(error):
                    raise
                upstream, tried = self._steps[number].upstream, number + 1
            else:
                event = ("fallback", answer.pool)
                if upstream is not self._first and event not in call.trace.events:  # an inner fallback has recorded it
                    call.trace.event(*event)
                return answer


def may_be_computed(request: ModelRequest, error: InferenceError) -> bool:
    """Whether a silent server may still write the text: another attempt is paid twice, and may be as slow."""
    return request.composes and isinstance(error, UpstreamSilent)


def _classes(request: ModelRequest, error: InferenceError) -> frozenset[str]:
    """The classes of a failure; none for one that every upstream would repeat."""
    if isinstance(error, ContextTooLong):
        return _TOO_LONG
    if isinstance(error, ContentRefused):
        return _FILTERED
    if isinstance(error, UpstreamTimeout):
        return _SILENT if may_be_computed(request, error) else _LATE
    return frozenset({error.kind}) if error.retryable else _NONE


class ElsewhereFirst:
    """An `Upstream` that waits in no queue while another pool of its plan has a free slot.

    If all pools are full, the request waits in the first pool. No endpoint is called twice.
    """

    def __init__(self, plan: Upstream, branches: Mapping[str, Upstream]) -> None:
        self._plan = plan
        self._branches = branches

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        if request.sequence:
            return await self._plan.call(request, call)
        first, full = call.attempt(), list[str]()
        first.full_pools = full
        try:
            return await self._plan.call(request, first)
        except InferenceError as error:
            if not (full and error.retryable and call.again_after(error)) or may_be_computed(request, error):
                raise
        call.assignment = first.assignment  # None if the attempt has counted
        return await self._branches[full[0]].call(request, call)

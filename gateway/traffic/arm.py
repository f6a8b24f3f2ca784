"""The arms of rollouts and experiments as upstreams: inside of fallbacks and caches, around retries and hedges."""

import asyncio
from collections.abc import Callable

from adapters.base import Answer, Upstream, as_inference_error
from adapters.call import Call, Event
from adapters.errors import ContentFiltered, InferenceError, Overloaded, Unsupported
from adapters.requests import ModelRequest
from gateway.traffic.answer_refusals import RefusalReader, body_refuses, tapped
from policies.rollouts.counting import ArmOutcome, Assignment


class ArmUpstream:
    """An `Upstream` that counts the end of each request that a comparison has assigned to this arm.

    A failure counts even if a fallback answers the client. The end of a stream counts when the stream ends. A call
    counts once: its assignment is removed.
    """

    def __init__(self, upstream: Upstream, pool: str, clock: Callable[[], float]) -> None:
        self._upstream = upstream
        self._retry = ("retry", pool)
        self._clock = clock

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        assignment: Assignment | None = call.assignment  # type: ignore[assignment]  # adapters know no policies
        if assignment is None:
            return await self._upstream.call(request, call)
        clock, trace = self._clock, call.trace
        began, events = clock(), trace.events
        try:
            answer = await self._upstream.call(request, call)
        except BaseException as error:
            if not (call.full_pools is not None and isinstance(error, Overloaded)):  # that one may still wait here
                outcome = ArmOutcome(_kind(error), None, clock() - began, isinstance(error, ContentFiltered))
                call.assignment = None
                assignment.end(outcome._replace(retried=self._retried(events, trace.events)))
            raise
        first_byte, call.assignment = clock() - began, None
        if assignment.count.stratum.reads:
            return self._read(answer, assignment, first_byte, began, self._retried(events, trace.events))
        if answer.ended and answer.error is None and answer.status < 500 and trace.events is events:
            assignment.answered(first_byte, answer.usage.completion_tokens)
            return answer
        retried = self._retried(events, trace.events)

        def ended(answer: Answer, error: BaseException | None) -> None:
            kind = _kind(error) if error is not None else "backend" if answer.status >= 500 else ""
            outcome = ArmOutcome(kind, first_byte, clock() - began, isinstance(error, ContentFiltered), retried)
            assignment.end(outcome, None if kind else answer.usage.completion_tokens)

        answer.when_ended(ended)
        return answer

    def _read(self, answer: Answer, assignment: Assignment, first_byte: float, began: float, retried: bool) -> Answer:
        """The answer, whose end counts with whether it refuses."""
        reader: RefusalReader | None = None
        if answer.body is None and not answer.ended:
            answer, reader = tapped(answer)

        def ended(answer: Answer, error: BaseException | None) -> None:
            kind = _kind(error) if error is not None else "backend" if answer.status >= 500 else ""
            refused = not kind and (body_refuses(answer.body) if reader is None else reader.refused())
            total, blocked = self._clock() - began, isinstance(error, ContentFiltered)
            outcome = ArmOutcome(kind, first_byte, total, blocked, retried, refused)
            assignment.end(outcome, None if kind else answer.usage.completion_tokens)

        answer.when_ended(ended)
        return answer

    def _retried(self, before: tuple[Event, ...], after: tuple[Event, ...]) -> bool:
        """Whether this arm's pool was tried again."""
        return after is not before and after.count(self._retry) > before.count(self._retry)


def _kind(error: BaseException) -> str:
    """The kind of an error. A defect of the gateway is a failure of the arm that it occurs in."""
    failure: InferenceError | None = as_inference_error(error)
    if failure is None:
        return "cancelled" if isinstance(error, asyncio.CancelledError | GeneratorExit) else "backend"
    return failure.kind


class ModelArm:
    """An `Upstream` that calls another model of the file: its routes, limits and steps apply."""

    def __init__(self, model: str) -> None:
        self._model = model

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        if call.models is None:
            raise Unsupported(f"The model `{self._model}` cannot be called here.", param="model")
        return await call.models.call(self._model, request.codec.rename(request, self._model), call)

"""What only some requests have, as observers of their exchange."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from adapters.base import Answer
from config.schema.telemetry import TraceContentConfig
from gateway.request.path_parts import hide_model_error
from gateway.request.spine import Exchange, Observer
from gateway.traffic.pool import Pool
from gateway.traffic.sequences import Sequences

if TYPE_CHECKING:
    from gateway.telemetry.traces.content import TraceContent
    from policies.rollouts.live import LiveComparison
    from policies.routing.decision import Decision


def observers_of(decision: Decision) -> tuple[Observer, ...]:
    """The observers that a route needs, for all of its requests."""
    observers: list[Observer] = []
    if decision.comparison is not None:
        observers.append(ComparedRequest(decision.comparison, decision.side))
    if decision.trace_content is not None:
        observers.append(WithContent(decision.trace_content))
    if decision.hide_model_errors:
        observers.append(HiddenErrors())
    return tuple(observers)


class ComparedRequest(Observer):
    """A request of a rollout or an experiment: it counts for an arm, and may get a signed id for feedback."""

    __slots__ = ("_comparison", "_side")

    def __init__(self, comparison: LiveComparison, side: int) -> None:
        self._comparison = comparison
        self._side = side

    def reserved(self, exchange: Exchange) -> None:
        comparison = self._comparison
        assignment = exchange.call.assignment = comparison.assign(self._side, exchange.facts)
        if assignment is not None and comparison.signs:
            exchange.sign(comparison.sign(assignment, exchange.facts))


class WithContent(Observer):
    """A request whose exported trace has its texts."""

    __slots__ = ("_config",)

    def __init__(self, config: TraceContentConfig) -> None:
        self._config = config

    def reserved(self, exchange: Exchange) -> None:
        log, span = exchange.call.trace.spans, exchange.span
        if log is not None and span is not None:
            from gateway.telemetry.traces.content import traced_content

            content = traced_content(self._config, exchange.request, log, span)
            if content is not None:
                exchange.observers += (_Content(content),)


class _Content(Observer):
    __slots__ = ("_content",)

    def __init__(self, content: TraceContent) -> None:
        self._content = content

    def begun(self, exchange: Exchange, answer: Answer) -> Answer:
        return self._content.tap(answer)


class HiddenErrors(Observer):
    """The model's own error text is withheld from the client."""

    __slots__ = ()

    def begun(self, exchange: Exchange, answer: Answer) -> Answer:
        answer.when_ended(lambda _, error: hide_model_error(error))
        return answer

    def failed(self, exchange: Exchange, error: BaseException) -> None:
        hide_model_error(error)


class SequenceAtHome(Observer):
    """A request of a sequence: the endpoint that has the state of the sequence answers it."""

    __slots__ = ("_model", "_pools", "_sequences", "_tenant")

    def __init__(self, sequences: Sequences, tenant: str, model: str, pools: Mapping[str, Pool]) -> None:
        self._sequences = sequences
        self._tenant = tenant
        self._model = model
        self._pools = pools

    def reserved(self, exchange: Exchange) -> None:
        home = self._sequences.place(self._tenant, self._model, exchange.request, self._pools)
        if home is not None:
            exchange.upstream, exchange.call.home = self._pools[home.pool], home.endpoint
            exchange.move(home.arm)

    def begun(self, exchange: Exchange, answer: Answer) -> Answer:
        self._sequences.answered(self._tenant, self._model, exchange.request, answer, exchange.arm)
        return answer

"""One execution of a request: its deadline, its client, and the trace of its attempts."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from adapters.answer import Answer
from adapters.errors import InferenceError
from adapters.http1.relay import Relay
from adapters.ignored_fields import IgnoredFields
from adapters.requests import ModelRequest
from adapters.spans import Span, SpanLog
from adapters.types import Deadline, Usage
from config.schema.balance import Priority
from config.schema.money import Money

Event = tuple[str, str]
"""The name of an event, and the name of the pool or model that it concerns."""

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class ModelCaller(Protocol):
    """Calls models of the configuration as the client of a call: their routes, limits and prices apply."""

    async def call(self, model: str, request: ModelRequest, call: Call) -> Answer:
        """Return the answer when it begins. Raises `InferenceError` for an earlier failure."""
        ...


class StepTrace:
    """The record of one step of a pipeline."""

    __slots__ = (
        "blocked",
        "branch",
        "cost",
        "endpoint",
        "error",
        "escalations",
        "name",
        "outcome",
        "parent",
        "pipeline",
        "refused",
        "seconds",
        "span",
        "started",
        "usage",
    )

    def __init__(self, pipeline: str, name: str, parent: StepTrace | None = None) -> None:
        self.parent = parent
        """The step around it, perhaps of another pipeline."""
        self.pipeline = pipeline
        self.name = name
        """The name of the step, after those of the steps around it: `page.recognise`."""
        self.outcome = "cancelled"
        """`ok`, `failed`, `skipped` or `used` (its configured values), `cancelled` before any of these."""
        self.started = 0.0
        """Loop time; 0 until the step has ended."""
        self.seconds = 0.0
        """Time until the step ended or, if it is streamed to the client, began."""
        self.error: str = ""
        """The kind of the error of a failed step."""
        self.endpoint = ""
        self.blocked = False
        """Whether a guard blocked the request or the answer."""
        self.escalations = 0
        """Stages of a cascade whose answers were not accepted."""
        self.branch: int | None = None
        """The branch of a switch, or the stage of a cascade, that answered."""
        self.usage: Usage | None = None
        self.cost: Money | None = None
        self.refused: Usage | None = None
        """What models computed for calls that they then refused: it counts against limits, and has no price."""
        self.span: Span | None = None
        """Its span; None for a request that is not traced."""

    def end(self, started: float, now: float) -> None:
        """Record the end of the step, or the begin of its stream to the client."""
        self.started, self.seconds = started, now - started
        if self.span is not None:
            self.span.finish(now, self.error)

    def is_within(self, step: StepTrace) -> bool:
        """Whether it runs inside of a step."""
        parent = self.parent
        while parent is not None and parent is not step:
            parent = parent.parent
        return parent is step

    def spend(self, usage: Usage, cost: Money | None) -> None:
        """Add the usage and the cost of a call to a model."""
        self.usage = total(self.usage, usage)
        if cost is not None:
            self.cost = cost if self.cost is None else Money(self.cost.picos + cost.picos, cost.currency)


_NONE = Usage(exact=True)


def total(first: Usage | None, second: Usage) -> Usage:
    """The sum of two usages. It is exact if both are."""
    if first is None:
        first = _NONE
    return Usage(
        first.prompt_tokens + second.prompt_tokens,
        first.completion_tokens + second.completion_tokens,
        first.exact and second.exact,
        first.rows + second.rows,
        first.bytes + second.bytes,
        first.device_ms + second.device_ms,
        first.cached_tokens + second.cached_tokens,
        first.reasoning_tokens + second.reasoning_tokens,
        first.cache_write_tokens + second.cache_write_tokens,
        first.cache_hour_tokens + second.cache_hour_tokens,
    )


class CallTrace:
    """The record of a call, over all of its attempts.

    The measurement ends with the first chunk of the answer. If attempts wait at the same time, each second counts once:
    as a second of the upstream if any attempt waits for an upstream, otherwise as a second of the queue.
    """

    __slots__ = (
        "_queued", "_since", "_upstreams", "attempts", "events", "first_chunk", "ignored", "queue_seconds", "sent_at",
        "spans", "steps", "upstream_seconds",
    )  # fmt: skip

    def __init__(self) -> None:
        self.attempts: list[str] = []
        """The ids of the endpoints to which the request was sent, in order."""
        self.sent_at: list[float] = []
        """Loop time of each attempt."""
        self.events: tuple[Event, ...] = ()
        self.ignored = IgnoredFields()
        """Fields of the request that the model does not support."""
        self.first_chunk = 0.0
        """Loop time of the first chunk; 0 before the answer begins."""
        self.upstream_seconds = 0.0
        """Time spent waiting for upstreams to begin an answer."""
        self.queue_seconds = 0.0
        """Time spent waiting for a free slot of an upstream."""
        self.steps: tuple[StepTrace, ...] = ()
        """The steps of a pipeline, in the order of their start."""
        self.spans: SpanLog | None = None
        """The spans of the request; None for a request that is not traced."""
        self._upstreams = 0
        self._queued = 0
        self._since = 0.0

    def event(self, name: str, subject: str) -> None:
        """Record an event."""
        self.events += ((name, subject),)
        if self.spans is not None:
            self.spans.root.event(name, self.spans.clock(), **{"headrace.subject": subject})

    def step(self, pipeline: str, name: str, parent: StepTrace | None = None) -> StepTrace:
        """Record that a step of a pipeline starts. `parent` is the step around it."""
        step = StepTrace(pipeline, name, parent)
        self.steps += (step,)
        if (spans := self.spans) is not None:
            step.span = spans.begin(f"step {name}", "internal", None if parent is None else parent.span, spans.clock())
        return step

    def spent(self, within: StepTrace | None = None) -> tuple[Usage | None, Money | None]:
        """The usage and the cost of all steps, or of those within a step.

        None if no step called a model, or none has a price.
        """
        usage: Usage | None = None
        cost: Money | None = None
        for step in self.steps:
            if within is not None and not step.is_within(within):
                continue
            if step.usage is not None:
                usage = total(usage, step.usage)
            if step.cost is not None:
                cost = step.cost if cost is None else Money(cost.picos + step.cost.picos, step.cost.currency)
        return usage, cost

    def drawn(self, usage: Usage | None) -> Usage | None:
        """A usage, and what the models of all steps computed for calls that they then refused."""
        for step in self.steps:
            if step.refused is not None:
                usage = total(usage, step.refused)
        return usage

    def sent(self, now: float) -> None:
        """Record that an attempt starts to wait for its upstream."""
        self.sent_at.append(now)
        if self._upstreams or self._queued:
            self._count(now)
        else:
            self._since = now
        self._upstreams += 1

    def returned(self, now: float) -> None:
        """Record that the upstream of an attempt has begun an answer or failed."""
        if not self.first_chunk:
            self.upstream_seconds += now - self._since
        self._since = now
        self._upstreams -= 1

    def queued(self, now: float) -> None:
        """Record that an attempt enters a queue."""
        self._count(now)
        self._queued += 1

    def dequeued(self, now: float) -> None:
        """Record that an attempt leaves a queue."""
        self._count(now)
        self._queued -= 1

    def _count(self, now: float) -> None:
        """Add the seconds since the last change to the wait that was in progress."""
        if not self.first_chunk:
            if self._upstreams:
                self.upstream_seconds += now - self._since
            elif self._queued:
                self.queue_seconds += now - self._since
        self._since = now


class Call:
    """One execution of a request: all data that is not part of the request itself.

    A request is the input of a client; a call is its execution by the gateway. Every `Upstream` receives both. The
    attempts of one call share its trace.
    """

    __slots__ = (
        "assignment", "deadline", "full_pools", "headers", "home", "id", "key", "models", "priority", "relay",
        "repeatable", "salt", "sent_at", "share", "span", "step", "tenant", "trace", "tried",
    )  # fmt: skip

    def __init__(
        self,
        deadline: Deadline,
        id: str = "",
        tenant: str = "",
        key: str = "",
        headers: Mapping[str, str] = NO_HEADERS,
        salt: str = "",
        share: float = 1.0,
        priority: Priority | None = None,
        home: str = "",
        trace: CallTrace | None = None,
        models: ModelCaller | None = None,
        step: StepTrace | None = None,
        repeatable: bool = True,
    ) -> None:
        self.deadline = deadline
        self.id = id
        """The id of the request in the logs of the gateway and of the upstream."""
        self.tenant = tenant
        self.key = key
        """The id of the key, never its secret."""
        self.headers = headers
        """The client's headers, with lower-case names, for balancing. Adapters forward them only if configured."""
        self.salt = salt
        """Separates the tenants' prompts in a server's prefix cache. No client can compute it."""
        self.share = share
        """The weight of the tenant in a full pool."""
        self.priority = priority
        """The priority in a full pool; None for the tenant's own priority."""
        self.home = home
        """The only endpoint that may answer a request of a sequence, because it has the sequence's state."""
        self.trace = trace or CallTrace()
        self.models = models
        """Calls the models of a pipeline's steps; None for a call that needs no other model."""
        self.step = step
        """The step of a pipeline that this call serves."""
        self.repeatable = repeatable
        """Whether the request may be sent again after a server may have begun to process it."""
        self.tried = self.trace.attempts
        """The endpoints to which this request was sent: another attempt prefers other endpoints."""
        self.assignment: object | None = None
        """The arm of a rollout that this call counts for; None without a rollout. Only the gateway reads it."""
        self.full_pools: list[str] | None = None
        """The names of full pools, for an attempt that does not wait in queues; None for an attempt that waits."""
        self.sent_at: float | None = None
        """Loop time at which this attempt was last sent to an endpoint; None before."""
        self.span: Span | None = None
        """The span of this attempt; None before it is sent, and for a request that is not traced."""
        self.relay: Relay | None = None
        """The proxy that carries this call to its endpoint; None for a connection of this process."""

    @property
    def around(self) -> Span | None:
        """The span in which the attempts of this call run: that of its step, or None for that of the request."""
        return None if self.step is None else self.step.span

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """The headers by which a server's logs and traces can be joined with the gateway's."""
        return (("x-request-id", self.id),) if self.span is None else (("x-request-id", self.id), *self.context)

    @property
    def context(self) -> tuple[tuple[str, str], ...]:
        """The headers that continue the trace at a server; none if the request is not traced."""
        spans = self.trace.spans
        return () if self.span is None or spans is None else spans.fields(self.span)

    def attempt(self) -> Call:
        """Create another attempt of the same request. It shares the trace and the endpoints that were tried."""
        call = Call(
            self.deadline,
            self.id,
            self.tenant,
            self.key,
            self.headers,
            self.salt,
            self.share,
            self.priority,
            self.home,
            self.trace,
            self.models,
            self.step,
            self.repeatable,
        )
        call.tried, call.full_pools, call.assignment = self.tried, self.full_pools, self.assignment
        call.relay = self.relay
        return call

    def part(self) -> Call:
        """Create a call for a part of the request. It shares the trace, but has tried no endpoint."""
        call = self.attempt()
        call.tried = []
        return call

    def of_step(self, step: StepTrace, deadline: Deadline) -> Call:
        """Create a call for one step of a pipeline, with its own deadline."""
        call = self.part()
        call.step, call.deadline, call.home = step, deadline, ""
        call.relay = None  # the response of the proxy is the client's, and no step has that
        return call

    @property
    def ignored(self) -> IgnoredFields:
        """Fields of the request that the model does not support."""
        return self.trace.ignored

    def again_after(self, error: InferenceError) -> bool:
        """Whether the request may be sent again after a failure."""
        if self.relay is not None and self.relay.sent:
            return False
        return self.repeatable or not error.delivered

    def sent(self, endpoint: str, now: float) -> None:
        """Record that this attempt is sent to an endpoint."""
        self.sent_at = now
        self.trace.sent(now)
        self.tried.append(endpoint)
        if self.tried is not self.trace.attempts:
            self.trace.attempts.append(endpoint)

"""The path of a request: decide, reserve, call, end. Clients' requests, steps of pipelines and copies take it alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from adapters.base import Answer, Upstream
from adapters.call import Call
from adapters.requests import ModelRequest
from adapters.spans import Span
from config.schema.money import Money
from gateway.request.services import Services
from policies.limits.limits import NOTHING, Amounts
from policies.limits.price import PriceRow

if TYPE_CHECKING:
    from policies.facts import Facts
    from policies.routing.decision import Decision


class Observer:
    """What only some requests have. The plan of a route has those of the route; a request may bring more."""

    __slots__ = ()

    def decided(self, exchange: Exchange) -> Awaitable[None] | None:
        """The route is decided; nothing is reserved. May return what is awaited before the request goes on, and may
        fail."""

    def reserved(self, exchange: Exchange) -> None:
        """The request may be sent: its call exists."""

    def answered(self, exchange: Exchange, answer: Answer) -> Awaitable[Answer] | None:
        """The answer has begun, and the request may still fail. May return what is awaited: the answer that takes its
        place, or a failure."""

    def begun(self, exchange: Exchange, answer: Answer) -> Answer:
        """The answer has begun. Returns the answer that the caller reads."""
        return answer

    def failed(self, exchange: Exchange, error: BaseException) -> None:
        """The reserved request has failed before an answer began."""


class Exchange(ABC):
    """One request on its path. `answer` is called once."""

    __slots__ = (
        "amounts", "arm", "call", "cost", "decision", "facts", "judge", "last", "model", "observers", "price",
        "request", "routes", "services", "unread", "upstream",
    )  # fmt: skip

    call: Call
    decision: Decision
    facts: Facts
    upstream: Upstream

    def __init__(self, services: Services, request: ModelRequest) -> None:
        self.services = services
        self.request = request
        self.model = ""
        """The name of the model as configured."""
        self.price: PriceRow | None = None
        self.observers: tuple[Observer, ...] = ()
        self.amounts: Amounts = NOTHING
        """The estimate, which is reserved."""
        self.cost: Money | None = None
        """The estimated cost; None without a price."""
        self.arm: str | None = None
        self.routes = 1
        """The routes that were chosen: one, or more if an observer has let another model answer."""
        self.unread: Answer | None = None
        """The answer of a server that an observer has refused; None in any other case."""
        self.judge: Callable[[], Awaitable[None]] | None = None
        """What is awaited between the reservation and the call. It may fail, and may let another model answer."""
        self.last: Callable[[Answer], Awaitable[Answer]] | None = None
        """Makes the answer that the caller receives of the one that everything else has seen."""

    async def answer(self) -> Answer:
        """The answer to the request when it begins.

        A failure before that is raised. What was reserved is settled once: at the failure, or when the answer ends,
        whole, broken or cancelled.
        """
        self.decide()
        if self.observers:
            await self.observe()
        await self.prepare()
        await self.reserve()
        try:
            while (judge := self.judge) is not None:  # the route to which it moves the request may have one too
                self.judge = None
                await judge()
            self.open()
            for observer in self.observers:
                observer.reserved(self)
            answer = await self.upstream.call(self.request, self.call)
            for observer in self.observers:
                if (guarded := observer.answered(self, answer)) is not None:
                    self.unread = answer
                    answer = await guarded
                    self.unread = None
        except BaseException as error:
            self.failed(error)
            for observer in self.observers:
                observer.failed(self, error)
            raise
        for observer in self.observers:
            answer = observer.begun(self, answer)
        self.begun(answer)
        answer.when_ended(self.ended)
        return answer if self.last is None else await self.last(answer)

    async def observe(self) -> None:
        """Let the observers of the route see the decision. One may choose another route, whose own see it then."""
        seen = 0
        while seen != self.routes:
            seen = self.routes
            for observer in self.observers:
                if (work := observer.decided(self)) is not None:
                    await work
                    if seen != self.routes:
                        break

    @property
    def span(self) -> Span | None:
        """The span that shows the content of this exchange; None if it is not traced."""
        return None

    def move(self, arm: str | None) -> None:
        """Note that another arm of the route answers: the one that has the state of the sequence."""
        self.arm = arm

    def sign(self, id: str) -> None:
        """Give the request the signed id by which a client reports values for an experiment."""
        del id  # only clients have one

    @abstractmethod
    def decide(self) -> None:
        """Choose the route of the request. Raises `InferenceError` without one."""

    @abstractmethod
    async def prepare(self) -> None:
        """Bring the request into the form in which it is sent, and estimate its amounts. Raises `CallerError`."""

    @abstractmethod
    async def reserve(self) -> None:
        """Reserve the estimate. Raises `LimitExceeded`, and holds nothing then."""

    @abstractmethod
    def open(self) -> None:
        """Create the call."""

    @abstractmethod
    def begun(self, answer: Answer) -> None:
        """Note the begin of the answer."""

    @abstractmethod
    def ended(self, answer: Answer, error: BaseException | None) -> None:
        """Settle the reservation by the usage of an answer that had begun."""

    @abstractmethod
    def failed(self, error: BaseException) -> None:
        """Settle the reservation of a request without an answer."""

"""A judge, and the calls of models by the guards of one request."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence

from adapters.answer import Answer
from adapters.call import Call, CallTrace, StepTrace
from adapters.errors import BackendError, LimitExceeded, UpstreamTimeout
from adapters.requests import ModelRequest
from adapters.types import Deadline
from config.schema.guards import JudgingGuardConfig, Side
from gateway.features.pipelines.calls import Budgets, ClientModelCalls
from gateway.request.client_exchange import ClientExchange
from gateway.request.path_parts import deadline_of
from gateway.traffic.queue import priority_of
from policies.breaker import Breaker
from policies.pipelines.window import CHARACTERS_PER_TOKEN, windows_of

FAILURES, OPEN_SECONDS = 5, 30.0
"""Failures in a row after which a guard is not asked, and the seconds for which it is not."""
SOON = 0.001
"""Seconds before a deadline from which it has passed: timers are not exact."""
MOST_WHOLE = 4 * 1024 * 1024
"""Characters of an answer that is judged as a whole."""
MAX_RESULT = 1024 * 1024
"""Bytes of the answer of a model that judges."""


class UndecidedError(BackendError):
    """A model wrote something else than a verdict. A text may lead it to that, so it does not open the breaker."""

    blames_endpoint = False
    retryable = False


class GuardCalls:
    """Calls models for the guards of one request, as its client.

    Like the steps of a pipeline, a call draws on those limits of its model that the request's own reservation does not
    cover. Its tokens and its cost are added to those of the request. No guard examines it.
    """

    def __init__(self, exchange: ClientExchange, side: Side) -> None:
        self.side = side
        self.exchange = exchange
        services, snapshot, record = exchange.services, exchange.snapshot, exchange.record
        self.clock = services.clock
        now = services.clock()
        if record.guarding is None:
            record.guarding = StepTrace("", "guards")
        self._spent = record.guarding
        covered = services.ledger.allowances(exchange.facts, exchange.model, now)
        self._models = ClientModelCalls(
            services, snapshot, exchange.principal, covered, Budgets(), record, priced=False
        )
        self._deadline = deadline_of(exchange.decision.timeout, exchange.request, now)
        self._under_way = 0
        self._ended = asyncio.Event()
        """Of the next call that ends."""

    def takes_tensors(self, model: str) -> bool:
        """Whether a model of the file takes tensors."""
        snapshot = self.exchange.snapshot
        resolved = snapshot.catalogue.find(model)
        return resolved is not None and resolved.rules.model in snapshot.tensor_models

    @property
    def left(self) -> float:
        """The seconds that the request itself has, which its client may have limited."""
        return max(0.0, self._deadline.at - self.clock())

    @property
    def are_late(self) -> bool:
        """Whether the request itself has no more time."""
        return self.left < SOON

    def took(self, guard: str, seconds: float) -> None:
        """Note the time of a verdict."""
        record = self.exchange.record
        if record.guard_seconds is None:
            record.guard_seconds = []
        record.guard_seconds.append((guard, seconds))

    async def call(self, model: str, request: ModelRequest, timeout: float) -> Answer:
        """The whole answer of a model within so many seconds. Raises `InferenceError`.

        A limit of concurrency that the other calls of this request have used up is waited for: a text of several
        windows needs no more places than there are.
        """
        while True:
            try:
                return await self._counted(model, request, timeout)
            except LimitExceeded as error:
                if error.limit != "concurrency" or not self._under_way:
                    raise
                ended = self._ended
            await ended.wait()

    async def _counted(self, model: str, request: ModelRequest, timeout: float) -> Answer:
        self._under_way += 1
        try:
            async with asyncio.timeout(min(timeout, self.left)):
                return await self._called(model, request, timeout)
        except TimeoutError:
            raise UpstreamTimeout(f"no verdict within {timeout:g} s") from None
        finally:
            self._under_way -= 1
            self._ended.set()
            self._ended = asyncio.Event()

    async def _called(self, model: str, request: ModelRequest, timeout: float) -> Answer:
        call = self._call(timeout)
        answer = await self._models.call(model, request, call)
        try:
            await _read(answer)
        finally:
            usage, cost = call.trace.spent()  # of the steps of a pipeline that judges
            if usage is not None:
                self._spent.spend(usage, cost)
        return answer

    def _call(self, timeout: float) -> Call:
        exchange, trace = self.exchange, CallTrace()
        trace.spans = exchange.record.trace.spans
        principal = exchange.principal
        standing = exchange.snapshot.standings[principal.tenant]
        at = min(self._deadline.at, self.clock() + timeout)
        return Call(
            Deadline(at, self._deadline.first_byte, self._deadline.idle),
            exchange.record.request_id,
            principal.tenant,
            principal.key_id,
            exchange.headers,
            exchange.snapshot.salts[principal.tenant],
            standing.share,
            priority_of(exchange.decision.priority or standing.priority, exchange.headers),
            trace=trace,
            models=self._models,
            step=self._spent,
        )


async def _read(answer: Answer) -> None:
    """Read a stream to its end: some servers state no length."""
    if answer.body is not None:
        return
    pieces, size = [], 0
    try:
        async for piece in answer:
            pieces.append(piece)
            size += len(piece)
            if size > MAX_RESULT:
                raise BackendError("The answer is too long for a verdict.", code="upstream_bad_response")
    except BaseException:
        await answer.aclose()
        raise
    answer.body = b"".join(pieces)


class Judge(ABC):
    """Decides whether a text is one that a guard is to find. Shared by all requests."""

    joins = False
    """Whether the texts of a request are judged as one."""
    whole = False
    """Whether an answer is judged as a whole only."""

    def __init__(self, config: JudgingGuardConfig) -> None:
        self.timeout = config.timeout
        self.passes = config.on_error == "pass"
        self.window = config.window * CHARACTERS_PER_TOKEN
        self.overlap = config.overlap * CHARACTERS_PER_TOKEN
        self.breaker = Breaker(FAILURES, OPEN_SECONDS)

    def windows(self, texts: Sequence[str]) -> list[str]:
        """The parts of texts that are judged alone."""
        given = ["\n".join(texts)] if self.joins else texts
        return [window for text in given for window in windows_of(text, self.window, self.overlap)]

    @abstractmethod
    async def finds(self, text: str, calls: GuardCalls) -> bool:
        """Whether a text is one to find. Raises `InferenceError` for one that it cannot judge."""

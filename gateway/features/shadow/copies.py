"""Copies of requests: sent behind the client's answer, within bounds, and compared with it.

Nothing of a copy runs before the client's answer has ended, so that a copy neither delays a request nor takes its
slot. A copy that is drawn and not compared is counted by its reason.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from msgspec.structs import replace

from adapters import statuses
from adapters.answer import TappedAnswer
from adapters.base import Answer, Upstream
from adapters.call import Call, ModelCaller
from adapters.errors import InferenceError
from adapters.requests import ModelRequest
from config.schema.config import RolloutArmConfig
from config.schema.copies import TextTestConfig
from gateway.auth.keys import Principal
from gateway.features.shadow.answers import WholeAnswer
from gateway.features.shadow.comparer import AnswerComparer, NoVerdict, accepts_by_model, question_of
from gateway.features.shadow.copied import (
    MOST_ANSWER,
    MOST_BYTES,
    CopiedRequest,
    CopyBudget,
    NotCompared,
    ShadowCopy,
    exclusion,
    read_answer,
    reason_of,
    whole,
)
from gateway.features.shadow.live import CopyPrices, CopySeconds
from gateway.features.shadow.targets import CopyModels, CopyPools
from gateway.request.client_exchange import ClientExchange
from gateway.request.path_parts import deadline_of, rewritten
from gateway.request.services import Services
from gateway.request.spine import Exchange, Observer
from gateway.telemetry.events import cached
from gateway.traffic.arm import ModelArm
from policies.comparison.differences import Differences
from policies.routing.decision import Decision
from policies.routing.rewrite import Rewrite
from policies.shadowing.live import LiveShadow
from policies.shadowing.pairs import AnswerTimes, ShadowSample
from policies.shadowing.planned import ShadowPlan

MOST_REQUEST = 16 * 1024 * 1024
SUFFIX = "-shadow"

_log = logging.getLogger(__name__)


class ShadowCopies:
    """Sends and compares copies. `observe` an answer when it begins; `stop` at the drain."""

    def __init__(
        self,
        pools: CopyPools,
        models: CopyModels,
        comparer: AnswerComparer,
        rng: Random,
        clock: Callable[[], float],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.redact: tuple[str, ...] = ()
        """The kinds of text that samples do not have, besides secrets."""
        self.prices = CopyPrices()
        self.seconds = CopySeconds()
        self._pools = pools
        self._wall = wall
        self._models = models
        self._comparer = comparer
        self._rng = rng
        self.clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False
        self.budget = CopyBudget()

    @property
    def running(self) -> int:
        """The number of copies under way."""
        return len(self._tasks)

    # ── behind a request ──────────────────────────────────────────────────────────────────────────────────

    def watch(self, decision: Decision) -> Observer | None:
        """The observer of a route with a shadow; None for any other route."""
        return None if decision.shadow is None else _Shadowed(self, decision.shadow)

    def observe(self, shadow: LiveShadow, request: CopiedRequest, answer: Answer, *, stored: bool = False) -> Answer:
        """The answer to a drawn request, whose copy is sent when the answer has ended. `stored`: the request stores its
        response, or continues a stored one."""
        if reason := self._refusal(request, answer, stored=stored):
            shadow.drop(reason)
            return answer
        copy = ShadowCopy(shadow, request, answer, self.budget)
        if answer.body is None:
            answer = TappedAnswer(answer, copy)
        else:
            copy.add(answer.body)
        answer.when_ended(lambda _, error: self._ended(copy, error))
        return answer

    def _refusal(self, request: CopiedRequest, answer: Answer, *, stored: bool) -> str:
        """The reason why a request is not copied; empty if it may be."""
        if stored:
            return "state"
        if cached(request.call.trace.events) in ("hit", "coalesced"):
            return "cached"
        if request.received.size > MOST_REQUEST or (answer.body is not None and len(answer.body) > MOST_ANSWER):
            return "size"
        return "memory" if self.budget.held + request.received.size > MOST_BYTES else ""

    def _ended(self, copy: ShadowCopy, error: BaseException | None) -> None:
        shadow = copy.shadow
        copy.ended = self.clock()
        reason = "drain" if self._stopped else "broken" if error is not None else "size" if copy.pieces is None else ""
        if reason or (reason := self._begin(copy)):
            copy.release()
            shadow.drop(reason)
            return
        task = asyncio.get_running_loop().create_task(self._run(copy), name="shadow")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _begin(self, copy: ShadowCopy) -> str:
        """Begin a copy within the bounds. Returns the reason if they refuse it."""
        shadow, received = copy.shadow, copy.request.received
        price = self.prices.of(shadow.plan.model, shadow.plan.to)
        estimate = 0
        if price is not None:
            estimate = price.estimate(received.prompt_tokens, received.max_tokens, received.n).picos
        if (spend := shadow.reserve(estimate, self._wall())) is None:
            return "spend"
        if reason := shadow.begin(self.clock()):
            spend.settle()
            return reason
        copy.spend = spend
        return ""

    # ── one copy ──────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self, copy: ShadowCopy) -> None:
        shadow = copy.shadow
        try:
            await self._compare(copy)
        except asyncio.CancelledError:
            shadow.drop("drain")
            raise
        except NotCompared as end:
            shadow.drop(end.reason)
        except Exception:
            shadow.drop("failed")
            _log.exception("a copy for the shadow %s failed", shadow.name)
        finally:
            copy.release()
            if copy.spend is not None:
                copy.spend.settle()
            shadow.end()

    async def _compare(self, copy: ShadowCopy) -> None:
        shadow, request, first = copy.shadow, copy.request, copy.primary()
        if first is None:
            raise NotCompared("size")
        if reason := exclusion(request.received):
            raise NotCompared(reason)
        to = shadow.plan.to
        primary = shadow.plan.source or RolloutArmConfig(pool=copy.answer.pool)
        if to.pool == copy.answer.pool and to.version is None and to.rewrite is None:
            raise NotCompared("same")
        second: WholeAnswer | None = None
        if shadow.repeats(self._rng):
            other, second = await self._both(self._answer(copy, to), self._answer(copy, primary, repeats=True))
        else:
            other = await self._answer(copy, to)
        differences = await self._differences(copy, first, other)
        repeat_differs = None if second is None else bool(await self._differences(copy, first, second))
        shadow.count(tuple(differences), repeat_differs)
        if copy.times is not None:
            first_byte = request.call.trace.first_chunk - request.began
            times = AnswerTimes(first_byte, copy.ended - request.began)
            shadow.count_times(times, copy.times)
            self.seconds.observe(shadow.name, times, copy.times)
        if differences and shadow.takes_sample(self.clock()):
            with suppress(InferenceError):  # a sample may be lost
                texts = await self._comparer.sample(request.received, first, other, self.redact)
                now = self._wall()
                shadow.add_sample(ShadowSample(now, request.call.id, differences, *texts))

    async def _differences(self, copy: ShadowCopy, first: WholeAnswer, second: WholeAnswer) -> Differences:
        """The differences of an answer from the client's. Raises `NotCompared` if they cannot be decided."""
        compare = copy.shadow.config.compare
        try:
            differing, undecided = await self._comparer.compare(compare, first, second)
            if undecided and await self._accepted(copy, [test for test in compare.text if test.model], undecided):
                differing = {part: text for part, text in differing.items() if part != "text"}
        except (InferenceError, NoVerdict):  # too many comparisons wait, or one fails
            raise NotCompared("comparison") from None
        return differing

    async def _accepted(
        self, copy: ShadowCopy, tests: Sequence[TextTestConfig], pairs: Sequence[tuple[str, str]]
    ) -> bool:
        """Whether models accept all pairs of texts."""
        question = question_of(copy.request.received)

        async def call(model: str, sent: ModelRequest) -> Answer:
            return await CopyExchange(self, copy, RolloutArmConfig(model=model), sent).answer()

        for one, other in pairs:
            for test in tests:
                if await accepts_by_model(test, question, one, other, call):
                    break
            else:
                return False
        return True

    async def _both(
        self, first: Coroutine[Any, Any, WholeAnswer], second: Coroutine[Any, Any, WholeAnswer]
    ) -> tuple[WholeAnswer, WholeAnswer]:
        """Two answers at once. Raises the failure of either."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(first), group.create_task(second)]
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return tasks[0].result(), tasks[1].result()

    async def _answer(self, copy: ShadowCopy, to: RolloutArmConfig, *, repeats: bool = False) -> WholeAnswer:
        """The whole answer of a target, or its refusal of the request. Raises `NotCompared` without an answer."""
        request = copy.request
        sent, plan = (request.sent, None) if repeats else (request.received, copy.shadow.plan)
        exchange = CopyExchange(self, copy, to, sent, plan)
        try:
            answer = await exchange.answer()
            data = await read_answer(answer)
        except InferenceError as error:
            if error.kind in ("caller", "backend"):
                return WholeAnswer(statuses.http_status(error), request.sent.operation)
            raise NotCompared(reason_of(error)) from None
        if not repeats:
            copy.times = AnswerTimes(exchange.first_byte, self.clock() - exchange.sent_at)
        return whole(answer, data, exchange.request.operation)

    def target(self, to: RolloutArmConfig) -> Upstream:
        """The pool or the model that answers copies. Raises `NotCompared` if a reload has removed it."""
        if to.model is not None:
            return ModelArm(to.model)
        if (pool := to.pool or "") not in self._pools:
            raise NotCompared("unavailable")
        return self._pools[pool]

    def caller(self, principal: Principal) -> ModelCaller:
        """Calls the models of copies."""
        return self._models.caller(principal)

    @property
    def services(self) -> Services:
        """Those of copies, which charge nobody."""
        return self._models.services

    # ── end ───────────────────────────────────────────────────────────────────────────────────────────────

    async def stop(self) -> None:
        """Cancel all copies, and send no more."""
        self._stopped = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class CopyExchange(Exchange):
    """One call for a copy. The operator pays: the spend was reserved when the copy began."""

    __slots__ = ("_copies", "_copy", "_plan", "_to", "first_byte", "sent_at")

    def __init__(
        self,
        copies: ShadowCopies,
        copy: ShadowCopy,
        to: RolloutArmConfig,
        request: ModelRequest,
        plan: ShadowPlan | None = None,
    ) -> None:
        super().__init__(copies.services, request)
        self._copies = copies
        self._copy = copy
        self._to = to
        self._plan = plan
        """The changes of the request for the target; None for a request that is sent as it is."""
        self.sent_at = 0.0
        """Monotonic seconds."""
        self.first_byte = 0.0
        """Seconds from there to the begin of the answer."""

    def decide(self) -> None:
        self.upstream = self._copies.target(self._to)

    async def prepare(self) -> None:
        if self._plan is not None:
            self.request = await _prepared(self.request, self._plan)

    async def reserve(self) -> None:
        pass

    def open(self) -> None:
        """The call has the facts of the client, the lowest priority, and a trace of its own."""
        request, copies = self._copy.request, self._copies
        call, self.sent_at = request.call, copies.clock()
        self.call = Call(
            deadline_of(request.timeout, self.request, self.sent_at),
            call.id + SUFFIX,
            call.tenant,
            call.key,
            call.headers,
            call.salt,
            call.share,
            "low",
            models=None if self._to.model is None else copies.caller(request.principal),
        )

    def begun(self, answer: Answer) -> None:
        self.first_byte = self._copies.clock() - self.sent_at

    def ended(self, answer: Answer, error: BaseException | None) -> None:
        """Count the tokens and the cost of an answer on the operator's bill."""
        if error is not None:
            return
        shadow, usage, spend = self._copy.shadow, answer.usage, self._copy.spend
        shadow.tokens["prompt"] += usage.prompt_tokens
        shadow.tokens["completion"] += usage.completion_tokens
        price = self._copies.prices.of(shadow.plan.model, self._to)
        if price is not None and spend is not None:
            cost = price.cost(usage.prompt_tokens, usage.completion_tokens)
            spend.picos += cost.picos
            shadow.charge(cost)

    def failed(self, error: BaseException) -> None:
        pass


class _Shadowed(Observer):
    """A request of a route with a shadow: a share of them is copied."""

    __slots__ = ("_copies", "_shadow")

    def __init__(self, copies: ShadowCopies, shadow: LiveShadow) -> None:
        self._copies = copies
        self._shadow = shadow

    def begun(self, exchange: Exchange, answer: Answer) -> Answer:
        assert isinstance(exchange, ClientExchange)
        decision = exchange.decision
        if not self._shadow.draws(exchange.services.rng, decision.comparison):
            return answer
        copied = CopiedRequest(
            exchange.principal, exchange.received, exchange.request, exchange.call, decision.timeout, exchange.now
        )
        return self._copies.observe(self._shadow, copied, answer, stored=exchange.record.stored)


async def _prepared(sent: ModelRequest, plan: ShadowPlan) -> ModelRequest:
    """The request as the target receives it. The rewrite of a target replaces that of the route."""
    rewrite = plan.to.rewrite or plan.rewrite
    if rewrite is not None:
        sent = await rewritten(Rewrite(rewrite), sent)
    return sent if plan.to.version is None else replace(sent, version=plan.to.version)

"""The stories detect defects: each rule is broken on purpose, and the judge reports it within a few seeds."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from adapters.base import Answer, as_inference_error
from adapters.errors import CallerError, ClientGone, InferenceError, Unavailable
from adapters.http1.exchange import Exchange
from adapters.wire.openai.transcript import Transcript
from gateway.fronts.openai import StreamBody
from gateway.limits.account import Account
from gateway.limits.subjects import in_memory
from gateway.request.client_exchange import ClientExchange
from gateway.telemetry import Telemetry
from gateway.traffic.endpoint import Endpoint, RefusalKey
from gateway.traffic.hedge import _Attempt
from gateway.traffic.pool import Pool
from gateway.traffic.queue import PoolQueue
from gateway.traffic.retry import Retry
from policies.breaker import Breaker
from policies.limits.budget import CalendarBudget
from policies.limits.limits import Concurrency, TokenBucket
from policies.retry import RetryBudget
from policies.routing import rules
from tests.simulation.story import play
from tests.simulation.world import World

Break = Callable[[pytest.MonkeyPatch], None]
SEEDS = 240


def a_lease_is_not_given_back(patch: pytest.MonkeyPatch) -> None:
    end = Endpoint.end

    def forgetful(self: Endpoint, error: BaseException | None, now: float) -> None:
        end(self, error, now)
        self.in_flight += isinstance(as_inference_error(error), ClientGone)

    patch.setattr(Endpoint, "end", forgetful)


def a_reservation_of_a_disconnected_client_is_not_released(patch: pytest.MonkeyPatch) -> None:
    settle = ClientExchange._settle

    def forgetful(self: ClientExchange, *args: Any) -> None:
        if not isinstance(as_inference_error(args[-1]), ClientGone):
            settle(self, *args)

    patch.setattr(ClientExchange, "_settle", forgetful)


def the_estimate_is_charged_and_not_the_truth(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TokenBucket, "settle", lambda self, reserved, actual, now: None)


def limits_look_and_take_later(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TokenBucket, "take", lambda self, n, now: self.wait(n, now))


def more_at_once_than_allowed(patch: pytest.MonkeyPatch) -> None:
    def generous(self: Concurrency) -> bool:
        self.in_flight += 1
        return self.in_flight <= self.limit + 1

    patch.setattr(Concurrency, "take", generous)


def budgets_are_checked_and_not_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CalendarBudget, "take", lambda self, n, now: self.wait(n, now))


def a_reload_fills_every_bucket(patch: pytest.MonkeyPatch) -> None:
    resize = TokenBucket.resize

    def forgiving(self: TokenBucket, amount: float, period: float, now: float) -> None:
        resize(self, amount, period, now)
        self.level = amount

    patch.setattr(TokenBucket, "resize", forgiving)


def a_budget_that_comes_back_is_new(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("gateway.limits.account.units_of", lambda config, owner, subject: ())


def tenants_share_an_account(patch: pytest.MonkeyPatch) -> None:
    shared = Account("t0", {"host": in_memory})
    patch.setattr("gateway.limits.ledger.Account", lambda tenant, stores, drawn: shared)


def a_broken_stream_continues_elsewhere(patch: pytest.MonkeyPatch) -> None:
    call = Retry.call

    class Spliced(Answer):
        __slots__ = ("_again", "_first")

        def __init__(self, first: Answer, again: Callable[[], Any]) -> None:
            super().__init__(content_type=first.content_type, body=None)
            self._first, self._again = first, again
            first.when_ended(lambda _, error: None)

        async def __anext__(self) -> bytes:
            try:
                return await self._first.__anext__()
            except StopAsyncIteration:
                self.end(None)
                raise
            except InferenceError:
                self._first = await self._again()
                return await self._first.__anext__()

        async def aclose(self) -> None:
            await self._first.aclose()
            await super().aclose()

    async def careless(self: Retry, request: Any, attempt: Any) -> Answer:
        answer = await call(self, request, attempt)
        return answer if answer.body is not None else Spliced(answer, lambda: call(self, request, attempt))

    patch.setattr(Retry, "call", careless)


def a_callers_error_blames_the_endpoint(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CallerError, "blames_endpoint", True)


def leaving_blames_the_endpoint(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Breaker, "abandoned", Breaker.failure)


def the_last_endpoint_is_ejected(patch: pytest.MonkeyPatch) -> None:
    def strict(self: Pool, alive: list[Endpoint], subject: RefusalKey, now: float) -> list[Endpoint]:
        raise Unavailable("none is left")

    patch.setattr(Pool, "_reluctant", strict)


def a_refusal_of_one_tenant_counts_for_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tests.simulation.fates.OVERLOADED", (429,))
    patch.setattr(Endpoint, "_is_to_blame", lambda self, error, now, key: True)


def nothing_bounds_retries(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RetryBudget, "allow", lambda self, now: True)


def a_broken_stream_looks_whole(patch: pytest.MonkeyPatch) -> None:
    async def lying(self: StreamBody) -> bytes:
        if self._broken:
            raise StopAsyncIteration
        try:
            return await self._answer.__anext__()
        except InferenceError:
            self._broken = True
            return b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'

    patch.setattr(StreamBody, "__anext__", lying)


def a_broken_stream_just_ends(patch: pytest.MonkeyPatch) -> None:
    async def silent(self: StreamBody) -> bytes:
        try:
            return await self._answer.__anext__()
        except InferenceError:
            raise StopAsyncIteration from None

    patch.setattr(StreamBody, "__anext__", silent)


def a_client_that_leaves_stops_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Exchange, "abort", lambda self: None)


def silence_is_waited_out(patch: pytest.MonkeyPatch) -> None:
    more = Exchange.more
    patch.setattr(Exchange, "more", lambda self, patience=None, forward=None: more(self, 1e6))


def connections_are_used_again_whatever_they_hold(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Exchange, "reusable", property(lambda self: not self._transport.is_closing()))


def ends_are_recorded_twice(patch: pytest.MonkeyPatch) -> None:
    end = Telemetry.end

    def repeating(self: Telemetry, record: Any, *args: Any) -> None:
        record.ended = 0.0
        end(self, record, *args)
        if args[0] is not None:
            record.ended = 0.0
            end(self, record, *args)

    patch.setattr(Telemetry, "end", repeating)


def arms_are_drawn_each_time(patch: pytest.MonkeyPatch) -> None:
    dice = random.Random(1)
    patch.setattr(rules, "arm_choice", lambda sticky, salt, arms: lambda *_: dice.randrange(len(arms)))


def an_error_names_addresses(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pool, "_full", lambda self, tenant, now: Unavailable(self.endpoints[0].address))


def a_reload_is_not_put_to_use(patch: pytest.MonkeyPatch) -> None:
    reload = World.reload

    async def stale(self: World, written: dict[str, Any]) -> None:
        before = self.core.snapshot
        await reload(self, written)
        self.core.snapshot = before

    patch.setattr(World, "reload", stale)


def a_revoked_key_is_accepted(patch: pytest.MonkeyPatch) -> None:
    def forgotten(self: World, name: str) -> None:
        self.revoked[name] = self.loop.time()

    patch.setattr(World, "revoke", forgotten)


def a_task_is_left_behind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("gateway.traffic.fleet.fleet.PoolMember.stop", lambda self: self.endpoint.adapter.aclose())


def a_freed_slot_stays_unused(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PoolQueue, "freed", lambda self: None)


def a_lost_hedge_continues(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_Attempt, "drop", lambda self: None)


def an_answer_is_begun_anew_and_not_carried_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Transcript, "rest", lambda self, request: request.fields)


BREAKS: tuple[tuple[Break, str], ...] = (
    (a_lease_is_not_given_back, "in flight"),
    (a_reservation_of_a_disconnected_client_is_not_released, "at idle"),
    (the_estimate_is_charged_and_not_the_truth, "refused for tokens without a reason"),
    (limits_look_and_take_later, "over its limit"),
    (more_at_once_than_allowed, "concurrency over its limit"),
    (budgets_are_checked_and_not_held, "spend over its limit"),
    (a_reload_fills_every_bucket, "over its limit"),
    (a_budget_that_comes_back_is_new, "spend over its limit"),
    (tenants_share_an_account, "without a reason"),
    (a_broken_stream_continues_elsewhere, "after the first chunk"),
    (a_callers_error_blames_the_endpoint, "sinned"),
    (leaving_blames_the_endpoint, "sinned"),
    (the_last_endpoint_is_ejected, "may take requests"),
    (a_refusal_of_one_tenant_counts_for_all, "earned by others"),
    (nothing_bounds_retries, "retries in ten seconds"),
    (a_broken_stream_looks_whole, "that is not true"),
    (a_broken_stream_just_ends, "either [DONE] or one error"),
    (a_client_that_leaves_stops_nothing, "went on until"),
    (silence_is_waited_out, "kept silent"),
    (connections_are_used_again_whatever_they_hold, ""),
    (ends_are_recorded_twice, "2 ends instead of one"),
    (arms_are_drawn_each_time, "was sent to"),
    (an_error_names_addresses, "too little or too much"),
    (a_reload_is_not_put_to_use, "was in force"),
    (a_revoked_key_is_accepted, "a key that is not valid"),
    (a_task_is_left_behind, "a task is left"),
    (a_freed_slot_stays_unused, "may take requests"),
    (a_lost_hedge_continues, ""),
    (an_answer_is_begun_anew_and_not_carried_on, "in this order"),
)

FIRST: dict[Break, int] = {
    a_refusal_of_one_tenant_counts_for_all: 2030,
    a_reload_fills_every_bucket: 25,
    a_budget_that_comes_back_is_new: 21330,
}
"""Stories that reveal what most others do not: they are played first."""


@pytest.mark.parametrize(("broken", "message"), BREAKS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_rule_is_noticed(broken: Break, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    for seed in (FIRST.get(broken, 0), *range(SEEDS)):
        problems = play(seed).problems
        if any(message in line for line in problems):
            return
    pytest.fail(f"{SEEDS} stories, and none says {message!r}; the last: {problems}")

"""Waiting for a full pool, on virtual time: the order in which free slots are assigned, and the end of every wait."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Sequence
from random import Random
from typing import Any

import pytest

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import (
    BackendError,
    CapacityError,
    DeadlineError,
    InferenceError,
    Overloaded,
    TransportError,
    Unavailable,
)
from adapters.fake import FakeAdapter, Script
from adapters.requests import ChatRequest
from adapters.types import Deadline, Usage
from config.schema.config import QueueConfig, TenantConfig
from gateway.traffic.endpoint import Endpoint
from gateway.traffic.pool import Pool
from gateway.traffic.queue import PoolQueue
from policies.breaker import Breaker
from policies.queueing import NORMAL
from tests.support.deterministic import START
from tests.support.gateways import chat
from tests.support.pools import FOREVER, down, pool, up

SECOND = Script(latency=1.0)


def tenants(**shares: float) -> list[TenantConfig]:
    return [TenantConfig(name=name, models=("*",), share=share) for name, share in shares.items()]


def queued(
    *fakes: FakeAdapter, max_in_flight: int = 1, failures: int = 5, tenants: Sequence[TenantConfig] = (), **queue: Any
) -> Pool:
    section = QueueConfig.model_validate(queue)
    return pool(*fakes, max_in_flight=max_in_flight, failures=failures, queue=section, tenants=tenants)


def queue_of(one: Pool) -> PoolQueue:
    assert one._queue is not None
    return one._queue


def ends(one: Pool) -> dict[str, int]:
    """The number of requests by outcome, over all priorities."""
    total: Counter[str] = Counter()
    for (_, end), count in queue_of(one).ends.items():
        total[end] += count
    return dict(total)


ChatCall = tuple[ChatRequest, Call]
"""A request and its call."""


def chat_call(tenant: str = "t", priority: str | None = None, deadline: Deadline = FOREVER, **fields: Any) -> ChatCall:
    headers = {} if priority is None else {"x-headrace-priority": priority}
    return chat(**fields), Call(deadline, tenant=tenant, headers=headers)


def start(one: Pool, pair: ChatCall | None = None) -> asyncio.Task[Answer]:
    return asyncio.create_task(one.call(*(pair or chat_call())))


async def outcome(call: Awaitable[Answer]) -> str:
    try:
        await call
    except InferenceError as error:
        return error.code
    return "answered"


# ── places ────────────────────────────────────────────────────────────────────────────────────────────


async def test_requests_to_a_full_pool_wait_and_are_served_in_order() -> None:
    fake = FakeAdapter(SECOND)
    one = queued(fake)
    pairs = [chat_call(user=str(i)) for i in range(5)]
    calls = [start(one, each) for each in pairs]
    await asyncio.sleep(0)
    assert (fake.in_flight, queue_of(one).line.size) == (1, 4)
    await asyncio.gather(*calls)
    assert [(played.request, played.call) for played in fake.calls] == pairs
    assert [call.trace.queue_seconds for _, call in pairs] == pytest.approx([0, 1, 2, 3, 4])
    assert [call.trace.upstream_seconds for _, call in pairs] == pytest.approx([1] * 5)
    assert ends(one) == {"served": 4}
    assert queue_of(one).waits.sum == pytest.approx(10)


async def test_a_newcomer_does_not_pass_those_that_wait() -> None:
    """A request arrives at the moment at which a slot becomes free: the slot is already assigned."""
    fake = FakeAdapter(SECOND)
    one = queued(fake)
    first = start(one)
    await asyncio.sleep(0.5)
    waiting = chat_call(user="waiting")
    second = start(one, waiting)
    await first
    newcomer = chat_call(user="newcomer")
    await asyncio.gather(second, start(one, newcomer))
    assert [played.call for played in fake.calls][1:] == [waiting[1], newcomer[1]]


async def test_nor_does_one_that_sees_a_free_place_first() -> None:
    fake = FakeAdapter(Script(fault=CapacityError("x", retry_after=4.0)), SECOND)
    one = queued(fake)
    await outcome(one.call(*chat_call()))
    first = start(one, chat_call(user="first"))
    await asyncio.sleep(0)
    one.endpoints[0].breaker._rest_until = START  # as if its time were over, before any check of it
    second = start(one, chat_call(user="second"))
    await asyncio.gather(first, second)
    assert [call.request.user for call in fake.calls[1:]] == ["first", "second"]


async def test_the_slot_of_a_request_that_leaves_at_once_passes_to_the_next() -> None:
    fake = FakeAdapter(Script(gap=1.0))
    one = queued(fake)
    answer = await one.call(*chat_call(stream=True))
    second, third = start(one), start(one)
    await asyncio.sleep(0)
    await answer.aclose()
    assert (one.endpoints[0].in_flight, queue_of(one).line.size) == (1, 1)  # the second one's, which has not run yet
    second.cancel()
    await third
    assert second.cancelled()
    assert len(fake.calls) == 2
    assert one.endpoints[0].in_flight == 0
    assert ends(one) == {"cancelled": 1, "served": 1}


async def test_a_place_is_not_given_to_one_that_left_just_before() -> None:
    fake = FakeAdapter(Script(gap=1.0))
    one = queued(fake)
    answer = await one.call(*chat_call(stream=True))
    second, third = start(one), start(one)
    await asyncio.sleep(0)
    second.cancel()
    await answer.aclose()
    await third
    assert second.cancelled()
    assert ends(one) == {"cancelled": 1, "served": 1}
    assert queue_of(one).line.size == one.endpoints[0].in_flight == 0


async def test_a_client_that_leaves_is_out_of_the_queue_at_once() -> None:
    fake = FakeAdapter(SECOND)
    one = queued(fake, max=2)
    calls = [start(one) for _ in range(3)]
    await asyncio.sleep(0.1)
    calls[1].cancel()
    await asyncio.sleep(0)
    assert queue_of(one).line.size == 1
    calls.append(start(one))  # there is room again
    await asyncio.gather(calls[0], *calls[2:])
    assert len(fake.calls) == 3


async def test_a_place_at_the_end_of_a_wait_is_taken_or_given_on_and_never_lost() -> None:
    for seconds in (0.999, 1.0, 1.001):
        fake = FakeAdapter(SECOND)
        one = queued(fake, timeout=f"{seconds * 1000:.0f}ms")
        results = [outcome(start(one)) for _ in range(2)]
        assert (await asyncio.gather(*results)).count("answered") + ends(one).get("timeout", 0) == 2
        assert one.endpoints[0].in_flight == queue_of(one).line.size == 0
        assert await outcome(one.call(*chat_call())) == "answered"


async def test_a_place_at_an_endpoint_that_has_become_unhealthy_is_nobodys() -> None:
    fakes = [FakeAdapter(SECOND), FakeAdapter(Script(latency=5.0))]
    one = queued(*fakes)
    calls = [start(one) for _ in range(2)]
    await asyncio.sleep(0.5)
    waiting = start(one)
    quick = next(e for e in one.endpoints if e.adapter is fakes[0])
    down(quick)
    await asyncio.sleep(3)
    assert quick.in_flight == 0
    assert not waiting.done()
    up(quick)  # and a returning endpoint has a slot at once
    await asyncio.sleep(0)
    assert quick.in_flight == 1
    await asyncio.gather(waiting, *calls)


async def test_a_discovered_endpoint_serves_waiting_requests_at_once() -> None:
    one = queued(FakeAdapter(Script(latency=60.0)))
    calls = [start(one) for _ in range(2)]
    await asyncio.sleep(1)
    one.endpoints = [*one.endpoints, Endpoint("p/1", FakeAdapter(), Breaker(5, 10.0))]
    await calls[1]
    assert asyncio.get_running_loop().time() == pytest.approx(START + 1)
    calls[0].cancel()


async def test_requests_without_any_endpoint_are_refused_at_once() -> None:
    one = queued(FakeAdapter(Script(latency=20.0)))
    busy = start(one)
    await asyncio.sleep(0)
    calls = [start(one) for _ in range(3)]
    await asyncio.sleep(1)
    down(one.endpoints[0])
    for call in calls:
        with pytest.raises(Unavailable, match="healthy"):
            await call
    assert asyncio.get_running_loop().time() < START + 2
    assert ends(one) == {"unavailable": 3}
    await busy


async def test_an_open_breaker_that_lets_one_try_again_is_noticed() -> None:
    """Nothing ends in that moment: time alone makes the place."""
    failing, slow = FakeAdapter(Script(fault=BackendError("x")), Script()), FakeAdapter(Script(latency=60.0))
    one = queued(failing, slow, failures=1)
    held = []
    while one.endpoints[0].breaker.state(START) == "closed" or not slow.in_flight:
        held.append(start(one))
        await asyncio.sleep(0)
    request, call = chat_call()
    await one.call(request, call)
    assert call.trace.queue_seconds == pytest.approx(10.0, abs=0.1)
    await asyncio.gather(*held, return_exceptions=True)


@pytest.mark.parametrize("failures", [5, 1])
async def test_the_end_of_a_rest_is_noticed_even_while_the_breaker_stays_open(failures: int) -> None:
    """While every breaker is open, none counts, and the request waits only for the end of the rest."""
    fake = FakeAdapter(Script(fault=CapacityError("x", retry_after=0.2)), Script())
    one = queued(fake, failures=failures, timeout="500ms")
    assert await outcome(start(one)) == "overloaded"
    request, call = chat_call()
    await one.call(request, call)
    assert call.trace.queue_seconds == pytest.approx(0.2, abs=0.01)


async def test_a_request_from_before_a_reload_does_not_wait_beside_a_place_of_the_new_pool() -> None:
    old = queued(FakeAdapter(SECOND))
    new = Pool(
        "p", [Endpoint("p/9", FakeAdapter(), Breaker(5, 10.0))], old._picker,
        max_in_flight=1, queue=queue_of(old), rng=Random(1), clock=asyncio.get_running_loop().time,
    )  # fmt: skip
    first = start(old)
    await asyncio.sleep(0.1)
    assert (await old.call(*chat_call())).endpoint == "p/9"
    assert asyncio.get_running_loop().time() == pytest.approx(START + 0.1)
    assert (await first).endpoint == "p/0"
    assert not queue_of(new).line.size


async def test_a_stream_occupies_its_slot_until_it_ends() -> None:
    one = queued(FakeAdapter(Script(gap=1.0)))
    answer = await one.call(chat(stream=True), Call(FOREVER))
    waiting = start(one)
    await asyncio.sleep(5)
    assert not waiting.done()
    await answer.aclose()
    await waiting


# ── every wait ends ───────────────────────────────────────────────────────────────────────────────────


async def test_a_wait_ends_with_the_queues_timeout() -> None:
    one = queued(FakeAdapter(Script(latency=60.0)), timeout="5s")
    busy = start(one)
    await asyncio.sleep(0)
    request, call = chat_call()
    with pytest.raises(Overloaded) as refused:
        await one.call(request, call)
    assert (refused.value.code, refused.value.kind, refused.value.retryable) == ("queue_timeout", "capacity", True)
    assert refused.value.retry_after is not None
    assert call.trace.queue_seconds == pytest.approx(5)
    assert ends(one) == {"timeout": 1}
    busy.cancel()


async def test_a_wait_ends_with_the_requests_own_time() -> None:
    one = queued(FakeAdapter(Script(latency=60.0)), timeout="5s")
    busy = start(one)
    await asyncio.sleep(0)
    with pytest.raises(DeadlineError):
        await one.call(*chat_call(deadline=Deadline(START + 3, 9, 9)))
    assert asyncio.get_running_loop().time() == pytest.approx(START + 3)
    assert ends(one) == {"deadline": 1}
    busy.cancel()


async def test_the_most_urgent_of_a_tenant_is_next() -> None:
    fake = FakeAdapter(SECOND)
    one = queued(fake)
    calls = [start(one)]
    await asyncio.sleep(0)
    calls += [start(one, chat_call(user=str(at), deadline=Deadline(START + at, 9, 9))) for at in (30, 10, 20)]
    await asyncio.gather(*calls)
    assert [call.request.user for call in fake.calls[1:]] == ["10", "20", "30"]


async def test_a_request_that_would_wait_too_long_is_refused_at_once_with_retry_after() -> None:
    one = queued(FakeAdapter(SECOND), timeout="20s")
    calls = [start(one) for _ in range(16)]
    await asyncio.sleep(10.5)  # ten were served, one a second
    calls += [start(one) for _ in range(15)]
    await asyncio.sleep(0)
    now = asyncio.get_running_loop().time()
    assert queue_of(one).line.size == 20
    with pytest.raises(Overloaded, match="too long") as refused:
        await one.call(*chat_call())
    assert refused.value.retry_after == pytest.approx(21, rel=0.1)
    with pytest.raises(Overloaded, match="too long"):
        await one.call(*chat_call(deadline=Deadline(now + 10, 9, 9)))
    assert asyncio.get_running_loop().time() == now
    other = start(one, chat_call("other", deadline=Deadline(now + 10, 9, 9)))  # another tenant's turn comes much sooner
    await asyncio.gather(other, *calls, return_exceptions=True)
    assert not other.exception()
    assert ends(one) == {"served": 30, "late": 2, "timeout": 1}  # it had the turn of the last one


async def test_a_pace_that_was_once_bad_does_not_refuse_forever() -> None:
    one = queued(FakeAdapter(*[Script(latency=25.0)] * 10, Script(latency=0.1)), timeout="30s")
    for _ in range(9):
        first, second = start(one), start(one)
        await asyncio.gather(first, second)
    results = await asyncio.gather(*(outcome(start(one)) for _ in range(2)))
    assert results == ["answered", "answered"]
    for _ in range(40):
        await asyncio.gather(*(outcome(start(one)) for _ in range(3)))
    assert await asyncio.gather(*(outcome(start(one)) for _ in range(5))) == ["answered"] * 5


# ── room ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_full_queue_refuses_requests_without_precedence() -> None:
    one = queued(FakeAdapter(SECOND), max=2)
    calls = [start(one) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="the queue is full") as refused:
        await one.call(*chat_call())
    assert refused.value.retry_after is not None
    await asyncio.gather(*calls)
    assert ends(one) == {"full": 1, "served": 2}


async def test_a_higher_priority_takes_the_place_of_the_newest_of_the_lowest() -> None:
    fake = FakeAdapter(SECOND)
    one = queued(fake, max=3)
    calls = [start(one)] + [start(one, chat_call(priority=p, user=p + str(i))) for i, p in enumerate(["low"] * 3)]
    await asyncio.sleep(0)
    calls.append(start(one, chat_call(user="normal")))
    with pytest.raises(Overloaded, match="needed its place") as shed:
        await calls[3]
    assert shed.value.retry_after is not None
    await asyncio.gather(*calls[:3], calls[4])
    assert [call.request.user for call in fake.calls[1:]] == ["normal", "low0", "low1"]
    assert queue_of(one).ends["low", "shed"] == 1


async def test_a_flood_fills_its_own_tenants_places_only() -> None:
    one = queued(FakeAdapter(SECOND), max=10, tenants=tenants(flood=1.0, light=1.0))
    flood = [start(one, chat_call("flood")) for _ in range(100)]
    await asyncio.sleep(0)
    light = [start(one, chat_call("light")) for _ in range(3)]
    await asyncio.gather(*light)
    answered = [call for call in flood if call.done() and not call.exception()]
    assert len(answered) <= 5  # one was there before, then in turns
    await asyncio.gather(*flood, return_exceptions=True)
    assert queue_of(one).ends["normal", "shed"] == 3


# ── whose turn ────────────────────────────────────────────────────────────────────────────────────────


async def test_a_client_may_lower_its_priority_and_not_raise_it() -> None:
    gold = TenantConfig(name="gold", models=("*",), priority="high")
    batch = TenantConfig(name="batch", models=("*",), priority="low")
    one = queued(FakeAdapter(SECOND), tenants=[gold, batch])
    band = queue_of(one)._band
    assert [band(chat_call("gold", p)[1]) for p in (None, "high", "normal", "low", "urgent", "")] == [0, 0, 1, 2, 0, 0]
    assert [band(chat_call("batch", p)[1]) for p in (None, "high", "normal", "low")] == [2] * 4
    assert band(Call(FOREVER, tenant="batch", priority="normal")) == 1  # its route's
    assert band(Call(FOREVER, tenant="batch", priority="normal", headers={"x-headrace-priority": "low"})) == 2


async def test_actual_usage_counts_against_a_tenant() -> None:
    """Both tenants send the same requests; one gets long answers, whose length is known only at their end."""
    usage = {"long": Usage(10, 400, exact=True), "short": Usage(10, 10, exact=True)}

    class Answering(FakeAdapter):
        async def call(self, request: Any, call: Call) -> Answer:
            answer = await super().call(request, call)
            answer.usage = usage[call.tenant]
            return answer

    fake = Answering(SECOND)
    one = queued(fake, tenants=tenants(long=1.0, short=1.0), timeout="1h", max=1000)
    calls = [start(one, chat_call(tenant)) for _ in range(100) for tenant in usage]
    await asyncio.sleep(60)
    served = Counter(played.call.tenant for played in fake.calls)
    assert served["short"] > 10 * served["long"] > 10
    await asyncio.gather(*calls)


async def test_a_failure_is_not_charged_and_an_abandoned_request_costs_its_prompt() -> None:
    one = queued(FakeAdapter(SECOND, Script(latency=1.0, fault=BackendError("x")), Script(latency=60.0)))
    first, failing = start(one), start(one, chat_call("failing"))
    await asyncio.gather(first, outcome(failing))
    counter = queue_of(one).line._bands[NORMAL].counter
    assert counter.level("failing") == 0
    busy = start(one)
    leaving = start(one, chat_call("leaving"))
    await asyncio.sleep(0)
    busy.cancel()
    await asyncio.sleep(1)
    charged = counter.level("leaving")
    assert charged >= chat_call()[0].prompt_tokens
    leaving.cancel()
    await asyncio.sleep(0)
    assert counter.level("leaving") == charged


async def test_beside_a_flood_a_tenant_waits_as_long_as_its_share_makes_it() -> None:
    """Four slots, answers of 1 s. One tenant has 200 requests waiting; the other sends one a second, half its share."""
    dice = Random(7)
    fakes = [FakeAdapter(*(Script(latency=dice.uniform(0.5, 1.5)) for _ in range(1000))) for _ in range(2)]
    one = queued(*fakes, max_in_flight=2, tenants=tenants(flood=1.0, light=1.0), timeout="1h", max=500)
    flood = [start(one, chat_call("flood")) for _ in range(200)]
    waits, light = [], []
    for _ in range(120):
        await asyncio.sleep(1)
        light.append((pairs := chat_call("light"), start(one, pairs)))
        flood += [start(one, chat_call("flood")) for _ in range(6)]
    await asyncio.gather(*(task for _, task in light))
    waits = sorted(call.trace.queue_seconds for (_, call), _ in light)
    assert waits[len(waits) // 2] <= 0.5  # two places become free in that time
    assert waits[-1] <= 1.5
    assert queue_of(one).line.size > 300  # and the flood waits
    for call in flood:
        call.cancel()
    await asyncio.gather(*flood, return_exceptions=True)
    assert all(e.in_flight == 0 for e in one.endpoints)


# ── all of it at once ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(4))
async def test_in_a_storm_no_place_is_lost_and_every_wait_has_one_end(seed: int) -> None:
    dice = Random(seed)
    faults = [*[None] * 9, BackendError("x"), TransportError("x"), CapacityError("x", retry_after=0.5)]
    scripts = [Script(latency=dice.uniform(0, 0.5), fault=dice.choice(faults)) for _ in range(400)]
    fakes = [FakeAdapter(*scripts[i::3]) for i in range(3)]
    one = queued(*fakes, max_in_flight=2, failures=3, timeout="800ms", max=12, tenants=tenants(a=1, b=3, c=0.5))
    calls: list[asyncio.Task[Answer]] = []
    for _ in range(400):
        tenant, priority = dice.choice("abc"), dice.choice([None, "low", "normal"])
        now = asyncio.get_running_loop().time()
        calls.append(start(one, chat_call(tenant, priority, Deadline(now + dice.choice([0.3, 5.0]), 9, 9))))
        chance = dice.random()
        if chance < 0.25:
            dice.choice(calls[-20:]).cancel()
        elif chance < 0.3:
            dice.choice([up, down, up])(dice.choice(one.endpoints))
        if chance < 0.6:
            await asyncio.sleep(dice.choice([0, 0, 0.01, 0.1]))
        assert all(e.in_flight <= 2 for e in one.endpoints)
        _assert_no_request_waits_beside_a_free_slot(one)
        await asyncio.gather(*(call for call in calls if call.done()), return_exceptions=True)
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(r, Answer | InferenceError | asyncio.CancelledError) for r in results)
    assert queue_of(one).line.size == 0
    assert all(e.in_flight == 0 for e in one.endpoints)
    assert all(fake.in_flight == 0 for fake in fakes)
    answered = sum(isinstance(r, Answer) for r in results)
    assert answered > 40
    assert ends(one)["served"] > 20
    assert sum(len(fake.calls) for fake in fakes) >= answered


def _assert_no_request_waits_beside_a_free_slot(one: Pool) -> None:
    line, now = queue_of(one).line, asyncio.get_running_loop().time()
    if any(not waiter.turn.done() for waiter in line):
        free = [e for e in one.endpoints if e.health != "unhealthy" and e.in_flight < 2 and e.breaker.allows(now)]
        assert not free or queue_of(one)._look_at <= now + 0.002  # time alone made it, and the look is due

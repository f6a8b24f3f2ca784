"""The settings of a route together: pools, retries, fallbacks, over endpoints with scripted failures."""

import asyncio

import pytest

from adapters.base import Answer
from adapters.errors import BackendError, CapacityError, InferenceError, Resting
from adapters.fake import FakeAdapter, Script
from config.schema.config import Config
from gateway.request.snapshot import Snapshot, build
from gateway.traffic.plan_state import PlanState
from policies.retry import RetryBudget
from tests.support.gateways import Rig, chat, config

POOLS = [{"name": name, "endpoints": ["http://127.0.0.1:9"]} for name in ("main", "spare")]


async def test_a_429_is_honoured_by_the_others_and_by_the_fallback() -> None:
    """The endpoint that named a time gets one request; meanwhile the other endpoint, then the fallback, answer."""
    busy = [FakeAdapter(Script(fault=CapacityError("x", retry_after=20.0))) for _ in range(2)]
    spare = FakeAdapter()
    models = [{"name": "chat", "routes": [{"to": "main", "fallback": ["spare"], "retry": {"attempts": 2}}]}]
    rig = Rig(config(pools=POOLS, models=models), {"main": busy, "spare": [spare]})
    started = asyncio.get_running_loop().time()
    for _ in range(10):
        answer = await rig.core.handle(rig.principal, chat(), {}, rig.record())
        assert answer.pool == "spare"
    assert [len(fake.calls) for fake in busy] == [1, 1]
    assert len(spare.calls) == 10
    assert asyncio.get_running_loop().time() - started < 1.0  # no call waited for the rest to end
    rig.assert_idle()


async def test_a_pool_without_a_fallback_waits_briefly_and_then_sends_retry_after() -> None:
    short = FakeAdapter(Script(fault=CapacityError("x", retry_after=0.5)), Script())
    rig = Rig(config(), {"main": [short]})
    record = rig.record()
    assert (await rig.core.handle(rig.principal, chat(), {}, record)).status == 200
    assert len(record.trace.attempts) == 2
    long = Rig(config(), {"main": [FakeAdapter(Script(fault=CapacityError("x", retry_after=20.0)))]})
    with pytest.raises(CapacityError):
        await long.core.handle(long.principal, chat(), {}, long.record())
    with pytest.raises(Resting) as refused:
        await long.core.handle(long.principal, chat(), {}, long.record())
    assert 19.0 < refused.value.retry_after <= 20.0
    rig.assert_idle()
    long.assert_idle()


async def test_a_reload_grants_no_retries_anew() -> None:
    failing = FakeAdapter(Script(fault=BackendError("x")))
    written = config(models=[{"name": "chat", "routes": [{"to": "main", "retry": {"budget": "0%"}}]}])
    rig = Rig(written, {"main": [failing]})
    state = PlanState()
    for _ in range(20):
        rig.core.snapshot = _rebuilt(rig, written, state)
        with pytest.raises(InferenceError):
            await rig.core.handle(rig.principal, chat(), {}, rig.record())
    assert len(failing.calls) == 20 + RetryBudget(0.0).floor
    rig.assert_idle()


def _rebuilt(rig: Rig, written: Config, state: PlanState) -> Snapshot:
    snapshot = rig.core.snapshot
    return build(written, snapshot.credentials.keys, snapshot.pools, rig.core.rng, rig.core.clock, plan_state=state)


async def test_state_of_removed_routes_is_discarded() -> None:
    state = PlanState()
    first = state.retries(("chat", 0, "main"), 0.2)
    state.retain(config())
    assert state.retries(("chat", 0, "main"), 0.5) is first
    assert first.ratio == 0.5
    state.retain(config(models=[{"name": "other", "routes": [{"to": "main"}]}]))
    assert state.retries(("chat", 0, "main"), 0.5) is not first


async def test_the_overhead_of_a_stream_is_measured_at_its_start() -> None:
    rig = Rig(config(), {"main": [FakeAdapter(Script(latency=3.0))]})
    answer = await rig.core.handle(rig.principal, chat(stream=True), {}, record := rig.record())
    assert record.trace.first_chunk - record.started == record.trace.upstream_seconds == 3.0
    await answer.aclose()
    rig.assert_idle()


def queued(when_full: str) -> tuple[Config, Script]:
    """Two pools that take one request at a time, each with a queue for one more."""
    pools = [
        {"name": name, "endpoints": ["http://127.0.0.1:9"], "queue": {"max_in_flight": 1, "max": 1}}
        for name in ("main", "spare")
    ]
    route = {"to": "main", "fallback": ["spare"], "when_full": when_full, "retry": {"attempts": 1}}
    return config(pools=pools, models=[{"name": "chat", "routes": [route]}]), Script(latency=1.0)


async def answered_by(rig: Rig, requests: int) -> list[str]:
    """The pool of each request, in order; `-` for a refused request."""
    calls = [rig.core.handle(rig.principal, chat(), {}, rig.record()) for _ in range(requests)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(result, Answer | InferenceError) for result in results)
    return [result.pool if isinstance(result, Answer) else "-" for result in results]


async def test_a_full_pool_falls_back_when_its_queue_refuses() -> None:
    configuration, script = queued("wait")
    rig = Rig(configuration, {"main": [FakeAdapter(script)], "spare": [FakeAdapter(script)]})
    assert await answered_by(rig, 5) == ["main", "main", "spare", "spare", "-"]
    rig.assert_idle()


async def test_a_route_may_go_elsewhere_before_it_waits() -> None:
    configuration, script = queued("fallback")
    main, spare = FakeAdapter(script), FakeAdapter(script)
    rig = Rig(configuration, {"main": [main], "spare": [spare]})
    assert await answered_by(rig, 4) == ["main", "spare", "main", "-"]  # the last: main's queue is full
    rig.assert_idle()
    assert len(main.calls) + len(spare.calls) == 3


async def test_no_endpoint_is_tried_twice_after_a_fallback() -> None:
    configuration, script = queued("fallback")
    spare = FakeAdapter(Script(fault=BackendError("x")))
    rig = Rig(configuration, {"main": [FakeAdapter(script)], "spare": [spare]})
    assert sorted(await answered_by(rig, 3)) == ["-", "main", "main"]
    assert len(spare.calls) == 1  # the third found it full
    failing = FakeAdapter(Script(fault=BackendError("x")))
    rig = Rig(configuration, {"main": [failing], "spare": [FakeAdapter(script)]})
    assert await answered_by(rig, 1) == ["spare"]
    assert len(failing.calls) == 1
    rig.assert_idle()


async def test_a_routes_priority_counts_before_its_tenants() -> None:
    configuration, script = queued("wait")
    routes = [
        {"when": {"header": {"x-batch": "yes"}}, "to": "main", "priority": "low"},
        {"to": "main", "priority": "high"},
    ]
    configuration = config(
        pools=[{"name": "main", "endpoints": ["http://127.0.0.1:9"], "queue": {"max_in_flight": 1}}],
        models=[{"name": "chat", "routes": routes}],
    )
    main = FakeAdapter(script)
    rig = Rig(configuration, {"main": [main]})
    batch = {"x-batch": "yes"}
    calls = [rig.core.handle(rig.principal, chat(), headers, rig.record()) for headers in ({}, batch, {}, {})]
    await asyncio.gather(*calls)
    assert [dict(played.call.headers) for played in main.calls] == [{}, {}, {}, batch]
    rig.assert_idle()


async def test_a_hedge_takes_no_place_from_those_that_wait() -> None:
    pool = {"name": "main", "endpoints": ["http://127.0.0.1:9"] * 2, "queue": {"max_in_flight": 1}}
    route = {"to": "main", "hedge": {"after": "500ms", "budget": "100%"}}
    short, long = FakeAdapter(Script(latency=1.0)), FakeAdapter(Script(latency=3.0))
    rig = Rig(config(pools=[pool], models=[{"name": "chat", "routes": [route]}]), {"main": [short, long]})
    records = [rig.record() for _ in range(4)]
    await asyncio.gather(*(rig.core.handle(rig.principal, chat(), {}, record) for record in records))
    # The short answer's slot is reused at 1 s and 2 s. At 3 s no request waits, and none is late.
    assert [record.trace.queue_seconds for record in records] == pytest.approx([0, 0, 1, 2])
    assert [record.trace.events for record in records] == [()] * 4
    assert all(abs(record.overhead) < 1e-6 for record in records)
    rig.assert_idle()

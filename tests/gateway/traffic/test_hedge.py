import asyncio
from random import Random
from typing import Any

import pytest
from prometheus_client import generate_latest

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import BackendError, CallerError, InferenceError, TransportError
from adapters.fake import FakeAdapter, Script
from adapters.requests import ModelQuery, ModelRequest
from policies.hedge import LEAST
from tests.support.gateways import Rig, chat, config, explain, infer

SLOW, QUICK = Script(latency=10.0, gap=1.0), Script(latency=0.1, gap=1.0)


def rig(*fakes: FakeAdapter, hedge: dict[str, Any] | None = None, retry: dict[str, Any] | None = None) -> Rig:
    """Endpoints in turn: the first request goes to either, so tests try until it went to the slow one."""
    pool = {
        "name": "main",
        "endpoints": [f"http://127.0.0.1:{9 + i}" for i in range(len(fakes))],
        "balance": {"by": "round_robin"},
        "breaker": {"failures": 1000},
    }
    route = {"to": "main", "hedge": hedge or {"after": "1s", "budget": "100%"}, "retry": retry or {"attempts": 1}}
    return Rig(config(pools=[pool], models=[{"name": "chat", "routes": [route]}]), {"main": list(fakes)})


async def send(one: Rig, **fields: Any) -> tuple[float, Any]:
    """The seconds until the answer of one request began, and its record at the end."""
    record, started = one.record(), one.core.clock()
    answer = await one.core.handle(one.principal, chat(**fields), {}, record)
    seconds = one.core.clock() - started
    assert [piece async for piece in answer] or answer.body
    return seconds, record


@pytest.mark.parametrize("stream", [False, True])
async def test_another_endpoint_answers_when_the_first_is_late(stream: bool) -> None:
    slow, quick = FakeAdapter(SLOW), FakeAdapter(QUICK)
    one = rig(slow, quick)
    answers = [await send(one, stream=stream) for _ in range(4)]
    assert sorted(round(seconds, 3) for seconds, _ in answers) == [0.1, 0.1, 1.1, 1.1]
    assert {record.endpoint for _, record in answers} == {"main/1"}
    hedged = [record for seconds, record in answers if seconds > 1]
    for record in hedged:
        assert record.trace.events == (("hedge", "main"), ("hedge_win", "main"))
        assert len(record.trace.attempts) == 2
        assert record.trace.upstream_seconds == pytest.approx(1.1)
        assert record.usage is not None
        assert record.usage.total_tokens == 5  # the winner's, once
    await asyncio.sleep(0)
    assert [call.end for call in slow.calls] == ["cancelled"] * 2
    text = generate_latest(one.metrics.registry).decode()
    assert 'headrace_hedges_total{pool="main"} 2.0' in text
    assert 'headrace_hedge_wins_total{pool="main"} 2.0' in text
    assert [line.hedged for line in one.log.lines if line.hedged] == [1, 1]
    one.assert_idle()


async def test_an_answer_that_begins_in_time_is_not_hedged_however_long_it_then_takes() -> None:
    fakes = [FakeAdapter(Script(latency=0.9, gap=20.0)) for _ in range(2)]
    one = rig(*fakes)
    for _ in range(4):
        _, record = await send(one, stream=True)
        assert record.trace.events == ()
    assert sum(len(fake.calls) for fake in fakes) == 4
    one.assert_idle()


async def test_the_first_may_still_win() -> None:
    late, dead = FakeAdapter(Script(latency=2.0)), FakeAdapter(Script(latency=9.0))
    one = rig(late, dead)
    for _ in range(2):
        seconds, record = await send(one)
        assert seconds in (2.0, 3.0)
        assert record.endpoint == "main/0"
        assert ("hedge", "main") in record.trace.events
    await asyncio.sleep(0)
    one.assert_idle()


async def test_two_that_begin_in_the_same_moment_are_one_answer() -> None:
    """The hedge begins its answer exactly when the first does: one is used, the other closed."""
    one = rig(*(FakeAdapter(Script(latency=seconds, gap=1.0)) for seconds in (2.0, 1.0)))
    for _ in range(4):
        await send(one, stream=True)
    await asyncio.sleep(1)
    one.assert_idle()


async def test_a_failure_waits_for_the_other_and_a_caller_s_mistake_does_not() -> None:
    failing = FakeAdapter(Script(latency=2.0, fault=TransportError("x")))
    slow = FakeAdapter(Script(latency=5.0))
    one = rig(failing, slow)
    for _ in range(2):
        _, record = await send(one)
        assert record.endpoint == "main/1"
    wrong = FakeAdapter(Script(latency=2.0, fault=CallerError("x")))
    two = rig(wrong, FakeAdapter(Script(latency=50.0)))
    for _ in range(2):
        started = two.core.clock()
        with pytest.raises(CallerError):
            await send(two)
        assert two.core.clock() - started <= 3.0
    both = rig(failing, FakeAdapter(Script(latency=5.0, fault=BackendError("x"))))
    with pytest.raises(InferenceError):
        await send(both)
    for used in (one, two, both):
        used.assert_idle()


async def test_a_client_that_leaves_stops_both_and_pays_for_its_prompt() -> None:
    fakes = [FakeAdapter(Script(latency=60.0)) for _ in range(2)]
    one = rig(*fakes)
    record = one.record()
    task = asyncio.create_task(one.core.handle(one.principal, chat(), {}, record))
    await asyncio.sleep(5)
    assert [fake.in_flight for fake in fakes] == [1, 1]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    one.assert_idle()  # released before the call returns
    assert record.usage is not None
    assert record.usage.prompt_tokens > 0


async def test_hedges_are_a_share_of_requests() -> None:
    fakes = [FakeAdapter(Script(latency=4.0)) for _ in range(4)]
    one = rig(*fakes, hedge={"after": "1s", "budget": "5%"})

    async def later(i: int) -> None:
        await asyncio.sleep(i * 0.01)
        await send(one)

    await asyncio.gather(*(later(i) for i in range(400)))
    await asyncio.sleep(0)
    hedges = sum(len(fake.calls) for fake in fakes) - 400
    assert 10 <= hedges <= 3 + 0.05 * 400
    one.assert_idle()


async def test_no_hedge_uses_the_endpoint_of_the_first_attempt() -> None:
    one = rig(FakeAdapter(Script(latency=5.0)), FakeAdapter())
    one.endpoints["main"][1].probed("down", healthy_after=1, unhealthy_after=1)
    _, record = await send(one)
    assert record.trace.events == ()
    assert len(record.trace.attempts) == 1


async def test_p95_is_measured_and_counts_abandoned_attempts() -> None:
    """One of twenty is slow. The measured p95 stays true, although the gateway never waits for the slow attempts."""
    dice = Random(7)

    def script() -> Script:
        return Script(latency=10.0 if dice.random() < 0.05 else dice.uniform(0.1, 0.2))

    one = rig(*(FakeAdapter(*[script() for _ in range(1000)]) for _ in range(3)), hedge={"budget": "100%"})
    durations = [(await send(one))[0] for _ in range(1000)]
    hedged = [seconds for seconds, record in zip(durations, one.log.records, strict=True) if record.trace.events]
    assert 0.02 * 1000 <= len(hedged) <= 0.10 * 1000
    assert min(hedged[-20:]) > 0.19 + 0.1  # a hedge begins where 95% have begun, and then takes its own time
    late = sum(seconds > 1 for seconds in durations[LEAST:])
    assert late <= 0.01 * 1000  # both were slow: one of four hundred
    await asyncio.sleep(0)
    one.assert_idle()


class Tensors(FakeAdapter):
    """A server whose predictions may be late, and whose other answers take as long as ninety of them."""

    late = 0.0

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        slow = isinstance(request, ModelQuery) or request.operation == "explain"
        await asyncio.sleep(9.0 if slow else self.late)
        return await super().call(request, call)


@pytest.mark.parametrize("other", [explain(), ModelQuery(model="chat")], ids=["explanation", "metadata"])
async def test_other_requests_are_not_hedged_and_do_not_delay_the_hedges_of_predictions(other: ModelRequest) -> None:
    fakes = [Tensors(Script(latency=0.1)), Tensors(Script(latency=0.1))]
    one = rig(*fakes, hedge={"budget": "100%"})

    async def ask(request: ModelRequest) -> Any:
        record = one.record()
        await one.core.handle(one.principal, request, {}, record)
        return record

    for _ in range(LEAST):
        for request in (infer(), other, other):
            assert (await ask(request)).trace.events == ()
    fakes[0].late = fakes[1].late = 5.0
    record = await ask(infer())
    assert record.trace.events[0] == ("hedge", "main")
    assert (await ask(other)).trace.events == ()
    await asyncio.sleep(0)
    one.assert_idle()


async def test_retries_and_hedges_together_stay_within_both_budgets() -> None:
    """Everything slow, then failed: neither multiplies the other."""
    fakes = [FakeAdapter(Script(latency=2.0, fault=BackendError("x"))) for _ in range(6)]
    one = rig(*fakes, hedge={"after": "1s", "max": 3, "budget": "10%"}, retry={"attempts": 4, "budget": "20%"})

    async def later(i: int) -> None:
        await asyncio.sleep(i * 0.02)
        with pytest.raises(BackendError):
            await send(one)

    await asyncio.gather(*(later(i) for i in range(200)))
    calls = sum(len(fake.calls) for fake in fakes)
    retries = 3 + 0.2 * 200
    assert 200 < calls <= 200 + retries + 3 + 0.1 * (200 + retries)
    one.assert_idle()

"""Requests that wait for the first replica of a pool, on virtual time."""

import asyncio
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.call import Call
from adapters.errors import InferenceError, Unavailable
from adapters.fake import FakeAdapter
from adapters.types import Deadline
from config.schema.config import BalanceConfig, QueueConfig
from config.schema.runtimes.replicas import ReplicasConfig
from gateway.traffic.cold import FAILED, STARTING, ColdStart
from gateway.traffic.endpoint import Endpoint
from gateway.traffic.meter import PoolMeter
from gateway.traffic.pool import Pool
from gateway.traffic.queue import PoolQueue
from gateway.traffic.standing import PoolStanding
from policies.balancing.pickers import picker
from policies.breaker import Breaker
from tests.support.gateways import chat


class ColdPool:
    """A pool without a replica."""

    def __init__(self, **replicas: object) -> None:
        clock = asyncio.get_running_loop().time
        self.config = ReplicasConfig.model_validate({"min": 0, "max": 2, **replicas})
        self.cold = ColdStart("main", self.config, clock)
        self.queue = PoolQueue("main", QueueConfig(max=8), (), clock)
        self.meter = PoolMeter()
        self.pool = Pool(
            "main", [], picker(BalanceConfig()), max_in_flight=4, queue=self.queue, meter=self.meter, cold=self.cold,
            rng=Random(1), clock=clock,
        )  # fmt: skip

    def serve(self) -> Endpoint:
        """A replica starts and is healthy."""
        endpoint = Endpoint("main/0", FakeAdapter(), Breaker(5, 10.0))
        endpoint.probed("The runtime is starting.", healthy_after=1, unhealthy_after=1)
        self.pool.endpoints = [endpoint]
        endpoint.probed("", healthy_after=1, unhealthy_after=1)
        return endpoint

    async def call(self, total: float = 60.0, tenant: str = "acme") -> bytes:
        deadline = Deadline(asyncio.get_running_loop().time() + total, total, total)
        answer = await self.pool.call(chat(), Call(deadline, tenant=tenant))
        body = b"".join([chunk async for chunk in answer]) if answer.body is None else bytes(answer.body)
        await answer.aclose()
        return body

    def error(self, done: asyncio.Task[bytes]) -> InferenceError:
        error = done.exception()
        assert isinstance(error, InferenceError)
        return error


def sent(pool: ColdPool, count: int, total: float = 60.0) -> list[asyncio.Task[bytes]]:
    return [asyncio.create_task(pool.call(total, f"tenant-{at % 3}")) for at in range(count)]


async def test_requests_wait_for_the_first_replica_and_are_all_answered() -> None:
    cold = ColdPool()
    calls = sent(cold, 50)
    await asyncio.sleep(30)
    assert cold.pool.waiting == 50
    endpoint = cold.serve()
    await asyncio.gather(*calls)
    assert (endpoint.in_flight, cold.queue.size, cold.meter.begun) == (0, 0, 50)


async def test_a_request_waits_until_its_own_deadline_and_learns_the_measured_time() -> None:
    cold = ColdPool()
    cold.cold.report(PoolStanding(pool="main", running=1, starting=0.0))
    [early] = sent(cold, 1, total=5)
    await asyncio.sleep(6)
    error = cold.error(early)
    assert (error.code, error.kind) == (STARTING, "capacity")
    cold.cold.report(PoolStanding(pool="main", running=1, start_seconds=40.0, starting=6.0))
    [hopeless] = sent(cold, 1, total=20)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert hopeless.done(), "it waited although no replica serves in time"
    assert cold.error(hopeless).retry_after == pytest.approx(34, abs=1)
    [patient] = sent(cold, 1, total=40)
    await asyncio.sleep(33)
    cold.serve()
    await patient


async def test_a_start_that_fails_is_reported_to_all_that_wait() -> None:
    cold = ColdPool()
    calls = sent(cold, 5)
    await asyncio.sleep(1)
    cold.cold.report(PoolStanding(pool="main", running=1, failure="replica 0 ended with status 3"))
    cold.queue.changed()
    await asyncio.wait(calls)
    for call in calls:
        assert cold.error(call).code == FAILED
        assert "replica 0 ended with status 3" in cold.error(call).message
    with pytest.raises(Unavailable, match="does not start"):
        await cold.call()
    assert cold.queue.size == 0
    assert cold.meter.take().missed == 6, "demand for a model that fails is demand"
    cold.cold.report(PoolStanding(pool="main", running=1, starting=0.0))
    cold.serve()
    await cold.call()


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 20), st.integers(1, 60), st.integers(1, 4000))
def test_the_requests_that_wait_are_bounded_in_number_and_size(held: int, count: int, size: int) -> None:
    async def run() -> None:
        one = chat().size
        cold = ColdPool(max_held=held, max_held_size=f"{size}B")
        calls = sent(cold, count)
        for _ in range(5):
            await asyncio.sleep(0)
            assert cold.pool.waiting <= held
            assert cold.pool.waiting * one <= size
        refused = [call for call in calls if call.done()]
        assert len(refused) + cold.pool.waiting == count
        assert all(cold.error(call).code == STARTING for call in refused)
        cold.serve()
        await asyncio.gather(*(call for call in calls if call not in refused))
        assert (cold.queue.size, cold.pool.waiting) == (0, 0)
        cold.queue.stop()

    asyncio.run(run())


async def test_a_client_that_leaves_frees_its_place() -> None:
    cold = ColdPool(max_held=1)
    [leaving] = sent(cold, 1)
    await asyncio.sleep(1)
    leaving.cancel()
    await asyncio.wait([leaving])
    assert (cold.pool.waiting, cold.queue.size) == (0, 0)
    [next_one] = sent(cold, 1)
    await asyncio.sleep(0.1)
    cold.serve()
    await next_one

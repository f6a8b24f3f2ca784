import asyncio
import contextlib

import pytest

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    InferenceError,
    Resting,
    TransportError,
    Unavailable,
)
from adapters.fake import FakeAdapter, Script
from config.schema.config import BalanceConfig, ProbeConfig
from gateway.traffic.endpoint import Endpoint
from gateway.traffic.fleet.member import check
from policies.breaker import Breaker
from tests.support.deterministic import START
from tests.support.gateways import chat
from tests.support.pools import FOREVER, down, pool, up


async def drained(answer: Answer) -> bytes:
    return b"".join([piece async for piece in answer])


async def test_a_lease_lasts_as_long_as_the_stream() -> None:
    fake = FakeAdapter(Script(gap=1.0))
    one = pool(fake)
    answer = await one.call(chat(stream=True), Call(FOREVER))
    assert one.endpoints[0].in_flight == 1
    await drained(answer)
    assert one.endpoints[0].in_flight == 0
    abandoned = await one.call(chat(stream=True), Call(FOREVER))
    await abandoned.aclose()
    await abandoned.aclose()
    assert one.endpoints[0].in_flight == 0
    assert fake.calls[-1].end == "cancelled"


async def test_cancelling_a_call_gives_the_lease_back() -> None:
    one = pool(FakeAdapter(Script(latency=60.0)))
    task = asyncio.create_task(one.call(chat(), Call(FOREVER)))
    await asyncio.sleep(1)
    assert one.endpoints[0].in_flight == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert one.endpoints[0].in_flight == 0
    assert one.endpoints[0].breaker.state(START + 2.0) == "closed"


@pytest.mark.parametrize("fault", [BackendError("x"), TransportError("x"), CapacityError("x")])
async def test_failures_that_blame_the_endpoint_shift_the_load(fault: InferenceError) -> None:
    bad, good = FakeAdapter(Script(fault=fault)), FakeAdapter()
    two = pool(bad, good, failures=3)
    for _ in range(30):
        with contextlib.suppress(InferenceError):
            await two.call(chat(), Call(FOREVER))
    assert len(bad.calls) == 3
    assert len(good.calls) == 27


async def test_a_flood_of_caller_errors_opens_nothing() -> None:
    two = pool(FakeAdapter(Script(fault=CallerError("x"))), FakeAdapter(Script(fault=CallerError("x"))))
    for _ in range(50):
        with pytest.raises(CallerError):
            await two.call(chat(), Call(FOREVER))
    assert all(e.breaker.state(START + 1.0) == "closed" for e in two.endpoints)


async def test_a_break_in_mid_stream_counts_against_the_endpoint() -> None:
    one = pool(FakeAdapter(Script(fault=TransportError("x"), fault_after=1)), failures=1)
    answer = await one.call(chat(stream=True), Call(FOREVER))
    with pytest.raises(TransportError):
        await drained(answer)
    assert one.endpoints[0].breaker.state(asyncio.get_running_loop().time()) == "open"
    assert one.endpoints[0].in_flight == 0


async def test_the_last_endpoints_are_never_left_out_by_breakers() -> None:
    fake = FakeAdapter(*[Script(fault=BackendError("x"))] * 5, Script())
    one = pool(fake, failures=1)
    for _ in range(5):
        with pytest.raises(BackendError):
            await one.call(chat(), Call(FOREVER))
    assert (await one.call(chat(), Call(FOREVER))).body is not None
    assert one.endpoints[0].breaker.state(asyncio.get_running_loop().time()) == "closed"


async def test_unhealthy_and_full_endpoints_are_not_picked() -> None:
    ill, busy = FakeAdapter(), FakeAdapter(Script(latency=10.0))
    two = pool(ill, busy, max_in_flight=2)
    down(two.endpoints[0])
    tasks = [asyncio.create_task(two.call(chat(), Call(FOREVER))) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="full") as refused:
        await two.call(chat(), Call(FOREVER))
    assert refused.value.retry_after
    await asyncio.gather(*tasks)
    assert ill.calls == []
    down(two.endpoints[1])
    with pytest.raises(Unavailable, match="healthy"):
        await two.call(chat(), Call(FOREVER))


async def test_an_endpoint_that_failed_this_request_is_avoided() -> None:
    bad, good = FakeAdapter(Script(fault=BackendError("x"))), FakeAdapter()
    two = pool(bad, good, failures=1000)
    for _ in range(20):
        call = Call(FOREVER)
        call.tried.append("p/0")
        assert (await two.call(chat(), call)).endpoint == "p/1"


async def test_an_endpoint_gets_no_requests_until_its_retry_after() -> None:
    full, other = FakeAdapter(Script(fault=CapacityError("x", retry_after=10.0)), Script()), FakeAdapter()
    two = pool(full, other, failures=1000, balance=BalanceConfig(by="round_robin"))
    first = Call(FOREVER)
    first.tried.append("p/1")
    with pytest.raises(CapacityError):
        await two.call(chat(), first)
    for _ in range(9):
        await asyncio.sleep(1)
        assert (await two.call(chat(), Call(FOREVER))).endpoint == "p/1"
    await asyncio.sleep(1)
    assert {(await two.call(chat(), Call(FOREVER))).endpoint for _ in range(2)} == {"p/0", "p/1"}


async def test_the_refusal_has_the_earliest_retry_after_of_all_endpoints() -> None:
    fakes = [FakeAdapter(Script(fault=CapacityError("x", retry_after=wait))) for wait in (20.0, 5.0)]
    two = pool(*fakes, failures=1, balance=BalanceConfig(by="round_robin"))
    for _ in range(2):
        with pytest.raises(CapacityError):
            await two.call(chat(), Call(FOREVER))
    with pytest.raises(Resting) as refused:
        await two.call(chat(), Call(FOREVER))
    assert refused.value.retry_after == 5.0  # with every breaker open none of them counts
    assert [len(fake.calls) for fake in fakes] == [1, 1]
    await asyncio.sleep(5.0)
    with pytest.raises(CapacityError):
        await two.call(chat(), Call(FOREVER))
    assert [len(fake.calls) for fake in fakes] == [1, 2]


async def test_a_refusal_that_names_no_time_is_no_rest() -> None:
    one = pool(FakeAdapter(Script(fault=CapacityError("x")), Script()), failures=1)
    with pytest.raises(CapacityError):
        await one.call(chat(), Call(FOREVER))
    assert (await one.call(chat(), Call(FOREVER))).body is not None


async def test_a_returning_endpoint_climbs_to_its_weight() -> None:
    fakes = [FakeAdapter() for _ in range(2)]
    two = pool(*fakes, balance=BalanceConfig(by="round_robin", slow_start="100s"))
    await two.call(chat(), Call(FOREVER))
    await asyncio.sleep(100)
    await two.call(chat(), Call(FOREVER))
    assert [e.weight for e in two.endpoints] == [1.0, 1.0]
    down(two.endpoints[0])
    await asyncio.sleep(1000)
    up(two.endpoints[0])
    weights = []
    for _ in range(4):
        await two.call(chat(), Call(FOREVER))
        weights.append(two.endpoints[0].weight)
        await asyncio.sleep(40)
    assert weights == pytest.approx([0.1, 0.4, 0.8, 1.0])
    assert two.endpoints[1].weight == 1.0


async def test_one_in_its_slow_start_gets_little() -> None:
    fakes = [FakeAdapter() for _ in range(2)]
    two = pool(*fakes, balance=BalanceConfig(by="round_robin", slow_start="1h"))
    two.endpoints[1].configure(1.0, 0.0)
    for _ in range(110):
        await two.call(chat(), Call(FOREVER))
    assert len(fakes[0].calls) == 10


async def test_an_endpoint_starts_slowly_after_its_breaker_closes() -> None:
    two = pool(
        FakeAdapter(Script(fault=BackendError("x")), Script()),
        FakeAdapter(),
        failures=1,
        balance=BalanceConfig(by="round_robin", slow_start="10s"),
    )
    await asyncio.sleep(1)
    for _ in range(2):
        with contextlib.suppress(InferenceError):
            await two.call(chat(), Call(FOREVER))
    await asyncio.sleep(60)
    for _ in range(3):
        await two.call(chat(), Call(FOREVER))
    assert [e.weight for e in two.endpoints] == [0.1, 1.0]


async def test_health_is_ignored_when_too_few_are_healthy() -> None:
    fakes = [FakeAdapter() for _ in range(4)]
    four = pool(*fakes, balance=BalanceConfig(by="round_robin", panic="50%"))
    down(four.endpoints[0])
    down(four.endpoints[1])
    for _ in range(8):
        await four.call(chat(), Call(FOREVER))
    assert [len(f.calls) for f in fakes] == [0, 0, 4, 4]
    down(four.endpoints[2])
    for _ in range(8):
        await four.call(chat(), Call(FOREVER))
    assert min(len(f.calls) for f in fakes) >= 2
    down(four.endpoints[3])
    assert (await four.call(chat(), Call(FOREVER))).body is not None


async def test_breakers_still_open_during_a_panic() -> None:
    dead, alive = FakeAdapter(Script(fault=TransportError("x"))), FakeAdapter()
    two = pool(dead, alive, failures=3, balance=BalanceConfig(panic="100%"))
    down(two.endpoints[0])
    for _ in range(30):
        with contextlib.suppress(InferenceError):
            await two.call(chat(), Call(FOREVER))
    assert len(dead.calls) == 3
    assert len(alive.calls) == 27


async def test_latency_is_the_time_to_the_first_chunk_and_shifts_the_load() -> None:
    slow, quick = FakeAdapter(Script(latency=4.0, gap=9.0)), FakeAdapter(Script(latency=0.5, gap=9.0))
    two = pool(slow, quick, balance=BalanceConfig(by="peak_ewma"))
    for _ in range(10):
        await drained(await two.call(chat(stream=True), Call(FOREVER)))
    await asyncio.gather(*(two.call(chat(), Call(FOREVER)) for _ in range(90)))
    now = asyncio.get_running_loop().time()
    assert 0 < two.endpoints[1].latency.value(now) <= 0.5
    assert 0 < two.endpoints[0].latency.value(now) <= 4.0
    assert len(quick.calls) > 3 * len(slow.calls) > 0


async def test_a_quick_failure_leaves_an_endpoint_as_slow_as_it_was() -> None:
    one = pool(FakeAdapter(Script(latency=2.0), Script(fault=BackendError("x")), Script(fault=CallerError("x"))))
    await one.call(chat(), Call(FOREVER))
    for _ in range(2):
        with pytest.raises(InferenceError):
            await one.call(chat(), Call(FOREVER))
    assert one.endpoints[0].latency.value(asyncio.get_running_loop().time()) == 2.0


async def test_a_burst_counts_its_own_requests_under_any_balance() -> None:
    for balance, most in (
        (BalanceConfig(), 28),
        (BalanceConfig(by="round_robin"), 25),
        (BalanceConfig(by="peak_ewma"), 45),
        (BalanceConfig(by="hash", key="user"), 45),
        (BalanceConfig(by="prefix_affinity"), 45),
    ):
        fakes = [FakeAdapter(Script(latency=1.0)) for _ in range(4)]
        four = pool(*fakes, balance=balance)
        same = chat(user="u", messages=[{"role": "user", "content": "x" * 5000}])
        await asyncio.gather(*(four.call(same, Call(FOREVER)) for _ in range(100)))
        assert max(len(f.calls) for f in fakes) <= most, balance.by
        assert all(e.in_flight == 0 for e in four.endpoints)


@pytest.mark.parametrize(("unhealthy_after", "healthy_after"), [(1, 1), (2, 3)])
def test_health_follows_consecutive_probes(unhealthy_after: int, healthy_after: int) -> None:
    endpoint = Endpoint("p/0", FakeAdapter(), Breaker(1, 1.0))
    need = {"healthy_after": healthy_after, "unhealthy_after": unhealthy_after}
    for i in range(unhealthy_after):
        assert endpoint.health == "unknown"
        assert endpoint.probed("down", **need) == (i == unhealthy_after - 1)
    assert endpoint.health == "unhealthy"
    for i in range(healthy_after):
        assert endpoint.health == "unhealthy"
        assert endpoint.probed("", **need) == (i == healthy_after - 1)
    assert str(endpoint.health) == "healthy"


async def test_a_health_check_leaves_the_load_alone() -> None:
    """Only requests change the count in flight; reports of health checks do not."""
    slow = FakeAdapter(Script(latency=10.0))
    one = pool(slow)
    (endpoint,) = one.endpoints
    calls = [asyncio.create_task(one.call(chat(), Call(FOREVER))) for _ in range(3)]
    await asyncio.sleep(0)
    for healthy in (True, False, False, True):
        slow.healthy = healthy
        await check(endpoint, ProbeConfig())
        assert endpoint.in_flight == slow.in_flight == 3
    await asyncio.gather(*calls)
    assert endpoint.in_flight == 0

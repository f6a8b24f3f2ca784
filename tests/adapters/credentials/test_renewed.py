"""A value that expires: renewed ahead of its expiry, once for all requests, and never on their path."""

import asyncio
import gc
from collections.abc import Callable

import pytest

from adapters.credentials.renewed import LONGEST_PAUSE, WAIT, Issued, RenewalError, Renewed
from adapters.errors import Unavailable

pytestmark = pytest.mark.looptime


class Source:
    """Issues 1, 2 and so on, each after `takes` seconds; `fails` decides whether the next one fails."""

    def __init__(self, lifetime: float = 3600.0, takes: float = 1.0) -> None:
        self.lifetime, self.takes = lifetime, takes
        self.times: list[float] = []
        self.fails: Callable[[], bool] = lambda: False

    async def issue(self) -> Issued[int]:
        self.times.append(asyncio.get_running_loop().time())
        number = len(self.times)
        await asyncio.sleep(self.takes)
        if self.fails():
            raise RenewalError("the issuer is down")
        return Issued(number, self.lifetime)

    def renewed(self) -> Renewed[int]:
        return Renewed("a source", self.issue, lambda number: [str(number)])


async def test_many_requests_wait_for_one_first_value() -> None:
    source = Source()
    renewed = source.renewed()
    assert await asyncio.gather(*(renewed.get("main") for _ in range(50))) == [1] * 50
    assert len(source.times) == 1


@pytest.mark.parametrize("lifetime", [10.0, 300.0, 3600.0, 6 * 3600.0])
async def test_it_is_renewed_before_it_expires_without_a_wait(lifetime: float) -> None:
    source = Source(lifetime, takes=0.5)
    renewed = source.renewed()
    first = await renewed.get("main")
    loop = asyncio.get_running_loop()
    for _ in range(200):
        await asyncio.sleep(lifetime / 20)
        begun = loop.time()
        assert await renewed.get("main") >= first
        assert loop.time() == begun
    gaps = [later - earlier for earlier, later in zip(source.times, source.times[1:], strict=False)]
    assert all(0.5 * lifetime <= gap < lifetime for gap in gaps)
    assert len(gaps) >= 9


async def test_an_outage_shorter_than_the_rest_of_the_lifetime_is_not_noticed() -> None:
    source = Source(1000.0)
    renewed = source.renewed()
    await renewed.get("main")
    source.fails = lambda: asyncio.get_running_loop().time() < 900.0
    for _ in range(300):
        await asyncio.sleep(10.0)
        await renewed.get("main")
    assert sum(1.0 < at < 890.0 for at in source.times) >= 2  # the renewals of the outage, which failed


async def test_an_outage_refuses_requests_at_once_and_ends_by_itself() -> None:
    source, loop = Source(100.0, takes=0.0), asyncio.get_running_loop()
    renewed = source.renewed()
    await renewed.get("main")
    source.fails = lambda: loop.time() < 1000.0
    await asyncio.sleep(101.0)
    begun = loop.time()
    for _ in range(1000):
        with pytest.raises(Unavailable, match="`main`") as raised:
            await renewed.get("main")
    assert loop.time() == begun
    assert raised.value.detail == "credentials of a source: the issuer is down"
    assert raised.value.reason_of_refusal is not None
    assert raised.value.reason_of_refusal.cause == "upstream_credentials"
    assert 0 < (raised.value.retry_after or 0) <= LONGEST_PAUSE
    await asyncio.sleep(1000.0 + 2 * LONGEST_PAUSE - loop.time())
    assert renewed.valid is not None
    assert len(source.times) < 40  # the pauses double


async def test_a_request_waits_for_a_slow_issuer_for_a_bounded_time() -> None:
    source, loop = Source(takes=60.0), asyncio.get_running_loop()
    renewed = source.renewed()
    begun = loop.time()
    with pytest.raises(Unavailable):
        await renewed.get("main")
    assert loop.time() - begun == pytest.approx(WAIT)
    waiting = asyncio.create_task(renewed.get("main"))
    await asyncio.sleep(1.0)
    waiting.cancel()  # a client that leaves does not end the renewal
    await asyncio.sleep(60.0)
    assert await renewed.get("main") == 1


async def test_an_unreferenced_value_is_not_renewed() -> None:
    source = Source(100.0)
    renewed = source.renewed()
    await renewed.get("main")
    del renewed
    gc.collect()
    await asyncio.sleep(1000.0)
    assert len(source.times) == 1


async def test_a_value_without_expiry_is_made_once() -> None:
    made = Renewed("a file", lambda: _constant("k"), lambda key: [key])
    assert await made.get("main") == "k"
    await asyncio.sleep(1e7)
    assert await made.get("main") == "k"


async def _constant(value: str) -> Issued[str]:
    return Issued(value, None)


async def test_an_expired_value_and_a_defect_of_a_source_are_failures() -> None:
    async def broken() -> Issued[str]:
        return Issued("k", -5.0)

    async def defective() -> Issued[str]:
        raise KeyError("k")

    for issue, text in ((broken, "compare the clocks"), (defective, "KeyError")):
        with pytest.raises(Unavailable) as raised:
            await Renewed("x", issue, lambda key: [key]).get("main")
        assert text in raised.value.detail


async def test_a_refused_value_is_replaced_unless_it_is_new() -> None:
    source = Source()
    renewed = source.renewed()
    first = await renewed.get("main")
    assert not renewed.discards(first)
    await asyncio.sleep(60.0)
    assert renewed.discards(first)
    assert renewed.discards(first)  # of a second request with the same value
    assert await renewed.get("main") == 2
    assert renewed.discards(first)  # of a request that began before
    assert len(source.times) == 2

"""Splits whose arms are balanced by latency, load or price: which pool receives the next request."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from adapters.errors import CapacityError
from adapters.fake import FakeAdapter, Script
from tests.support.gateways import Rig, chat, config

Arms = list[dict[str, Any]]


def rig(by: str, *fakes: FakeAdapter, arms: Arms | None = None, nested: bool = False, **pool: Any) -> Rig:
    names = [f"p{number}" for number in range(len(fakes))]
    protocols = ["openai", "anthropic", "openai"]
    pools = [
        {"name": name, "endpoints": [f"http://127.0.0.1:{9 + number}"], "protocol": protocols[number], **pool}
        for number, name in enumerate(names)
    ]
    written = arms or [{"pool": name, "weight": 1} for name in names]
    route: dict[str, Any] = {"split": {"by": by, "arms": written}, "retry": {"attempts": 1}}
    if nested:
        pools.append({"name": "down", "endpoints": ["http://127.0.0.1:20"]})
        route = {"to": "down", "fallback": [{"split": route["split"]}], "retry": {"attempts": 1}}
        names, fakes = [*names, "down"], (*fakes, FakeAdapter(Script(fault=CapacityError("full", retry_after=0.01))))
    configuration = config(pools=pools, models=[{"name": "chat", "routes": [route]}])
    return Rig(configuration, {name: [fake] for name, fake in zip(names, fakes, strict=True)})


async def send(made: Rig, **fields: Any) -> str:
    answer = await made.core.handle(made.principal, chat(**fields), {}, made.record())
    return answer.pool


@pytest.mark.parametrize("nested", [False, True])
async def test_the_arm_with_the_smallest_share_of_taken_places_is_next(nested: bool) -> None:
    slow = [FakeAdapter(Script(latency=100.0)) for _ in range(2)]
    made = rig("load", *slow, nested=nested, max_connections=10)
    tasks = []
    for _ in range(12):
        tasks.append(asyncio.create_task(send(made)))
        await asyncio.sleep(0.001)
    assert sorted(len(fake.calls) for fake in slow) == [6, 6]
    await asyncio.gather(*tasks)


async def test_a_larger_weight_takes_a_larger_load() -> None:
    slow = [FakeAdapter(Script(latency=100.0)) for _ in range(2)]
    arms = [{"pool": "p0", "weight": 3}, {"pool": "p1", "weight": 1}]
    made = rig("load", *slow, arms=arms, max_connections=100)
    tasks = []
    for _ in range(40):
        tasks.append(asyncio.create_task(send(made)))
        await asyncio.sleep(0.001)
    assert 28 <= len(slow[0].calls) <= 32
    await asyncio.gather(*tasks)


async def test_the_faster_arm_gets_the_requests_and_the_slower_one_is_measured() -> None:
    fakes = FakeAdapter(Script(latency=1.0)), FakeAdapter(Script(latency=0.1))
    made = rig("latency", *fakes)
    pools = [await send(made) for _ in range(30)]
    assert {pools[0], pools[1]} == {"p0", "p1"}  # each is tried once
    assert pools[2:].count("p1") >= 26
    assert made.log.records[-1].arm == "p1"


async def test_the_cheaper_arm_depends_on_the_request_and_a_full_one_is_passed_over() -> None:
    """The first arm has cheap prompts, the second cheap answers."""
    prices = [
        {"prompt": "1 usd/1M", "completion": "20 usd/1M"},
        {"prompt": "10 usd/1M", "completion": "5 usd/1M"},
    ]
    arms = [{"pool": f"p{number}", "weight": 1, "price": price} for number, price in enumerate(prices)]
    fakes = [FakeAdapter(Script(latency=50.0)) for _ in range(2)]
    made = rig("price", *fakes, arms=arms, max_connections=1)
    long = [{"role": "user", "content": "word " * 2000}]
    tasks = [asyncio.create_task(send(made, messages=long, max_tokens=10))]
    await asyncio.sleep(0.01)
    tasks.append(asyncio.create_task(send(made, messages=long, max_tokens=10)))  # the cheap one is full
    assert await asyncio.gather(*tasks) == ["p0", "p1"]
    assert await send(made, max_tokens=1000) == "p1"


async def test_a_pool_that_rests_gets_nothing_until_its_time() -> None:
    refusing = FakeAdapter(Script(fault=CapacityError("full", retry_after=20.0)), Script())
    made = rig("load", refusing, FakeAdapter())
    for _ in range(20):
        with suppress(CapacityError):
            await send(made)
    assert len(refusing.calls) == 1
    await asyncio.sleep(21)
    assert {await send(made) for _ in range(20)} == {"p0", "p1"}


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({"by": "price"}, "needs the price of each arm"),
        ({"by": "load", "sticky": "user"}, "`by` or `sticky`"),
        ({"by": "load", "price": {"prompt": "1 usd/1M", "completion": "1 usd/1M"}}, "has no effect"),
    ],
)
def test_contradictions_are_refused(split: dict[str, Any], message: str) -> None:
    extra = {"price": split.pop("price")} if "price" in split else {}
    arms = [{"pool": name, "weight": 1, **extra} for name in ("p0", "p1")]
    pools = [{"name": name, "endpoints": ["http://127.0.0.1:9"]} for name in ("p0", "p1")]
    with pytest.raises(ValueError, match=message):
        config(pools=pools, models=[{"name": "chat", "routes": [{"split": {**split, "arms": arms}}]}])

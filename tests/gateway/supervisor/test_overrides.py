import asyncio
import random
import time
from math import inf

import pytest

from config.schema import Config
from gateway.supervisor import overrides
from gateway.traffic.fleet import Fleet
from gateway.traffic.operations import Operation, operate
from tests.support.gateways import config

ONE, TWO, THREE = (f"http://127.0.0.1:{port}" for port in (1, 2, 3))


def configuration() -> Config:
    return config(pools=[{"name": "main", "endpoints": [ONE, TWO], "probe": None}])


def fleet() -> Fleet:
    return Fleet(random.Random(0), asyncio.get_running_loop().time)


def listed(one: Fleet) -> dict[str, tuple[float, bool]]:
    return {m.endpoint.address: (m.endpoint.configured_weight, m.drained) for m in one.members_of("main")}


def change(one: Fleet) -> None:
    ids = {m.endpoint.address: m.endpoint.id for m in one.members_of("main")}
    for operation in (
        Operation(verb="add", pool="main", url=THREE, weight=3.0),
        Operation(verb="drain", pool="main", endpoint=ids[ONE]),
        Operation(verb="remove", pool="main", endpoint=ids[TWO]),
    ):
        operate(one, operation)


@pytest.mark.looptime
async def test_another_worker_and_a_later_one_have_the_same_endpoints() -> None:
    changed, other, later = fleet(), fleet(), fleet()
    for one in (changed, other):
        one.commit(one.prepare(configuration()))
    change(changed)
    packed = overrides.pack(changed)
    overrides.unpack(packed, other)
    overrides.unpack(packed, later)  # before it has pools
    later.commit(later.prepare(configuration()))
    assert listed(changed) == listed(other) == listed(later) == {ONE: (1.0, True), THREE: (3.0, False)}
    assert changed.overrides["main"].added == later.overrides["main"].added
    assert {added.until for added in later.overrides["main"].added.values()} == {inf}
    operate(other, Operation(verb="undrain", pool="main", endpoint=next(iter(other.members_of("main"))).endpoint.id))
    overrides.unpack(overrides.pack(other), later)
    assert listed(later) == {ONE: (1.0, False), THREE: (3.0, False)}
    for one in (changed, other, later):
        await one.aclose()


@pytest.mark.looptime
async def test_what_was_added_for_a_time_ends_everywhere_at_its_time() -> None:
    changed, later = fleet(), fleet()
    for one in (changed, later):
        one.commit(one.prepare(configuration()))
    operate(changed, Operation(verb="add", pool="main", url=THREE, expires=time.time() + 60))
    await asyncio.sleep(30)
    overrides.unpack(overrides.pack(changed), later)
    assert THREE in listed(later)
    await asyncio.sleep(31)
    assert list(listed(changed)) == list(listed(later)) == [ONE, TWO]
    for one in (changed, later):
        await one.aclose()

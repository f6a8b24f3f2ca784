import asyncio
from random import Random
from typing import Any

import pytest

from adapters.errors import TransportError, Unavailable
from adapters.types import Deadline
from config.schema import Config
from gateway.traffic.fleet import Fleet
from gateway.traffic.pool import Pool
from tests.support.gateways import chat, config

URLS = ["http://127.0.0.1:9", "http://127.0.0.1:10"]


def two(balance: dict[str, Any], urls: list[str] = URLS) -> Config:
    return config(pools=[{"name": "main", "endpoints": urls, "probe": None, "balance": balance}])


def use(fleet: Fleet, configuration: Config) -> Pool:
    return fleet.commit(fleet.prepare(configuration))["main"]


async def test_what_a_picker_learned_outlives_a_reload_that_leaves_it_as_it_is() -> None:
    fleet = Fleet(Random(1), asyncio.get_running_loop().time)
    first = use(fleet, two({"by": "prefix_affinity"}))
    same = use(fleet, two({"by": "prefix_affinity"}, URLS[:1]))
    other = use(fleet, two({"by": "prefix_affinity", "bound": "200%"}))
    assert first._picker is same._picker
    assert other._picker is not same._picker
    await fleet.aclose()


async def test_endpoints_are_known_by_their_address_wherever_they_stand_in_the_file() -> None:
    """Two gateways whose files list the same servers in another order hash to the same ones."""
    for urls in (URLS, URLS[::-1]):
        fleet = Fleet(Random(1), asyncio.get_running_loop().time)
        pool = use(fleet, two({"by": "hash", "key": "user"}, urls))
        assert [e.address for e in pool.endpoints] == urls
        await fleet.aclose()


async def test_a_pool_that_panics_tries_the_unhealthy() -> None:
    for panic, error in (("0%", Unavailable), ("50%", TransportError)):
        fleet = Fleet(Random(1), asyncio.get_running_loop().time)
        pool = use(fleet, two({"panic": panic}, ["unix:/nonexistent/server.sock"]))
        pool.endpoints[0].probed("down", healthy_after=1, unhealthy_after=1)
        with pytest.raises(error):
            await pool.call(chat(), Deadline(1e9, 5.0, 5.0))
        await fleet.aclose()


async def test_a_reload_neither_restarts_nor_skips_a_slow_start() -> None:
    now = 100.0
    fleet = Fleet(Random(1), lambda: now)
    (old,) = use(fleet, two({"slow_start": "10s"}, URLS[:1])).endpoints
    old.warm(now)
    assert old.weight == 0.1
    now = 105.0
    kept, new = use(fleet, two({"slow_start": "10s"})).endpoints
    for endpoint in (kept, new):
        endpoint.warm(now)
    assert kept is old
    assert [kept.weight, new.weight] == [0.5, 0.1]
    use(fleet, two({}))
    kept.warm(now)
    assert kept.weight == 1.0
    await fleet.aclose()


async def test_no_two_endpoints_share_an_id_after_reloads() -> None:
    fleet = Fleet(Random(1), asyncio.get_running_loop().time)
    assert [e.id for e in use(fleet, two({}, URLS)).endpoints] == ["main/0", "main/1"]
    assert [e.id for e in use(fleet, two({}, URLS[1:])).endpoints] == ["main/1"]
    third = "http://127.0.0.1:11"
    assert [e.id for e in use(fleet, two({}, [URLS[1], third])).endpoints] == ["main/1", "main/0"]
    await fleet.aclose()

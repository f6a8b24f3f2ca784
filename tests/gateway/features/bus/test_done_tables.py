"""The table of ids: an id has one owner at a time, and is done once."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.features.bus.done.redis_table import RedisDoneTable, open_redis
from gateway.features.bus.done.sql_table import SqlDoneTable, SqlIds
from gateway.features.bus.done.table import DONE, MINE, DoneTable
from tests.support.gateways import PEPPER
from tests.support.redis import redis_server


class Tables:
    """The tables of two processes. `advance` moves their time, if it is not the server's."""

    def __init__(self) -> None:
        self.one: DoneTable
        self.two: DoneTable
        self.now = 1000.0

    async def pass_by(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(seconds if isinstance(self.one, RedisDoneTable) else 0)


@pytest_asyncio.fixture(params=["sqlite", "postgres", "redis"])
async def tables(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tables]:
    made = Tables()
    if request.param == "redis":
        async with redis_server(tmp_path) as server:
            redis = open_redis(server.url)
            made.one, made.two = (RedisDoneTable(redis, "b", owner, 0.6, 0.3) for owner in ("one", "two"))
            yield made
            await redis.aclose(close_connection_pool=True)
        return
    url = f"sqlite:///{tmp_path}/s.db"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").database()
    threads = ThreadPoolExecutor(2)
    ids = SqlIds(url, PEPPER)
    made.one, made.two = (
        SqlDoneTable(lambda: ids, threads, "b", owner, 0.6, 0.3, lambda: made.now) for owner in ("one", "two")
    )
    yield made
    threads.shutdown()
    ids.database.close()


async def test_an_id_has_one_owner_until_its_claim_ends(tables: Tables) -> None:
    one, two = tables.one, tables.two
    assert await one.claim(["a", "b"]) == [MINE, MINE]
    held, free = await two.claim(["a", "c"])
    assert 0 < held <= 0.3
    assert free == MINE
    assert await one.claim(["a"]) == [MINE]
    assert await two.renew(["a"]) == [False]
    await tables.pass_by(0.2)
    assert await one.renew(["a"]) == [True]
    await tables.pass_by(0.2)
    assert (await two.claim(["a"]))[0] > 0
    assert await two.claim(["b"]) == [MINE]
    assert await one.renew(["b"]) == [False]


async def test_a_done_id_stays_done_for_its_window(tables: Tables) -> None:
    one, two = tables.one, tables.two
    await one.claim(["a"])
    await one.finish(["a", "never claimed"])
    await one.release(["a"])
    assert await two.claim(["a", "never claimed"]) == [DONE, DONE]
    assert await one.claim(["a"]) == [DONE]
    assert await one.renew(["a"]) == [False]
    await tables.pass_by(0.7)
    await one.sweep()
    assert await two.claim(["a"]) == [MINE]


async def test_a_released_id_is_free(tables: Tables) -> None:
    await tables.one.claim(["a", "b"])
    await tables.two.release(["a"])
    assert (await tables.two.claim(["a"]))[0] > 0
    await tables.one.release(["a", "b"])
    assert await tables.two.claim(["a", "b"]) == [MINE, MINE]


async def test_of_many_claims_at_once_each_id_goes_to_one(tables: Tables) -> None:
    ids = [f"id{number}" for number in range(1200)]
    one, two = await asyncio.gather(tables.one.claim(ids), tables.two.claim(ids[::-1]))
    owners = [(mine == MINE) + (theirs == MINE) for mine, theirs in zip(one, two[::-1], strict=True)]
    assert owners == [1] * 1200

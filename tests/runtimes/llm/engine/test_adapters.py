"""The pool of adapters: loaded once, the least recently used one evicted, and no request waits for nothing."""

import asyncio
import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import CapacityError, Unsupported
from runtimes.llm.engine.adapters import AdapterPool
from tests.support.conditions import until


class Loaded:
    """An adapter that knows its source."""

    def __init__(self, source: str) -> None:
        self.digest = source.encode()


class Disk:
    """Counts loads. While `gate` is closed none ends; `missing` sources cannot be loaded."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.missing: set[str] = set()
        self.loads: Counter[str] = Counter()

    def load(self, source: str) -> Loaded:
        self.loads[source] += 1
        assert self.gate.wait(timeout=300)
        if source in self.missing:
            raise ValueError(f"{source}/adapter_model.safetensors: tensor x is wrong")
        return Loaded(source)


def pool_of(disk: Disk, most: int = 2, names: str = "abcdef", **bounds: int) -> AdapterPool:
    return AdapterPool({name: f"/folder/{name}" for name in names}, most, disk.load, **bounds)


async def used(pool: AdapterPool, *names: str) -> None:
    for name in names:
        lease = await pool.lease(name)
        assert lease.adapter.digest == f"/folder/{name}".encode()
        lease.release()


async def test_the_least_recently_used_one_makes_room() -> None:
    pool = pool_of(disk := Disk())
    await used(pool, "a", "b", "a", "c", "a")
    assert (pool.names, disk.loads["/folder/a"]) == (["c", "a"], 1)
    await used(pool, "b")
    assert (pool.names, disk.loads["/folder/b"]) == (["a", "b"], 2)
    pool.close()


async def test_requests_share_one_load() -> None:
    pool = pool_of(disk := Disk())
    disk.gate.clear()
    waiting = [asyncio.ensure_future(pool.lease("a")) for _ in range(3)]
    await until(lambda: bool(disk.loads))
    disk.gate.set()
    leases = await asyncio.gather(*waiting)
    assert (len({id(lease.adapter) for lease in leases}), disk.loads.total()) == (1, 1)
    pool.close()


async def test_an_adapter_in_use_is_not_evicted() -> None:
    pool = pool_of(Disk())
    first, second = await pool.lease("a"), await pool.lease("b")
    waiting = asyncio.ensure_future(pool.lease("c"))
    await asyncio.sleep(0)
    assert (pool.names, waiting.done()) == (["a", "b"], False)
    await used(pool, "a")  # those in memory need no room
    assert not waiting.done()
    second.release()
    second.release()
    assert (await waiting).adapter.digest == b"/folder/c"
    assert pool.names == ["a", "c"]
    first.release()
    pool.close()


async def test_an_adapter_that_cannot_be_loaded_fails_its_own_requests() -> None:
    pool = pool_of(disk := Disk(), most=1)
    disk.missing.add("/folder/b")
    await used(pool, "a")
    with pytest.raises(Unsupported) as failed:
        await pool.lease("b")
    assert failed.value.message == ("The adapter `b` cannot be loaded: b/adapter_model.safetensors: tensor x is wrong.")
    assert (failed.value.code, failed.value.param, pool.names) == ("adapter_not_loadable", "model", [])
    await used(pool, "a")
    disk.missing.clear()  # the operator has mended it
    await used(pool, "b")
    pool.close()


async def test_no_more_requests_wait_than_may() -> None:
    pool = pool_of(Disk(), most=1, max_waiting=1)
    lease = await pool.lease("a")
    waiting = asyncio.ensure_future(pool.lease("b"))
    await asyncio.sleep(0)
    with pytest.raises(CapacityError, match="1 adapters are in use, and 1 requests wait"):
        await pool.lease("c")
    waiting.cancel()
    await asyncio.wait([waiting])
    other = asyncio.ensure_future(pool.lease("c"))
    await asyncio.sleep(0)
    lease.release()
    assert (await other).adapter.digest == b"/folder/c"
    pool.close()


async def test_all_requests_for_an_adapter_that_gets_room_use_it() -> None:
    pool = pool_of(disk := Disk(), most=1)
    lease = await pool.lease("a")
    waiting = [asyncio.ensure_future(pool.lease(name)) for name in "bcbbb"]
    await asyncio.sleep(0)
    lease.release()
    other = waiting.pop(1)
    leases = await asyncio.gather(*waiting)
    assert (pool.names, disk.loads["/folder/b"], other.done()) == (["b"], 1, False)
    for lease in leases:
        lease.release()
    assert (await other).adapter.digest == b"/folder/c"
    pool.close()


async def test_a_request_that_must_wait_again_is_not_refused() -> None:
    pool = pool_of(Disk(), most=1, max_waiting=1)
    lease = await pool.lease("a")
    waiting = asyncio.ensure_future(pool.lease("b"))
    await asyncio.sleep(0)
    overtaking, behind = (asyncio.ensure_future(pool.lease(name)) for name in "ac")
    lease.release()
    (await overtaking).release()
    (await waiting).release()
    assert (await behind).adapter.digest == b"/folder/c"
    pool.close()


async def test_a_client_that_leaves_while_its_adapter_loads_holds_nothing() -> None:
    pool = pool_of(disk := Disk(), most=1)
    disk.gate.clear()
    leaving = asyncio.ensure_future(pool.lease("a"))
    await until(lambda: bool(disk.loads))
    leaving.cancel()
    await asyncio.wait([leaving])
    disk.gate.set()
    await used(pool, "b")
    assert pool.names == ["b"]
    pool.close()


@given(
    most=st.integers(1, 3),
    orders=st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 3), st.booleans()), max_size=30),
)
async def test_every_request_gets_its_adapter_under_load(most: int, orders: list[tuple[str, int, bool]]) -> None:
    """Of any requests that last some turns of the loop, some of which are cancelled: no more adapters than may be are
    in memory, and each request that stays has its own."""
    pool = pool_of(disk := Disk(), most)
    disk.missing.add("/folder/f")

    async def request(name: str, turns: int) -> None:
        lease = await pool.lease(name)
        try:
            for _ in range(turns):
                assert len(pool.names) <= most
                assert name in pool.names
                await asyncio.sleep(0)
            assert lease.adapter.digest == f"/folder/{name}".encode()
        finally:
            lease.release()

    tasks = [asyncio.ensure_future(request(name, turns)) for name, turns, _ in orders]
    for task, (_, _, leaves) in zip(tasks, orders, strict=True):
        if leaves:
            await asyncio.sleep(0)
            task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    for (name, _, leaves), end in zip(orders, ends, strict=True):
        assert end is None or (leaves and isinstance(end, asyncio.CancelledError)) or (
            name == "f" and isinstance(end, Unsupported)
        )  # fmt: skip
    await used(pool, *"abcde")
    pool.close()

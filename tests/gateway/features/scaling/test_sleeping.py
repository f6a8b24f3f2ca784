"""Servers that sleep while they are not needed, over scripted servers on virtual time."""

import asyncio
import logging
from functools import partial
from typing import Any

import looptime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.schema.config import PoolConfig
from gateway.features.scaling.sleeping import LOST_READS, HttpSleepOrders, SleepError, SleepLoad, SleepScale
from gateway.traffic.standing import PoolDemand
from tests.support.gateways import config
from tests.support.sleeping_vllm import sleeping_vllm
from tests.support.upstreams import upstream

WAKE_SECONDS = 4.0


class Servers:
    """Scripted servers: the orders of a pool."""

    def __init__(self, *addresses: str, asleep: bool = True) -> None:
        self.sleeping = dict.fromkeys(addresses, asleep)
        self.running = dict.fromkeys(addresses, 0)
        self.ended = dict.fromkeys(addresses, 0)
        self.hanging: set[str] = set()
        self.refusing: dict[str, str] = {}
        self.unreadable = False
        self.orders: list[str] = []

    async def asleep(self, address: str) -> bool:
        if address in self.hanging:
            await asyncio.sleep(2)
            raise SleepError("/is_sleeping failed (TimeoutError)")
        return self.sleeping[address]

    async def load(self, address: str) -> SleepLoad:
        if self.unreadable:
            raise SleepError("/metrics are not vLLM's")
        return SleepLoad(self.running[address], self.ended[address])

    async def sleep(self, address: str, level: int) -> None:
        self.orders.append(f"sleep {address}")
        assert not self.running[address], "a server with requests is put to sleep"
        if address in self.refusing:
            raise SleepError(self.refusing[address])
        self.sleeping[address] = True

    async def wake(self, address: str, level: int) -> None:
        self.orders.append(f"wake {address}")
        await asyncio.sleep(WAKE_SECONDS)
        if address in self.refusing:
            raise SleepError(self.refusing[address])
        self.sleeping[address] = False


class SleepingPool:
    """A pool with scripted servers and one process, which sends requests to servers that are awake."""

    def __init__(self, servers: Servers, **scale: Any) -> None:
        self.servers = servers
        vllm = {"name": "openai", "dialect": "vllm"}
        rules = {"min": 0, "max": len(servers.sleeping), "places": 2, "hold": "60s", "idle": "30s", "sleep": 1, **scale}
        pool = {"name": "main", "protocol": vllm, "endpoints": list(servers.sleeping), "scale": rules}
        self.scale = SleepScale(config(pools=[pool]).pools[0], servers)
        self.demand = self.picked = 0

    async def run(self, seconds: float) -> None:
        """Let time pass with a constant demand: measure, decide and follow each second."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            standing = self.scale.standing(loop.time())
            awake = [a for a, asleep in self.servers.sleeping.items() if not asleep and a not in standing.sleeping]
            self.picked = self.demand if awake else 0
            for address in self.servers.running:
                self.servers.running[address] = self.picked // len(awake) + 1 if address in awake and self.picked else 0
            measured = PoolDemand(
                pool="main",
                in_flight=self.picked,
                waiting=self.demand - self.picked,
                ready=tuple(range(len(awake))),
                endpoints=len(self.servers.sleeping),
            )
            self.scale.sample([measured], {}, loop.time())
            self.scale.decide(loop.time(), 0.0)
            self.scale.follow(loop.time)
            await asyncio.sleep(1)

    @property
    def awake(self) -> list[str]:
        return [address for address, asleep in self.servers.sleeping.items() if not asleep]


async def test_servers_wake_with_the_demand_and_sleep_after_it() -> None:
    pool = SleepingPool(Servers("http://a", "http://b", "http://c"))
    await pool.run(10)
    assert pool.awake == []
    pool.demand = 1
    await pool.run(WAKE_SECONDS + 2)
    assert pool.awake == ["http://a"]
    assert pool.scale.starts.seconds == pytest.approx(WAKE_SECONDS, abs=2.5)
    pool.demand = 9
    await pool.run(30)
    assert len(pool.awake) == 3
    assert pool.scale.describe() | {"asleep": 0, "replicas": 3, "ready": 3, "starting": 0} == pool.scale.describe()
    pool.demand = 0
    await pool.run(50)
    assert len(pool.awake) == 3, "a server sleeps before `hold`"
    await pool.run(400)
    assert pool.awake == []
    assert sorted(pool.servers.orders) == sorted(f"{verb} http://{a}" for verb in ("wake", "sleep") for a in "abc")


async def test_a_server_sleeps_only_when_no_client_has_used_it_for_the_hold() -> None:
    """Another gateway, or a person, sends a request to a server now and then."""
    pool = SleepingPool(Servers("http://a", asleep=False))
    for _ in range(20):
        await pool.run(50)
        pool.servers.ended["http://a"] += 1
    assert pool.servers.orders == []
    await pool.run(70)
    assert pool.servers.orders == ["sleep http://a"]


async def test_without_readable_metrics_no_server_sleeps_and_one_error_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    servers = Servers("http://a", asleep=False)
    servers.unreadable = True
    with caplog.at_level(logging.ERROR):
        await SleepingPool(servers).run(500)
    assert servers.orders == []
    assert [record.message for record in caplog.records] == ["pool main: http://a: /metrics are not vLLM's"]


async def test_a_server_that_hangs_delays_no_other_and_another_wakes(caplog: pytest.LogCaptureFixture) -> None:
    servers = Servers("http://a", "http://b", "http://c")
    servers.hanging = {"http://a"}
    pool = SleepingPool(servers, places=16)
    pool.demand = 1
    with caplog.at_level(logging.WARNING):
        await pool.run(3.0 * LOST_READS + WAKE_SECONDS + 3)
        assert pool.awake == ["http://b"]
        await pool.run(200)
    assert servers.orders == ["wake http://b"]
    assert [record.message for record in caplog.records] == ["pool main: http://a: /is_sleeping failed (TimeoutError)"]


async def test_a_server_that_fails_to_wake_is_reported_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    servers = Servers("http://a")
    servers.refusing = {"http://a": "/wake_up answered with status 500"}
    pool = SleepingPool(servers)
    pool.demand = 1
    with caplog.at_level(logging.ERROR):
        await pool.run(300)
    assert [record.message for record in caplog.records] == ["pool main: http://a: /wake_up answered with status 500"]
    failure = pool.scale.standing(asyncio.get_running_loop().time()).failure
    assert failure == "endpoint 0 of the pool: /wake_up answered with status 500"
    assert 10 <= len(servers.orders) <= 30, "it is not tried again, or without a pause"
    servers.refusing = {}
    await pool.run(30)
    assert pool.awake == ["http://a"]
    assert pool.scale.standing(0.0).failure == ""


async def test_a_server_that_refuses_to_sleep_serves(caplog: pytest.LogCaptureFixture) -> None:
    servers = Servers("http://a", "http://b", asleep=False)
    servers.refusing = {"http://a": "/sleep does not exist"}
    pool = SleepingPool(servers)
    with caplog.at_level(logging.ERROR):
        await pool.run(300)
    assert [record.message for record in caplog.records] == ["pool main: http://a: /sleep does not exist"]
    assert pool.awake == ["http://a"]
    pool.demand = 1
    await pool.run(5)
    assert pool.picked == 1
    assert "wake http://a" not in servers.orders


async def test_a_server_that_another_puts_to_sleep_is_woken_while_it_is_needed() -> None:
    servers = Servers("http://a", asleep=False)
    pool = SleepingPool(servers, min=1)
    await pool.run(10)
    servers.sleeping["http://a"] = True
    await pool.run(WAKE_SECONDS + 5)
    assert servers.orders == ["wake http://a"]
    assert pool.awake == ["http://a"]


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 90), st.integers(0, 12), st.integers(0, 12)), max_size=8))
def test_two_gateways_with_different_demand_serve_all(history: list[tuple[int, int, int]]) -> None:
    """Each puts servers to sleep that it does not need. No server with requests sleeps (`Servers.sleep`), and
    everything is served."""

    async def main() -> None:
        servers = Servers(*(f"http://{name}" for name in "abc"))
        one, other = SleepingPool(servers), SleepingPool(_View(servers), max=2)
        for seconds, first, second in [*history, (60, 3, 5)]:
            one.demand, other.demand = first, second
            await asyncio.gather(one.run(seconds), other.run(seconds))
        assert (one.picked, other.picked) == (3, 5)

    with asyncio.Runner(loop_factory=looptime.new_event_loop) as runner:
        runner.run(main())


class _View(Servers):
    """The servers as another gateway uses them: the same state, and requests of its own."""

    def __init__(self, servers: Servers) -> None:
        super().__init__(*servers.sleeping)
        self.theirs = servers
        self.sleeping, self.orders = servers.sleeping, servers.orders
        servers.load = self.load  # type: ignore[method-assign]
        servers.sleep = self.sleep  # type: ignore[method-assign]

    async def load(self, address: str) -> SleepLoad:
        return SleepLoad(self.running[address] + self.theirs.running[address], 0)

    async def sleep(self, address: str, level: int) -> None:
        assert not self.theirs.running[address], "a server with requests is put to sleep"
        await super().sleep(address, level)


def _same(pool: PoolConfig) -> PoolConfig:
    return pool


async def test_the_orders_are_vllms() -> None:
    async with sleeping_vllm() as server:
        scale = {"min": 0, "max": 1, "sleep": 2}
        vllm = {"name": "openai", "dialect": "vllm"}
        for suffix in ("", "/v1"):
            pool = {"name": "main", "protocol": vllm, "endpoints": [server.url + suffix], "scale": scale}
            orders, address = HttpSleepOrders(partial(_same, config(pools=[pool]).pools[0])), server.url + suffix
            server.orders.clear()
            assert await orders.asleep(address) is False
            server.running, server.ended = 2, 5
            assert await orders.load(address) == SleepLoad(2, 5)
            server.running = 0
            await orders.sleep(address, 2)
            assert (await orders.asleep(address), server.weights) == (True, False)
            await orders.wake(address, 2)
            assert (await orders.asleep(address), server.weights) == (False, True)
            assert server.orders == [
                "/sleep?level=2&mode=wait", "/wake_up?tags=weights", "/collective_rpc", "/wake_up",
            ]  # fmt: skip


async def test_a_server_without_the_calls_is_named_with_the_remedy() -> None:
    async with upstream() as up:
        made = config().pools[0]
        orders = HttpSleepOrders(lambda: made)
        with pytest.raises(SleepError, match="/is_sleeping does not exist: start vLLM with VLLM_SERVER_DEV_MODE=1"):
            await orders.asleep(up.url)
    with pytest.raises(SleepError, match=r"/sleep\?level=1&mode=wait failed \(ClientConnectorError\)"):
        await orders.sleep(up.url, 1)

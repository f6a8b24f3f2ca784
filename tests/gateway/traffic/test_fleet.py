import asyncio
from random import Random
from typing import Any

import pytest

from adapters.call import Call
from adapters.errors import InferenceError, Overloaded, TransportError, Unavailable
from adapters.http1.message import Response
from adapters.types import Deadline
from config.schema.config import Config, ProbeConfig
from gateway.traffic.fleet.fleet import Fleet
from gateway.traffic.fleet.member import check
from gateway.traffic.pool import Pool
from tests.adapters.http1.raw import until
from tests.support.gateways import chat, config
from tests.support.upstreams import upstream, whole

URLS = ["http://127.0.0.1:9", "http://127.0.0.1:10"]


def two(balance: dict[str, Any], urls: list[str] = URLS) -> Config:
    return config(pools=[{"name": "main", "endpoints": urls, "probe": None, "balance": balance}])


def use(fleet: Fleet, configuration: Config) -> Pool:
    return fleet.commit(fleet.prepare(configuration))["main"]


async def test_the_state_of_an_unchanged_picker_survives_a_reload(fleet: Fleet) -> None:
    first = use(fleet, two({"by": "prefix_affinity"}))
    same = use(fleet, two({"by": "prefix_affinity"}, URLS[:1]))
    other = use(fleet, two({"by": "prefix_affinity", "bound": "200%"}))
    assert first._picker is same._picker
    assert other._picker is not same._picker


async def test_endpoints_are_identified_by_address_at_any_place_in_the_file() -> None:
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
            await pool.call(chat(), Call(Deadline(1e9, 5.0, 5.0)))
        await fleet.aclose()


async def test_a_reload_neither_restarts_nor_skips_a_slow_start() -> None:
    now = 100.0
    fleet = Fleet(Random(1), lambda: now)
    (old,) = use(fleet, two({"slow_start": "10s"}, URLS[:1])).endpoints
    old.warm(now)
    assert old.weight == 0.1
    now = 105.0
    same, new = use(fleet, two({"slow_start": "10s"})).endpoints
    for endpoint in (same, new):
        endpoint.warm(now)
    assert same is old
    assert [same.weight, new.weight] == [0.5, 0.1]
    use(fleet, two({}))
    same.warm(now)
    assert same.weight == 1.0
    await fleet.aclose()


async def test_a_full_endpoint_is_not_ill_and_a_health_check_takes_no_requests_place(fleet: Fleet) -> None:
    async def slow(body: object) -> Response:
        await gate.wait()
        return whole("hi")

    gate = asyncio.Event()
    async with upstream() as up:
        up.behaviour = slow
        probe = {"interval": "1h", "unhealthy_after": 1}
        written = {"name": "main", "endpoints": [up.url], "max_connections": 1, "probe": probe}
        pool = use(fleet, config(pools=[written]))
        (endpoint,) = pool.endpoints
        await until(lambda: endpoint.health == "healthy")  # the only check that is not made here
        for _ in range(2):  # the second time, a check's connection is there already
            call = asyncio.create_task(pool.call(chat(), Call(Deadline(1e9, 60.0, 60.0))))
            await until(lambda: bool(up.received))
            await check(endpoint, ProbeConfig(unhealthy_after=1))
            assert endpoint.health == "healthy", endpoint.probe_error
            gate.set()
            assert (await call).body
            gate.clear()
            up.received.clear()


async def test_a_request_tries_again_at_an_endpoint_that_a_reload_has_taken_away(fleet: Fleet) -> None:
    """It goes by the configuration that it began with."""
    async with upstream() as up:
        old = use(fleet, two({}, [up.url]))
        new = use(fleet, two({}, URLS[:1]))
        assert old.endpoints != new.endpoints
        await until(lambda: not fleet._members._leaving)
        assert (await old.call(chat(), Call(Deadline(1e9, 60.0, 60.0)))).body


async def test_an_endpoint_has_one_id_in_every_gateway_of_a_secret_and_after_every_reload() -> None:
    third = "http://127.0.0.1:11"
    ids: dict[str, str] = {}
    for urls in (URLS, [*URLS[1:], third], [third, *URLS]):
        fleet = Fleet(Random(1), asyncio.get_running_loop().time)
        fleet.secret = b"s" * 32
        for reloaded in (urls, urls[::-1]):
            for endpoint in use(fleet, two({}, reloaded)).endpoints:
                assert ids.setdefault(endpoint.address, endpoint.id) == endpoint.id
        await fleet.aclose()
    assert len(set(ids.values())) == 3
    assert not any("127" in id_ for id_ in ids.values())


async def test_an_endpoint_that_returns_under_load_is_the_same(fleet: Fleet) -> None:
    first, second = use(fleet, two({}, URLS)).endpoints
    second.begin(0.0)
    assert use(fleet, two({}, URLS[:1])).endpoints == [first]
    await asyncio.sleep(0.1)
    assert use(fleet, two({}, URLS)).endpoints == [first, second]
    use(fleet, two({}, URLS[:1]))
    second.end(None, 0.0)
    await asyncio.sleep(0.2)
    assert use(fleet, two({}, URLS)).endpoints[1] is not second


def queued(endpoints: list[str] | None = None, name: str = "main", **queue: Any) -> Config:
    section = {"max_in_flight": 1, **queue}
    pool = {"name": name, "endpoints": endpoints or URLS[:1], "probe": None, "queue": section}
    return config(pools=[pool], models=[{"name": "chat", "routes": [{"to": name}]}])


class Held:
    """One request at the pool's first endpoint, and others that wait for it."""

    def __init__(self, pool: Pool, waiting: int = 2) -> None:
        self.endpoint = pool.endpoints[0]
        self.endpoint.begin(0.0)
        self.calls = [asyncio.create_task(pool.call(chat(), Call(Deadline(1e9, 5.0, 5.0)))) for _ in range(waiting)]

    def release(self) -> None:
        self.endpoint.latency.answered(0.0, 0.0)
        self.endpoint.end(None, 0.0)

    async def results(self) -> list[str]:
        """The outcomes of the waiting requests: no server listens, so a turn ends in a transport error."""
        results = await asyncio.gather(*self.calls, return_exceptions=True)
        return [result.code if isinstance(result, InferenceError) else repr(result) for result in results]


async def test_a_waiting_request_has_the_same_place_after_a_reload(fleet: Fleet) -> None:
    held = Held(use(fleet, queued()))
    await asyncio.sleep(0)
    new = use(fleet, queued(max=1, timeout="1s"))
    (queue,) = fleet.queues()
    assert queue.line.size == 2
    with pytest.raises(Overloaded):
        await new.call(chat(), Call(Deadline(1e9, 5.0, 5.0)))  # the new configuration's room
    held.release()
    assert await held.results() == ["upstream_unreachable"] * 2
    assert queue.line.size == 0


async def test_an_endpoint_that_a_reload_adds_is_a_place(fleet: Fleet) -> None:
    held = Held(use(fleet, queued()), waiting=1)
    await asyncio.sleep(0)
    use(fleet, queued(URLS))
    assert await held.results() == ["upstream_unreachable"]
    held.release()


async def test_one_that_a_reload_takes_away_is_none(fleet: Fleet) -> None:
    held = Held(use(fleet, queued(URLS[:1])), waiting=1)
    new = use(fleet, queued(URLS[1:]))
    assert held.endpoint not in new.endpoints
    await held.results()
    (queue,) = fleet.queues()
    new.endpoints[0].begin(0.0)
    waiting = asyncio.create_task(new.call(chat(), Call(Deadline(1e9, 5.0, 5.0))))
    await asyncio.sleep(0)
    held.release()
    await asyncio.sleep(0)
    assert queue.line.size == 1
    waiting.cancel()


async def test_a_pool_that_is_gone_serves_those_that_wait_for_it(fleet: Fleet) -> None:
    held = Held(use(fleet, queued()))
    await asyncio.sleep(0)
    fleet.commit(fleet.prepare(queued(name="other")))
    assert [(queue.name, queue.line.size) for queue in fleet.queues()] == [("main", 2), ("other", 0)]
    held.release()
    assert await held.results() == ["upstream_unreachable"] * 2
    fleet.commit(fleet.prepare(queued(name="other")))
    assert [queue.name for queue in fleet.queues()] == ["other"]


async def test_without_its_queue_a_full_pool_refuses_those_that_wait_too(fleet: Fleet) -> None:
    held = Held(use(fleet, queued()))
    await asyncio.sleep(0)
    use(fleet, config(pools=[{"name": "main", "endpoints": URLS[:1], "probe": None}]))
    assert await held.results() == ["overloaded"] * 2
    assert list(fleet.queues()) == []
    held.release()


async def test_the_zone_of_a_pool_decides_which_endpoints_are_near() -> None:
    endpoints = [{"url": url, "zone": zone} for url, zone in zip(URLS, "ab", strict=True)]
    pools = [{"name": "main", "endpoints": endpoints, "probe": None}]
    for zone in "ab":
        fleet = Fleet(Random(1), asyncio.get_running_loop().time)
        pool = use(fleet, config(pools=pools, zone=zone))
        leases = [pool.lease(chat(), Call(Deadline(1e9, 5.0, 5.0)), 0.0) for _ in range(20)]
        assert {endpoint.zone for endpoint in leases if endpoint is not None} == {zone}
        await fleet.aclose()


@pytest.mark.parametrize("stream", [False, True])
async def test_each_slot_has_a_connection(fleet: Fleet, stream: bool) -> None:
    """There are as many connections as slots: a request with a slot must not wait for the last request's connection."""
    async with upstream("one two three") as up:
        section: dict[str, Any] = {"name": "main", "endpoints": [up.url], "max_connections": 2, "queue": {}}
        pool = use(fleet, config(pools=[section]))

        async def send(leaves: bool) -> None:
            answer = await pool.call(chat(stream=stream), Call(Deadline(1e9, 60.0, 60.0)))
            if leaves and stream:
                return await answer.aclose()
            async for _ in answer:
                pass
            return None

        calls = [asyncio.create_task(send(leaves=i % 3 == 0)) for i in range(100)]
        await asyncio.sleep(0.02)
        for call in calls[1::5]:
            call.cancel()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(result) for result in results} <= {type(None), asyncio.CancelledError}
        assert results.count(None) >= 50
        assert pool.endpoints[0].in_flight == 0


async def test_a_removed_pool_stays_warm_for_its_seconds_and_returns_with_its_members(fleet: Fleet) -> None:
    """Its connections, breakers and health survive, and its probes continue."""
    async with upstream() as up:
        probe = {"interval": "20ms", "unhealthy_after": 1}
        written = [{"name": name, "endpoints": [up.url], "probe": probe} for name in ("main", "old")]
        both, one = config(pools=written), config(pools=written[:1])
        fleet.commit(fleet.prepare(both))
        (member,) = fleet.members_of("old")
        await until(lambda: member.endpoint.health == "healthy")
        fleet.commit(fleet.prepare(one), {"old": 300.0, "main": 300.0})
        assert fleet.leaving("old") == [member]
        assert not fleet.members_of("old")
        fleet.abandon(fleet.prepare(both))
        assert fleet.leaving("old") == [member]
        assert fleet.commit(fleet.prepare(both))["old"].endpoints == [member.endpoint]
        fleet.commit(fleet.prepare(one), {"old": 300.0})
    await until(lambda: member.endpoint.health == "unhealthy")
    assert fleet.leaving("old") == [member]
    fleet.commit(fleet.prepare(both))
    fleet.commit(fleet.prepare(one), {"old": 0.05})
    await until(lambda: not fleet.leaving("old"))
    assert member.watcher is not None
    await until(member.watcher.done)

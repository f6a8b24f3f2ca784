"""Changes of running pools by operators and by sources of endpoints."""

import asyncio
import time
from collections.abc import AsyncIterator
from hashlib import blake2b
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.schema.config import PoolConfig
from gateway.auth.pepper import derived
from gateway.traffic.discovery.discoverer import Discoverer
from gateway.traffic.discovery.target import MAX_TARGETS, DiscoveredEndpoint
from gateway.traffic.fleet.desired import MAX_OVERRIDES, Added, Overrides, desired
from gateway.traffic.fleet.fleet import Fleet
from gateway.traffic.fleet.member import FleetError
from gateway.traffic.fleet.operations import NotDone, Operation, adopt, operate, pack
from tests.adapters.http1.raw import until
from tests.support.gateways import config

SECRET = b"s" * 32
A, B, C = "http://127.0.0.1:19", "http://127.0.0.1:20", "http://127.0.0.1:21"


@pytest.fixture
async def fleet(fleet: Fleet) -> Fleet:
    """Pool `main` with A and B, unprobed."""
    fleet.secret = SECRET
    use(fleet)
    return fleet


def use(fleet: Fleet, **changes: Any) -> None:
    pool = {"name": "main", "endpoints": [A, B], "probe": None, **changes}
    fleet.commit(fleet.prepare(config(pools=[pool])))


def do(fleet: Fleet, verb: str, url: str, **fields: Any) -> None:
    given = {"url": url} if verb == "add" else {"endpoint": fleet.endpoint_id("main", url)}
    operate(fleet, Operation(verb=verb, pool="main", **given, **fields))  # type: ignore[arg-type]


def addresses(fleet: Fleet) -> list[str]:
    """The endpoints that may be picked."""
    return [endpoint.address for endpoint in fleet.pools["main"].endpoints]


async def test_an_added_endpoint_is_there_until_it_is_removed(fleet: Fleet) -> None:
    do(fleet, "add", C, weight=2.0, zone="a")
    assert addresses(fleet) == [A, B, C]
    added = fleet.pools["main"].endpoints[2]
    assert (added.weight, added.zone) == (2.0, "a")
    use(fleet, balance={"by": "round_robin"})
    assert fleet.pools["main"].endpoints[2] is added  # a reload keeps what operators changed
    do(fleet, "remove", C)
    assert addresses(fleet) == [A, B]


async def test_one_of_the_file_stays_removed_over_reloads_until_it_is_added(fleet: Fleet) -> None:
    do(fleet, "remove", A)
    use(fleet, balance={"by": "round_robin"})
    assert addresses(fleet) == [B]
    do(fleet, "add", A)
    assert addresses(fleet) == [A, B]


async def test_a_drained_endpoint_completes_its_requests_and_gets_no_more(fleet: Fleet) -> None:
    first = fleet.pools["main"].endpoints[0]
    first.begin(0.0)
    do(fleet, "drain", A)
    assert addresses(fleet) == [B]
    (member,) = [m for m in fleet if m.drained]
    assert (member.endpoint, first.in_flight) == (first, 1)
    do(fleet, "undrain", A)
    assert fleet.pools["main"].endpoints[0] is first


async def test_one_that_is_removed_ends_when_its_last_request_has(fleet: Fleet) -> None:
    first = fleet.pools["main"].endpoints[0]
    first.begin(0.0)
    do(fleet, "remove", A)
    await asyncio.sleep(0.1)
    assert [m.endpoint for m in fleet.leaving("main")] == [first]
    first.end(None, 0.0)
    await until(lambda: not fleet.leaving("main"))


async def test_a_weight_is_changed_and_stays(fleet: Fleet) -> None:
    do(fleet, "weigh", B, weight=0.25)
    use(fleet, endpoints=[A, {"url": B, "weight": 7}])
    assert [e.weight for e in fleet.pools["main"].endpoints] == [1.0, 0.25]


async def test_an_endpoint_is_added_for_a_time(fleet: Fleet) -> None:
    do(fleet, "add", C, expires=time.time() + 60)
    do(fleet, "drain", C)
    await asyncio.sleep(50)
    do(fleet, "add", C, expires=time.time() + 60)  # wall time stands still here: another minute
    await asyncio.sleep(50)
    assert C in {m.endpoint.address for m in fleet}
    await asyncio.sleep(11)
    assert addresses(fleet) == [A, B]
    assert not fleet.overrides["main"].added
    assert not fleet.overrides["main"].drained


async def test_the_last_endpoint_is_removed_only_with_force(fleet: Fleet) -> None:
    do(fleet, "drain", A)
    for verb in ("drain", "remove"):
        with pytest.raises(NotDone, match="force"):
            do(fleet, verb, B)
    do(fleet, "remove", A)  # it took none any more
    do(fleet, "drain", B, force=True)
    assert addresses(fleet) == []


@pytest.mark.parametrize(
    ("operation", "status"),
    [
        (Operation(verb="drain", pool="other", endpoint="other/x"), 404),
        (Operation(verb="drain", pool="main", endpoint="main/x"), 404),
        (Operation(verb="remove", pool="main", endpoint="main/x"), 404),
        (Operation(verb="add", pool="main", url=A, expires=2e9), 409),
        (Operation(verb="drain", pool="local", endpoint="local/0"), 409),
    ],
)
async def test_an_impossible_operation_is_refused_and_changes_nothing(
    fleet: Fleet, operation: Operation, status: int
) -> None:
    fleet.configs["local"] = PoolConfig.model_validate({"name": "local", "runtime": {"kind": "llm", "model": "x"}})
    with pytest.raises(NotDone) as refused:
        operate(fleet, operation)
    assert refused.value.status == status
    assert addresses(fleet) == [A, B]
    assert fleet.overrides["main"] == Overrides()


async def test_the_same_operations_twice_come_to_the_same(fleet: Fleet) -> None:
    """All workers apply the same operations, and a worker may have applied an operation already."""
    other = Fleet(Random(2), asyncio.get_running_loop().time)
    other.secret = SECRET
    use(other)
    script = [("add", C, {}), ("drain", A, {}), ("weigh", C, {"weight": 3.0}), ("remove", B, {})]
    for verb, url, fields in script:
        do(fleet, verb, url, **fields)
        for _ in range(2):
            do(other, verb, url, **fields)
    assert [(m.endpoint.id, m.drained, m.endpoint.weight) for m in fleet] == [
        (m.endpoint.id, m.drained, m.endpoint.weight) for m in other
    ]
    assert addresses(fleet) == addresses(other) == [C]
    await other.aclose()


async def test_a_later_worker_has_the_earlier_changes(fleet: Fleet) -> None:
    do(fleet, "add", C, weight=3.0, expires=time.time() + 60)
    do(fleet, "add", "http://127.0.0.1:22")
    do(fleet, "drain", A)
    do(fleet, "weigh", B, weight=0.5)
    later = Fleet(Random(2), lambda: 1e6)  # a clock of its own
    later.secret = SECRET
    use(later)
    adopt(later, pack(fleet))
    assert addresses(later) == addresses(fleet) == [B, C, "http://127.0.0.1:22"]
    assert [m.endpoint.weight for m in later] == [1.0, 0.5, 3.0, 1.0]
    until = {one.target.url: one.until for one in later.overrides["main"].added.values()}
    assert until[C] == pytest.approx(1e6 + 60, abs=5)
    assert until["http://127.0.0.1:22"] == float("inf")
    fleet.overrides["gone"] = Overrides(drained={"gone/x": None})
    adopt(later, pack(fleet))
    assert "gone" not in later.overrides
    await later.aclose()


urls = st.sampled_from([A, B, C, "http://127.0.0.1:22"])
verbs = st.sampled_from(["add", "remove", "drain", "undrain", "weigh"])


@given(st.lists(st.tuples(verbs, urls, st.booleans()), max_size=12))
async def test_whatever_operators_do_each_endpoint_is_there_once(script: list[tuple[str, str, bool]]) -> None:
    fleet = Fleet(Random(1), asyncio.get_running_loop().time)
    fleet.secret = SECRET
    use(fleet)
    for verb, url, force in script:
        try:
            do(fleet, verb, url, force=force, **({"weight": 2.0} if verb == "weigh" else {}))
        except NotDone:
            continue
        ids = [member.endpoint.id for member in fleet]
        assert len(ids) == len(set(ids))
        assert verb != "remove" or url not in addresses(fleet)
        assert verb != "add" or fleet.endpoint_id("main", url) in ids
    await fleet.aclose()


def test_the_first_source_of_an_endpoint_is_its_origin() -> None:
    pool = PoolConfig.model_validate({"name": "main", "endpoints": [A]})
    added = Overrides(
        added={"x": Added(DiscoveredEndpoint(C), float("inf")), "y": Added(DiscoveredEndpoint(B, 9.0), float("inf"))}
    )
    discovered = [DiscoveredEndpoint(A, 5.0), DiscoveredEndpoint(B, 2.0)]
    endpoints = desired(pool, lambda target: target.url, discovered, added, 0.0)
    assert [(w.target.url, w.target.weight, w.origin) for w in endpoints] == [
        (A, 1.0, "configuration"), (B, 2.0, "discovery"), (C, 1.0, "operator"),
    ]  # fmt: skip


async def test_the_id_of_an_endpoint_reveals_nothing_and_is_stable_for_a_secret() -> None:
    one, same, other = (Fleet(Random(0), asyncio.get_running_loop().time) for _ in range(3))
    one.secret = same.secret = derived(b"p" * 32, "endpoint ids")
    assert one.endpoint_id("main", A) == same.endpoint_id("main", A)
    assert one.endpoint_id("main", A) != other.endpoint_id("main", A)
    for fleet in (one, same, other):
        digest = fleet.endpoint_id("main", A).rpartition("/")[2]
        assert digest not in {blake2b(A.encode(), digest_size=size).hexdigest() for size in range(1, 65)}
        use(fleet)
        assert fleet.endpoint_id("main", A) in {member.endpoint.id for member in fleet}
        await fleet.aclose()


def test_overrides_of_endpoints_that_come_and_go_do_not_pile_up() -> None:
    overrides = Overrides()
    for i in range(MAX_OVERRIDES + 10):
        overrides.removed[f"main/{i}"] = None
        overrides.weights[f"main/{i}"] = 1.0
    overrides.trim(0.0)
    assert len(overrides.removed) == len(overrides.weights) == MAX_OVERRIDES
    assert "main/0" not in overrides.removed


async def test_a_pool_has_only_so_many(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_TARGETS == 1000
    monkeypatch.setattr("gateway.traffic.fleet.operations.MAX_TARGETS", 3)
    do(fleet, "add", C)
    with pytest.raises(NotDone, match="at most"):
        do(fleet, "add", "http://127.0.0.1:22")


# ── what is found ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def detection(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator["Detection"]:
    async def nothing(self: Discoverer) -> None:
        await asyncio.sleep(1e6)

    monkeypatch.setattr(Discoverer, "_run", nothing)
    made = Fleet(Random(1), asyncio.get_running_loop().time)
    yield Detection(made)
    await made.aclose()


class Detection:
    """A pool `main` whose endpoints a test finds."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    def use(self, **changes: Any) -> None:
        pool = {"name": "main", "discover": {"file": "unused"}, "probe": {"interval": "1h"}, **changes}
        self.fleet.commit(self.fleet.prepare(config(pools=[pool])))

    def report(self, *urls: str) -> None:
        self.fleet.discoverers["main"]._report(map(DiscoveredEndpoint, urls))


async def test_the_first_endpoints_are_used_at_once_and_later_ones_after_a_check(detection: Detection) -> None:
    detection.use()
    assert addresses(detection.fleet) == []
    detection.report(A)
    (first,) = detection.fleet.pools["main"].endpoints
    assert first.health == "unknown"
    detection.report(A, B)
    assert [e.health for e in detection.fleet.pools["main"].endpoints] == ["unknown", "unhealthy"]
    detection.use(endpoints=[C])  # beside those that the file has
    assert addresses(detection.fleet) == [C, A, B]
    assert detection.fleet.pools["main"].endpoints[1] is first
    detection.report(B)
    assert addresses(detection.fleet) == [C, B]


async def test_the_endpoints_of_an_unchanged_source_survive_a_reload(detection: Detection) -> None:
    detection.use()
    detection.report(A, B)
    source = detection.fleet.discoverers["main"]
    detection.use(balance={"by": "round_robin"})
    assert detection.fleet.discoverers["main"] is source
    assert addresses(detection.fleet) == [A, B]
    detection.use(discover={"file": "another"})
    assert detection.fleet.discoverers["main"] is not source
    source._report([DiscoveredEndpoint(C)])
    assert addresses(detection.fleet) == []


async def test_a_reload_waits_for_a_new_source_and_is_refused_without_its_word(
    detection: Detection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.traffic.discovery.discoverer.FIRST_SECONDS", 0.05)
    change = detection.fleet.prepare(config(pools=[{"name": "main", "discover": {"dns": "models.test:1"}}]))
    with pytest.raises(FleetError, match="main: discover: has not answered yet"):
        await detection.fleet.ready(change)
    detection.fleet.abandon(change)


async def test_an_endpoint_that_is_dropped_while_a_reload_waits_stays_dropped(detection: Detection) -> None:
    detection.use()
    detection.report(A, B)
    pool = {"name": "main", "discover": {"file": "unused"}, "probe": {"interval": "1h"}, "breaker": {"failures": 9}}
    change = detection.fleet.prepare(config(pools=[pool]))
    detection.report(B)
    await asyncio.sleep(0.1)
    detection.fleet.commit(change)
    assert addresses(detection.fleet) == [B]
    await asyncio.sleep(0.1)
    assert not detection.fleet.leaving("main")

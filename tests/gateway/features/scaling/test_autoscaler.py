"""The decisions of a gateway over scripted processes and replicas, on a clock of its own."""

import asyncio
import logging
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.features.scaling.autoscaler import SAMPLE_SECONDS
from gateway.traffic.standing import PoolDemand, PoolStanding
from tests.support.fleets import Fleet
from tests.support.waiting import until


async def test_replicas_follow_the_demand_and_the_reason_has_its_figures() -> None:
    fleet = Fleet(min=1, max=6, places=4, hold="60s")
    await fleet.run(5, in_flight=1)
    assert len(fleet.replicas) == 1
    await fleet.run(60, in_flight=12)
    high = len(fleet.replicas)
    assert 3 <= high <= 6
    assert "at 4 a replica" in fleet.described()["reason"]
    await fleet.run(1000, in_flight=1)
    assert len(fleet.replicas) == 1
    assert max(fleet.changes) == high


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 3),
    st.integers(0, 5),
    st.lists(st.tuples(st.floats(0.5, 60), st.integers(0, 100), st.integers(0, 100)), max_size=8),
    st.floats(0, 30),
)
async def test_the_number_is_always_within_its_bounds(
    least: int, more: int, history: list[tuple[float, int, int]], start_seconds: float
) -> None:
    most = max(1, least + more)
    fleet = Fleet(start_seconds, min=least, max=most, **({"places": 4} if most > least else {}))
    for seconds, in_flight, waiting in history:
        await fleet.run(seconds, in_flight, waiting=waiting)
        assert all(least <= count <= most for count in fleet.changes)
        state = fleet.described()
        assert state["ready"] + state["starting"] <= len(fleet.replicas)
        assert state["reason"]


async def test_measurements_that_flap_remove_no_replica() -> None:
    fleet = Fleet(min=1, max=8, places=4, hold="5m")
    for _ in range(120):
        await fleet.run(1, in_flight=24)
        await fleet.run(1, in_flight=0)
    grown = fleet.changes[: fleet.changes.index(max(fleet.changes)) + 1]
    assert fleet.changes == grown == sorted(grown), "a replica was removed within `hold`"


async def test_a_waiting_request_wakes_a_pool_at_once_and_idle_time_stops_it(caplog: pytest.LogCaptureFixture) -> None:
    fleet = Fleet(3.0, min=0, max=2, idle="30s", hold="10s")
    await fleet.run(10)
    assert fleet.replicas == {}
    await fleet.run(SAMPLE_SECONDS, waiting=1)
    assert list(fleet.replicas) == [0]
    await fleet.run(2, waiting=1)
    assert fleet.standing.starting == pytest.approx(2, abs=0.6)
    assert fleet.standing.start_seconds is None
    await fleet.run(3, in_flight=1)
    assert fleet.described()["start_seconds"] == pytest.approx(3, abs=0.6)
    await fleet.run(40)
    assert fleet.replicas == {}
    assert "no request for 30 s" in fleet.described()["reason"]


async def test_a_replica_that_is_never_ready_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    fleet = Fleet(1e9, min=0, max=1)
    await fleet.run(200, waiting=1)
    reports = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.getMessage() for record in reports] == [
        "runtime main/0 is not ready after 60 s (`start_timeout`): it does not count as starting any more"
    ]
    assert fleet.standing.failure == "replica 0 is not ready after 60 s"
    fleet.replicas[0].ready_at = fleet.now
    await fleet.run(2, in_flight=1)
    assert (fleet.standing.failure, fleet.described()["ready"]) == ("", 1)


async def test_a_replica_that_fails_at_each_start_does_not_hide_one_that_serves() -> None:
    fleet = Fleet(min=2, max=2)
    await fleet.run(2)
    fleet.replicas[1].failing, fleet.replicas[1].ready_at = "ended with status 3", 1e9
    await fleet.run(2, in_flight=1)
    assert fleet.standing.failure == ""
    assert fleet.described()["failure"] == "replica 1 ended with status 3"


async def test_without_a_report_of_any_process_nothing_changes() -> None:
    fleet = Fleet(min=1, max=4, places=1, hold="1s")
    await fleet.run(30, in_flight=3)
    before, fleet.demand = dict(fleet.replicas), None
    for _ in range(100):
        fleet.now += SAMPLE_SECONDS
        await fleet.autoscaler.tick()
    assert fleet.replicas.keys() >= before.keys()


async def test_a_change_that_is_refused_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    fleet = Fleet(min=1, max=4, places=1)
    fleet.refusal = "pool main: runtime: no port from 1 to 2 is free"
    await fleet.run(30, in_flight=3)
    assert sum("no port" in record.getMessage() for record in caplog.records) == 1
    fleet.refusal = ""
    await fleet.run(2, in_flight=3)
    assert len(fleet.replicas) >= 3


async def test_a_schedule_is_a_floor() -> None:
    window = {"during": {"between": "08:00-09:00"}, "min": 3}
    fleet = Fleet(min=0, max=4, schedule=[window])
    fleet.now = 7 * 3600 + 59 * 60
    await fleet.run(10)
    assert fleet.replicas == {}
    await fleet.run(60)
    assert len(fleet.replicas) == 3
    assert "the schedule is 3" in fleet.described()["reason"]


async def test_a_reload_changes_the_bounds_of_the_measurements_so_far() -> None:
    fleet = Fleet(min=1, max=8, places=4)
    await fleet.run(60, in_flight=16)
    before = len(fleet.replicas)
    assert before >= 4
    fleet.config = Fleet(min=1, max=2, places=4).config
    await fleet.run(2, in_flight=16)
    assert len(fleet.replicas) == 2
    assert "`most` is 2" in fleet.described()["reason"]


async def test_an_unexpected_error_is_logged_once_and_ends_no_later_decision(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gateway.features.scaling.autoscaler.SAMPLE_SECONDS", 0.001)
    fleet = Fleet(min=0, max=2)
    broken = True

    async def exchange(standings: Sequence[PoolStanding]) -> list[PoolDemand]:
        fleet.now += SAMPLE_SECONDS
        if broken:
            raise RuntimeError("a defect")
        return [PoolDemand(pool="main", waiting=1)]

    monkeypatch.setattr(fleet, "exchange", exchange)
    running = asyncio.create_task(fleet.autoscaler.run())
    await asyncio.sleep(0.1)
    broken = False
    await until(lambda: fleet.replicas)
    running.cancel()
    await asyncio.wait([running])
    assert [record.levelno for record in caplog.records if record.exc_info] == [logging.ERROR]

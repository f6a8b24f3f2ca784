"""A pool whose endpoints others start: decisions without an action, and measured starts."""

import asyncio
from typing import Any

import pytest

from gateway.features.scaling import autoscaler
from gateway.features.scaling.external import ExternalScale
from gateway.features.scaling.metrics import ReplicaMetrics
from gateway.features.scaling.pool_scale import PoolScale
from gateway.traffic.standing import PoolDemand
from tests.support.fleets import Fleet
from tests.support.gateways import config


class ExternalFleet(Fleet):
    """A pool with discovered endpoints."""

    def __init__(self, **scale: Any) -> None:
        super().__init__()
        pool = {"name": "main", "discover": {"dns": "models.test:8000"}, "scale": scale}
        self.config = config(pools=[pool])

    def observe(self, endpoints: int, ready: int, in_flight: int = 0, waiting: int = 0) -> list[PoolDemand]:
        common: dict[str, Any] = {"pool": "main", "endpoints": endpoints, "ready": tuple(range(ready))}
        return [PoolDemand(in_flight=in_flight, waiting=waiting, **common), PoolDemand(**common)]


def replicas(pool: PoolScale) -> dict[str, float]:
    """The samples of `headrace_replicas`, by state."""
    (metric, *_) = ReplicaMetrics(lambda: [pool]).collect()
    return {sample.labels["state"]: sample.value for sample in metric.samples}


def state(pool: PoolScale) -> str:
    return "active" if pool.is_active else "idle"


async def test_the_replicas_are_the_endpoints_and_a_start_is_measured() -> None:
    fleet = ExternalFleet(min=0, max=4, places=2, idle="5s")
    pool = fleet.autoscaler.pools["main"]
    assert type(pool) is ExternalScale
    now = 100.0
    pool.sample(fleet.observe(0, 0, waiting=3), {}, now)
    assert state(pool) == "active"
    pool.decide(now, now)
    assert pool.standing(now + 4).starting == pytest.approx(4)
    pool.sample(fleet.observe(2, 0, waiting=3), {}, now + 5)
    assert replicas(pool) == {"ready": 0, "starting": 2, "failing": 0}
    pool.sample(fleet.observe(2, 2, in_flight=3), {}, now + 9)
    assert (pool.standing(now + 9).start_seconds, pool.describe()["ready"], pool.describe()["replicas"]) == (9.0, 2, 2)
    for second in range(10, 20):
        pool.sample(fleet.observe(2, 2), {}, now + second)
        pool.decide(now + second, now)
    assert state(pool) == "idle"
    assert fleet.changes == []


async def test_it_is_still_decided_after_the_occupancy_of_others_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoscaler, "OCCUPANCY_SECONDS", 0.01)
    monkeypatch.setattr(autoscaler, "SAMPLE_SECONDS", 0.01)
    fleet = ExternalFleet(min=0, max=4)
    fleet.autoscaler.pools["main"].sample(fleet.observe(2, 2, in_flight=3), {}, fleet.now)
    running = asyncio.create_task(fleet.autoscaler.run())
    await asyncio.sleep(0.2)
    assert not running.done(), running.exception()
    running.cancel()
    await asyncio.wait([running])

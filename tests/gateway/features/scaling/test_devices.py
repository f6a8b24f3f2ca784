"""Models that share a device, by the decisions of a gateway over scripted processes."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from config.schema.config import Config
from gateway.features.placement.local import LocalRuntime
from gateway.features.scaling.autoscaler import SAMPLE_SECONDS, Autoscaler
from gateway.traffic.standing import PoolDemand, PoolStanding
from tests.support.fleets import Replica
from tests.support.gateways import config


class SharedFleet:
    """Pools on one device. A stopped process ends after `stop_seconds`, or with its last request."""

    def __init__(
        self, sizes: Sequence[int], memory: int, pinned: int = -1, start: float = 2.0, stop: float = 1.0
    ) -> None:
        self.sizes = {f"pool-{at}": size for at, size in enumerate(sizes)}
        replicas = {"min": 0, "max": 1, "device": "gpu", "idle": "60s"}
        self.config: Config = config(
            devices=[{"name": "gpu", "memory": f"{memory}B", "patience": "10s"}],
            pools=[
                {
                    "name": name,
                    "runtime": {
                        "kind": "command",
                        "command": ["serve", "{port}"],
                        "replicas": {**replicas, "memory": f"{size}B", "pinned": at == pinned},
                    },
                }
                for at, (name, size) in enumerate(self.sizes.items())
            ],
            models=[{"name": name, "routes": [{"to": name}]} for name in self.sizes],
        )
        self.memory, self.start, self.stop, self.now = memory, start, stop, 1000.0
        self.replicas: dict[str, dict[int, Replica]] = {name: {} for name in self.sizes}
        self.ends: dict[str, float] = {}
        self.waiting: dict[str, list[float]] = {name: [] for name in self.sizes}
        self.work: dict[str, list[float]] = {name: [] for name in self.sizes}
        self.longest = 0.0
        self.autoscaler = Autoscaler(lambda: self.config, self, lambda: self.now, lambda: self.now)

    async def exchange(self, standings: Sequence[PoolStanding]) -> list[PoolDemand]:
        return [
            PoolDemand(
                pool=name,
                in_flight=len(self.work[name]),
                waiting=len(self.waiting[name]),
                ready=tuple(n for n, replica in self.replicas[name].items() if self.now >= replica.ready_at),
            )
            for name in self.sizes
        ]

    def running(self, pool: str) -> Mapping[int, LocalRuntime]:
        return cast(Mapping[int, LocalRuntime], self.replicas[pool])

    def occupies(self, pool: str) -> bool:
        return bool(self.replicas[pool]) or self.ends.get(pool, 0.0) > self.now

    async def scale(self, pool: str, numbers: tuple[int, ...]) -> None:
        if numbers:
            assert not self.occupies(pool)
            self.replicas[pool] = {0: Replica(0, self.now + self.start)}
        else:
            self.replicas[pool] = {}
            self.ends[pool] = max([self.now + self.stop, *self.work[pool]])
        assert sum(size for name, size in self.sizes.items() if self.occupies(name)) <= self.memory

    async def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += SAMPLE_SECONDS
            for name, replicas in self.replicas.items():
                self.work[name] = [done for done in self.work[name] if done > self.now]
                if any(self.now >= replica.ready_at for replica in replicas.values()):
                    self.work[name] += [self.now + 3.0] * len(self.waiting[name])
                    self.waiting[name] = []
                self.longest = max(self.longest, *(self.now - since for since in self.waiting[name]), 0.0)
            await self.autoscaler.tick()

    def request(self, pool: str) -> None:
        self.waiting[pool].append(self.now)

    def described(self, pool: str) -> dict[str, Any]:
        return next(scale for scale in self.autoscaler.describe() if scale["pool"] == pool)


async def test_an_idle_model_gives_way_and_the_reasons_have_the_memory() -> None:
    fleet = SharedFleet([6, 4], 8)
    fleet.request("pool-0")
    await fleet.run(5)
    assert fleet.described("pool-0")["ready"] == 1
    fleet.request("pool-1")
    await fleet.run(SAMPLE_SECONDS)
    await fleet.run(6)
    assert (fleet.described("pool-0")["replicas"], fleet.described("pool-1")["ready"]) == (0, 1)
    fleet.request("pool-0")
    fleet.request("pool-1")
    await fleet.run(1)
    assert fleet.described("pool-0")["reason"] == "6B are needed on gpu, 4B are free"


async def test_a_pinned_model_is_loaded_at_the_start_and_stays() -> None:
    fleet = SharedFleet([6, 2, 2], 8, pinned=0)
    await fleet.run(5)
    assert fleet.described("pool-0")["ready"] == 1
    for _ in range(30):
        fleet.request("pool-1")
        fleet.request("pool-2")
        await fleet.run(5)
        assert fleet.described("pool-0")["ready"] == 1
    assert fleet.longest < 60
    await fleet.run(200)
    assert [fleet.described(name)["replicas"] for name in fleet.sizes] == [1, 0, 0]


async def test_a_model_that_does_not_start_gives_way_to_another() -> None:
    fleet = SharedFleet([6, 6], 8)
    fleet.request("pool-0")
    await fleet.run(1)
    fleet.replicas["pool-0"][0].failing = "ended with status 3"
    fleet.replicas["pool-0"][0].ready_at = 1e9
    fleet.request("pool-1")
    await fleet.run(10)
    assert fleet.described("pool-1")["ready"] == 1


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.integers(1, 8), min_size=2, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.floats(0.25, 8)), min_size=1, max_size=25),
)
async def test_memory_is_never_exceeded_and_every_request_is_computed(
    sizes: list[int], arrivals: list[tuple[int, float]]
) -> None:
    fleet = SharedFleet(sizes, 8)
    for pool, seconds in arrivals:
        fleet.request(f"pool-{pool % len(sizes)}")
        await fleet.run(seconds)
    await fleet.run(150)
    assert not any(fleet.waiting.values())
    assert fleet.longest < 30 * len(sizes)

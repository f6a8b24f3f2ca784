"""Scripted replicas of a pool, and an autoscaler over them."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from config.schema.config import Config
from gateway.features.placement.local import LocalRuntime
from gateway.features.scaling.autoscaler import SAMPLE_SECONDS, Autoscaler
from gateway.traffic.fleet.member import FleetError
from gateway.traffic.standing import PoolDemand, PoolStanding
from tests.support.gateways import config


class Replica:
    """A process that is ready a number of seconds after its start."""

    def __init__(self, number: int, ready_at: float) -> None:
        self.label, self.failing, self.ready_at = f"main/{number}", "", ready_at
        self.config = None


class Fleet:
    """An actuator over scripted processes."""

    def __init__(self, start_seconds: float = 0.0, **replicas: Any) -> None:
        runtime = {"kind": "command", "command": ["serve", "{port}"], "replicas": replicas, "start_timeout": "60s"}
        self.config: Config = config(pools=[{"name": "main", "runtime": runtime}])
        self.now = 1000.0
        self.start_seconds = start_seconds
        self.replicas: dict[int, Replica] = {}
        self.demand: PoolDemand | None = PoolDemand(pool="main")
        self.standing = PoolStanding(pool="main")
        self.refusal = ""
        self.changes: list[int] = []
        self.autoscaler = Autoscaler(lambda: self.config, self, lambda: self.now, lambda: self.now)

    async def exchange(self, standings: Sequence[PoolStanding]) -> list[PoolDemand]:
        self.standing = next(iter(standings))
        if self.demand is None:
            return []
        ready = tuple(number for number, replica in self.replicas.items() if self.now >= replica.ready_at)
        return [PoolDemand(**{**{f: getattr(self.demand, f) for f in self.demand.__struct_fields__}, "ready": ready})]

    def running(self, pool: str) -> Mapping[int, LocalRuntime]:
        return cast(Mapping[int, LocalRuntime], self.replicas)

    def occupies(self, pool: str) -> bool:
        return bool(self.replicas)

    async def scale(self, pool: str, numbers: tuple[int, ...]) -> None:
        if self.refusal:
            raise FleetError(self.refusal)
        self.changes.append(len(numbers))
        made = {number: Replica(number, self.now + self.start_seconds) for number in numbers}
        self.replicas = {number: self.replicas.get(number) or made[number] for number in numbers}

    async def run(self, seconds: float, in_flight: int = 0, **fields: Any) -> None:
        """Let time pass with a constant demand."""
        end = self.now + seconds
        self.demand = PoolDemand(pool="main", in_flight=in_flight, **fields)
        while self.now < end:
            self.now += SAMPLE_SECONDS
            await self.autoscaler.tick()

    def described(self) -> dict[str, Any]:
        [described] = self.autoscaler.describe()
        return described

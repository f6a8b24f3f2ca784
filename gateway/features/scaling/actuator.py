"""Starts and stops replicas: the interface, and the actuator of a gateway of one process."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, cast

from gateway.features.placement.local import LocalRuntimes
from gateway.traffic.fleet.fleet import Fleet
from gateway.traffic.fleet.runtime import OwnRuntime
from gateway.traffic.standing import PoolDemand, PoolStanding


def demands(fleet: Fleet) -> Iterator[PoolDemand]:
    """The demand since the last call for each pool whose number of endpoints is decided here."""
    for name, config in fleet.configs.items():
        if config.scaling is None:
            continue
        members, pool, counts = fleet.members_of(name), fleet.pools[name], fleet.meters[name].take()
        draining = sum(member.endpoint.in_flight for member in fleet.leaving(name))
        listed = config.runtime is None
        numbered = [(at if listed else member.replica, member) for at, member in enumerate(members)]
        yield PoolDemand(
            pool=name,
            in_flight=draining + sum(member.endpoint.in_flight for member in members),
            waiting=pool.waiting,
            begun=counts.begun,
            late=counts.late,
            missed=counts.missed,
            ready=tuple(
                number
                for number, member in numbered
                if member.endpoint.health == "healthy" and not (listed and member.drained)
            ),
            endpoints=len(members),
        )


class Actuator(Protocol):
    """The processes that serve, and the replicas that they use."""

    async def exchange(self, standings: Sequence[PoolStanding]) -> list[PoolDemand]:
        """Report the state of the pools to every process. Returns the demand in each."""

    def running(self, pool: str) -> Mapping[int, OwnRuntime]:
        """The replicas of a pool by number, without those that drain."""

    def occupies(self, pool: str) -> bool:
        """Whether a process of the pool runs or has not ended yet."""

    async def scale(self, pool: str, numbers: tuple[int, ...]) -> None:
        """Run these replicas of a pool. Others drain, then stop. Raises `FleetError`."""


class PlaneActuator:
    """The actuator of a gateway of one process."""

    def __init__(self, fleet: Fleet, runtimes: LocalRuntimes) -> None:
        self._fleet = fleet
        self._runtimes = runtimes

    async def exchange(self, standings: Sequence[PoolStanding]) -> list[PoolDemand]:
        for standing in standings:
            self._fleet.report(standing)
        return list(demands(self._fleet))

    def running(self, pool: str) -> Mapping[int, OwnRuntime]:
        runtimes = ((member.replica, member.runtime) for member in self._fleet.members_of(pool))
        return {number: cast(OwnRuntime, runtime) for number, runtime in runtimes if runtime is not None}

    def occupies(self, pool: str) -> bool:
        return self._runtimes.occupies(pool)

    async def scale(self, pool: str, numbers: tuple[int, ...]) -> None:
        self._runtimes.numbers.choose(pool, numbers)
        self._fleet.refresh(pool)

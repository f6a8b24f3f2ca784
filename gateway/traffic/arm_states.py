"""What is measured of pools, for the arms of splits that are balanced by it."""

from collections.abc import Callable, Iterator, Mapping
from math import inf

from gateway.traffic.endpoint import Endpoint, RefusalKey
from gateway.traffic.pool import Pool
from policies.balancing.balance import expected_wait


class PoolStates:
    """`policies.routing.arm_balance.ArmStates` of the pools in force."""

    def __init__(self, pools: Mapping[str, Pool], clock: Callable[[], float]) -> None:
        self._pools = pools
        self._clock = clock

    def latency(self, pools: tuple[str, ...], model: str, tenant: str) -> float:
        """The shortest expected wait at an endpoint with a place. An endpoint without a measurement is tried first."""
        now = self._clock()
        waits = [expected_wait(endpoint, now) for endpoint in self._free(pools, model, tenant, now)]
        return min(waits, default=inf)

    def load(self, pools: tuple[str, ...], model: str, tenant: str) -> float:
        """The requests in flight and this one, for each place."""
        now = self._clock()
        if next(self._free(pools, model, tenant, now), None) is None:
            return inf
        places = in_flight = 0
        for name in pools:
            if (pool := self._pools.get(name)) is not None:
                usable, running, waiting = pool.load(now)
                places, in_flight = places + usable, in_flight + running + waiting
        return (in_flight + 1) / max(places, 1)

    def _free(self, pools: tuple[str, ...], model: str, tenant: str, now: float) -> Iterator[Endpoint]:
        subject = RefusalKey(model, tenant)
        for name in pools:
            if (pool := self._pools.get(name)) is not None:
                yield from pool.free(subject, now)

"""The load of a set of pools, and what else is measured of the arms of balanced splits."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf

from gateway.traffic.endpoint import Endpoint, RefusalKey
from gateway.traffic.pool import Pool
from policies.balancing.balance import expected_wait
from policies.batches.admission import PoolLoad


def load_of(pools: Mapping[str, Pool], names: Iterable[str], now: float) -> PoolLoad:
    """The load of the pools with these names, as far as they exist."""
    loads = [pools[name].load(now) for name in names if name in pools]
    return PoolLoad(sum(each[0] for each in loads), sum(each[1] for each in loads), sum(each[2] for each in loads))


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

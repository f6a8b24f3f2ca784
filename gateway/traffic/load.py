"""The load of a set of pools."""

from collections.abc import Iterable, Mapping

from gateway.traffic.pool import Pool
from policies.batches.admission import PoolLoad


def load_of(pools: Mapping[str, Pool], names: Iterable[str], now: float) -> PoolLoad:
    """The load of the pools with these names, as far as they exist."""
    loads = [pools[name].load(now) for name in names if name in pools]
    return PoolLoad(sum(each[0] for each in loads), sum(each[1] for each in loads), sum(each[2] for each in loads))

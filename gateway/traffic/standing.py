"""The measurements and the state of pools that the processes of a gateway exchange."""

from typing import NamedTuple

import msgspec


class AccountMemory(NamedTuple):
    """The memory in which processes share the pauses and quotas of accounts."""

    fd: int = -1
    """-1 for memory of this process alone."""
    workers: int = 1
    me: int = 0
    """The number of this process among the workers."""


class PoolDemand(msgspec.Struct, frozen=True, kw_only=True):
    """The demand for a pool in one process. Counts are those since the last exchange."""

    pool: str
    in_flight: int = 0
    """Requests at endpoints now."""
    waiting: int = 0
    """Requests in the queue now."""
    begun: int = 0
    """Requests that were sent to an endpoint."""
    late: int = 0
    """Of `begun`, the requests that waited longer than the objective."""
    missed: int = 0
    """Requests that were refused, or sent to another pool, because all places were taken."""
    ready: tuple[int, ...] = ()
    """The replicas whose health checks succeed; of a pool without a runtime, their positions."""
    endpoints: int = 0
    """The endpoints of the pool."""


class PoolStanding(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a pool's replicas, as the process reports that starts them."""

    pool: str
    running: int = 0
    """Processes that run or start."""
    start_seconds: float | None = None
    """The measured time of a start."""
    starting: float | None = None
    """Seconds since the start of the replica that is expected first; None if none starts."""
    failure: str = ""
    """The reason why no replica starts."""
    sleeping: tuple[str, ...] = ()
    """Addresses of endpoints that receive no new request, because they sleep or will sleep."""


class ScalingExchange(msgspec.Struct, frozen=True, kw_only=True):
    """To a worker: the replicas, and the state of the pools. From a worker: the demand."""

    replicas: dict[str, dict[int, str]] | None = None
    """Addresses by pool and number; None while a reload replaces them."""
    standings: tuple[PoolStanding, ...] = ()
    demands: tuple[PoolDemand, ...] = ()

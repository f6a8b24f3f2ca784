"""Pools of scripted endpoints, without a fleet."""

import asyncio
from collections.abc import Sequence
from random import Random

from adapters.fake import FakeAdapter
from adapters.types import Deadline
from config.schema.config import BalanceConfig, QueueConfig, TenantConfig
from gateway.traffic.endpoint import Endpoint
from gateway.traffic.pool import Pool
from gateway.traffic.queue import PoolQueue
from policies.balancing.pickers import picker
from policies.breaker import Breaker

FOREVER = Deadline(1e9, 1e9, 1e9)


def pool(
    *adapters: FakeAdapter,
    max_in_flight: int = 100,
    failures: int = 5,
    balance: BalanceConfig | None = None,
    queue: QueueConfig | None = None,
    tenants: Sequence[TenantConfig] = (),
) -> Pool:
    """Pool `p` of endpoints `p/0`, `p/1` and so on. `failures` in a row open a breaker."""
    balance, clock = balance or BalanceConfig(), asyncio.get_running_loop().time
    endpoints = [Endpoint(f"p/{i}", adapter, Breaker(failures, 10.0)) for i, adapter in enumerate(adapters)]
    for endpoint in endpoints:
        endpoint.configure(1.0, balance.slow_start)
    return Pool(
        "p",
        endpoints,
        picker(balance),
        max_in_flight=max_in_flight,
        panic=balance.panic,
        queue=PoolQueue("p", queue, tenants, clock) if queue is not None else None,
        rng=Random(1),
        clock=clock,
    )


def down(endpoint: Endpoint) -> None:
    """A health check fails."""
    endpoint.probed("down", healthy_after=1, unhealthy_after=1)


def up(endpoint: Endpoint) -> None:
    """A health check succeeds."""
    endpoint.probed("", healthy_after=1, unhealthy_after=1)

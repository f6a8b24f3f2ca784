"""What operators changed in the pools, from one worker to the others and to those that come after them.

Moments are of the loop's clock, which is the same in all processes of a host.
"""

import asyncio
from math import inf

import msgspec

from gateway.traffic.fleet import Fleet
from gateway.traffic.wanted import Overrides

PAUSE = 0.05


def pack(fleet: Fleet) -> bytes:
    """All of it."""
    return msgspec.msgpack.encode(fleet.overrides)


def unpack(packed: bytes, fleet: Fleet) -> None:
    """Take all of it over, before the fleet has pools or while it has. Raises `ValueError`."""
    told = msgspec.msgpack.decode(packed, type=dict[str, Overrides])
    fleet.overrides = {pool: Overrides() for pool in fleet.configs} | told
    for pool, overrides in fleet.overrides.items():
        fleet.refresh(pool)
        for added in overrides.added.values():
            if added.until < inf:
                _refresh_at(added.until, fleet, pool)


def _refresh_at(moment: float, fleet: Fleet, pool: str) -> None:
    asyncio.get_running_loop().call_at(moment + PAUSE, fleet.refresh, pool)

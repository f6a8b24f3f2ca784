"""The servers of a pool that are awake, of servers that can sleep."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SleepFacts:
    """One server."""

    address: str
    reachable: bool = True
    failing: bool = False
    """Whether its last order failed."""
    asleep: bool = False


def chosen(servers: Iterable[SleepFacts], replicas: int) -> tuple[str, ...]:
    """The addresses of the servers that should be awake, as many as `replicas`.

    Servers that work come first, then those that are awake, then the written order. Gateways with the same list
    therefore choose the same servers, and a smaller choice is a part of a larger one.
    """
    order = sorted(servers, key=lambda server: (not server.reachable, server.failing, server.asleep))
    return tuple(server.address for server in order[:replicas])

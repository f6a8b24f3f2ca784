"""The demand for each pool in one process."""

from collections.abc import Iterator

from gateway.traffic.fleet.fleet import Fleet
from gateway.traffic.fleet.standing import PoolDemand


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

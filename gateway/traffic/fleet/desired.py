"""The endpoints that a pool should have: from the configuration, discovery and operators. No I/O."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from config.schema.config import PoolConfig
from gateway.traffic.discovery.target import MAX_TARGETS, DiscoveredEndpoint

MAX_OVERRIDES = 4 * MAX_TARGETS


@dataclass(frozen=True, slots=True)
class DesiredEndpoint:
    """One endpoint that a pool should have."""

    id: str
    target: DiscoveredEndpoint
    origin: str
    drained: bool


@dataclass(frozen=True, slots=True)
class Added:
    """An endpoint that an operator added, and the end of its time by the loop's clock, if any."""

    target: DiscoveredEndpoint
    until: float


@dataclass(slots=True)
class Overrides:
    """Changes by operators in one pool, by endpoint id. They last as long as the process and the pool."""

    added: dict[str, Added] = field(default_factory=dict)
    removed: dict[str, None] = field(default_factory=dict)
    drained: dict[str, None] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)

    def forget(self, id_: str) -> None:
        """Drop all changes of an endpoint."""
        self.added.pop(id_, None)
        self.removed.pop(id_, None)
        self.drained.pop(id_, None)
        self.weights.pop(id_, None)

    def trim(self, now: float) -> None:
        """Drop expired added endpoints, and the oldest changes beyond `MAX_OVERRIDES`."""
        for id_ in [id_ for id_, one in self.added.items() if one.until <= now]:
            self.forget(id_)
        for changes in (self.removed, self.drained, self.weights):
            while len(changes) > MAX_OVERRIDES:
                changes.pop(next(iter(changes)))


def desired(
    pool: PoolConfig,
    name: Callable[[DiscoveredEndpoint], str],
    discovered: Iterable[DiscoveredEndpoint],
    overrides: Overrides,
    now: float,
    sleeping: Collection[str] = (),
) -> list[DesiredEndpoint]:
    """Each endpoint once: configured, then discovered, then added ones. Changes by operators override all others.
    `name` returns the id of an endpoint. Endpoints with addresses in `sleeping` drain."""
    added = (one.target for one in overrides.added.values() if now < one.until)
    sources = (
        ("configuration", DiscoveredEndpoint.listed(pool.endpoints)),
        ("discovery", discovered),
        ("operator", added),
    )
    listed: dict[str, DesiredEndpoint] = {}
    for origin, targets in sources:
        for target in targets:
            id_ = name(target)
            if id_ in listed or id_ in overrides.removed:
                continue
            weight = overrides.weights.get(id_, target.weight)
            drained = id_ in overrides.drained or target.url in sleeping
            listed[id_] = DesiredEndpoint(id_, replace(target, weight=weight), origin, drained)
    return list(listed.values())[:MAX_TARGETS]

"""Which endpoints a pool is to have: what the file says, what discovery finds, what operators changed. No I/O."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from config.schema.config import PoolConfig
from gateway.discovery.target import MAX_TARGETS, Target

MAX_OVERRIDES = 4 * MAX_TARGETS


@dataclass(frozen=True, slots=True)
class DesiredEndpoint:
    """One of them."""

    id: str
    target: Target
    origin: str
    drained: bool


@dataclass(frozen=True, slots=True)
class Added:
    """An endpoint that an operator added, perhaps until a moment of the loop's clock."""

    target: Target
    until: float


@dataclass(slots=True)
class Overrides:
    """What operators changed in one pool, by endpoint id. Lives as long as the process and the pool do."""

    added: dict[str, Added] = field(default_factory=dict)
    removed: dict[str, None] = field(default_factory=dict)
    drained: dict[str, None] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)

    def forget(self, id_: str) -> None:
        """Nothing is to be changed about it any more."""
        self.added.pop(id_, None)
        self.removed.pop(id_, None)
        self.drained.pop(id_, None)
        self.weights.pop(id_, None)

    def trim(self, now: float) -> None:
        """Those that were added for a time that is over go, and so does the least of what piled up of endpoints
        that come and go by themselves."""
        for id_ in [id_ for id_, one in self.added.items() if one.until <= now]:
            self.forget(id_)
        for kept in (self.removed, self.drained, self.weights):
            while len(kept) > MAX_OVERRIDES:
                kept.pop(next(iter(kept)))


def desired(
    pool: PoolConfig, name: Callable[[str], str], found: Iterable[Target], overrides: Overrides, now: float
) -> list[DesiredEndpoint]:
    """Each once, in this order: as configured, as found, as added. What operators changed wins over all. `name` gives
    the id of a URL."""
    added = (one.target for one in overrides.added.values() if now < one.until)
    sources = (
        ("configuration", map(Target.of, pool.endpoints)),
        ("discovery", found),
        ("operator", added),
    )
    listed: dict[str, DesiredEndpoint] = {}
    for origin, targets in sources:
        for target in targets:
            id_ = name(target.url)
            if id_ in listed or id_ in overrides.removed:
                continue
            weight = overrides.weights.get(id_, target.weight)
            listed[id_] = DesiredEndpoint(id_, replace(target, weight=weight), origin, id_ in overrides.drained)
    return list(listed.values())[:MAX_TARGETS]

"""The models that share the memory of a device: which to load, and which to stop for them. Time is an argument."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

ModelState = Literal["absent", "loading", "loaded", "stopping"]
"""A model that is not `absent` occupies its memory. One that is `stopping` receives no request and ends its work."""


@dataclass(frozen=True, slots=True)
class SharedModel:
    """One model. Times are seconds, sizes bytes."""

    name: str
    size: int
    state: ModelState = "absent"
    waiting: int = 0
    """Requests that wait for the model."""
    waited: float = 0.0
    """The time of the request that waits longest."""
    working: int = 0
    """Requests that the model computes."""
    unused: float = 0.0
    """The time since its last request."""
    loaded: float = 0.0
    """The time since it was loaded."""
    cost: float = 1.0
    """The measured time of a start."""
    pinned: bool = False
    """Whether it is never stopped for another model."""


@dataclass(slots=True)
class Swaps:
    """The models to load and to stop now, and the models that cannot be loaded, with the reason."""

    load: list[str] = field(default_factory=list)
    stop: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def swaps(models: Sequence[SharedModel], memory: int, patience: float) -> Swaps:
    """The changes that are due. `memory`: bytes of the device; `patience`: seconds until a model takes precedence."""
    decided = Swaps()
    pinned = sum(model.size for model in models if model.pinned)
    free = memory - sum(model.size for model in models if model.state != "absent")
    coming = sum(model.size for model in models if model.state == "stopping")
    victims = [model for model in models if model.state == "loaded" and not model.pinned]
    for model in _order(models, patience):
        most = memory - (0 if model.pinned else pinned)
        if model.size > most:
            decided.refused[model.name] = f"{model.size} bytes exceed the {most} bytes of the device"
            continue
        is_overdue = model.waited >= patience
        if model.size <= free:
            decided.load.append(model.name)
            free -= model.size
            continue
        missing = model.size - free - coming
        chosen = _chosen(victims, missing, patience, is_overdue=is_overdue)
        if chosen is not None:
            decided.stop += (victim.name for victim in chosen)
            victims = [victim for victim in victims if victim not in chosen]
            coming = max(0, sum(victim.size for victim in chosen) - missing)
            free = 0  # reserved, with the memory that becomes free
        if is_overdue:
            break
    return decided


def _order(models: Iterable[SharedModel], patience: float) -> list[SharedModel]:
    """The models that requests wait for, in the order in which they are loaded."""
    wanting = [model for model in models if model.state == "absent" and (model.waiting or model.pinned)]

    def rank(model: SharedModel) -> tuple[bool, float]:
        if model.waited >= patience:
            return False, -model.waited
        return True, -(model.waiting + model.pinned) / max(model.cost, 0.001)

    return sorted(wanting, key=rank)


def _chosen(
    victims: Sequence[SharedModel], missing: int, patience: float, *, is_overdue: bool
) -> list[SharedModel] | None:
    """The models to stop, so that `missing` bytes become free; None if they do not suffice."""
    idle = [victim for victim in victims if not victim.working and not victim.waiting]
    order = sorted(idle, key=lambda victim: -victim.unused)
    if is_overdue:
        used = [victim for victim in victims if victim not in idle and victim.loaded >= patience]
        order += sorted(used, key=lambda victim: (-victim.unused, -victim.loaded))
    chosen: list[SharedModel] = []
    for victim in order:
        if missing <= 0:
            break
        chosen.append(victim)
        missing -= victim.size
    return chosen if missing <= 0 else None

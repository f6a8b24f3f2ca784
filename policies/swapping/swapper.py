"""Which models to load into the memory of a device, and which to stop for them.

Loading is work of the device: the model whose waiting requests are the most for each second of its start is loaded
first. A model that has waited for longer than `patience` precedes all others, oldest first, and no other model is
loaded before it. Models without work are stopped for others, the least recently used first. A model with work is
stopped only for a model that has waited longer than `patience`, and only when it has been loaded for as long itself, so
that requests of one model are served together; it ends its work first. So no memory is exceeded, no work is cut off,
and each model is loaded in the end: after at most the turns of all models that have waited longer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from policies.swapping.models import SharedModel


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

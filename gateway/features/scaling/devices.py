"""The models that share the memory of a device: the decision for each, from the measurements of their pools."""

from collections.abc import Callable, Iterable, Mapping

from config.schema.config import Config, SharedDeviceConfig
from config.schema.units import format_size
from gateway.features.scaling.pool_scale import PoolScale
from policies.scaling.scaler import ScalingDecision
from policies.scaling.starts import UNKNOWN
from policies.swapping import ModelState, SharedModel, swaps


def assign(
    config: Config, pools: Mapping[str, PoolScale], occupies: Callable[[str], bool], now: float
) -> Mapping[str, tuple[int, ...]]:
    """The replicas of each pool on a device, by name. Sets their decisions."""
    assigned: dict[str, tuple[int, ...]] = {}
    for device in config.devices:
        users = [pool.name for pool in config.pools if pool.runtime and pool.runtime.replicas.device == device.name]
        assigned |= _on(device, {name: pools[name] for name in users}, occupies, now)
    return assigned


def _on(
    device: SharedDeviceConfig, pools: Mapping[str, PoolScale], occupies: Callable[[str], bool], now: float
) -> dict[str, tuple[int, ...]]:
    models = {name: _model(name, pool, now, occupied=occupies(name)) for name, pool in pools.items()}
    decided = swaps(list(models.values()), device.memory, device.patience)
    free = device.memory - sum(model.size for model in models.values() if model.state != "absent")
    assigned: dict[str, tuple[int, ...]] = {}
    for name, pool in pools.items():
        model, is_idle = models[name], pool.decision.replicas == 0 and not models[name].pinned
        runs = name in decided.load or (pool.count > 0 and name not in decided.stop and not is_idle)
        pool.decision = ScalingDecision(int(runs), _reason(device, model, decided.load, decided.stop, free, pool))
        assigned[name] = (0,) if runs else ()
    return assigned


def _reason(
    device: SharedDeviceConfig,
    model: SharedModel,
    load: Iterable[str],
    stop: Iterable[str],
    free: int,
    pool: PoolScale,
) -> str:
    if model.name in load:
        return f"{model.waiting} requests wait, and {device.name} has memory" if model.waiting else "it is pinned"
    if model.name in stop:
        return f"another model needs the memory of {device.name}"
    if model.state == "absent" and model.waiting:
        return f"{format_size(model.size)} are needed on {device.name}, {format_size(max(free, 0))} are free"
    return "it is pinned" if model.pinned else pool.decision.reason


def _model(name: str, pool: PoolScale, now: float, *, occupied: bool) -> SharedModel:
    state: ModelState = "stopping" if occupied else "absent"
    if pool.count:
        # A model that does not start occupies memory, and gives way to any other.
        state = "loaded" if pool.ready or pool.failure else "loading"
    return SharedModel(
        name,
        pool.memory,
        state,
        waiting=0 if state == "loaded" and not pool.ready else pool.waiting,
        waited=pool.waited(now),
        working=pool.working,
        unused=pool.unused(now),
        loaded=pool.loaded(now),
        cost=UNKNOWN if pool.starts.seconds is None else pool.starts.seconds,
        pinned=pool.is_pinned,
    )

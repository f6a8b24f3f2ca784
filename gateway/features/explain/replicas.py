"""The rules of the number of replicas of each pool, in words."""

from collections.abc import Iterator
from typing import Any

from config.schema.config import Config, PoolConfig, RuntimeConfig
from config.schema.runtimes.ray import PlacedRuntime
from config.schema.runtimes.replicas import ReplicasConfig
from config.schema.units import format_duration, format_percent, format_size


def replica_lines(config: Config) -> Iterator[str]:
    """A line for each pool whose number of replicas follows the demand, or whose replicas run in a Ray cluster."""
    for pool in config.pools:
        rules, placement = pool.scaling, placement_of(pool.runtime)
        if rules is None or not rules.scales:
            if placement is not None and rules is not None:
                yield f"pool {pool.name}: {rules.min} replicas{_words(placement)}"
            continue
        line = (
            f"pool {pool.name}: {rules.min} to {rules.most} replicas of {pool.places} requests each: more if over "
            f"{format_percent(rules.late)} wait longer than {format_duration(rules.wait)}, "
            f"fewer after {format_duration(rules.hold)}"
        )
        if rules.min == 0:
            line += f", none after {format_duration(rules.idle)} without a request"
        if pool.scale is not None and pool.scale.sleep is not None:
            line += f"; the others sleep at level {pool.scale.sleep}"
        if pool.scale is not None and pool.scale.deployment is not None:
            line += f"; they are those of the deployment {pool.scale.deployment} in Ray Serve"
        if isinstance(rules, ReplicasConfig) and rules.device is not None:
            line += f"; it shares {rules.device}, and needs {format_size(rules.memory or 0)}"
        if placement is not None:
            line += f";{_words(placement)}"
        yield line


def placement_of(runtime: RuntimeConfig | None) -> dict[str, Any] | None:
    """The cluster, the strategy, and the resources of a replica by Ray's names; None on the gateway's machine."""
    if not isinstance(runtime, PlacedRuntime) or runtime.on == "local" or runtime.ray is None:
        return None
    return {"ray": runtime.ray.address, "strategy": runtime.ray.strategy, **runtime.required.required()}


def _words(placement: dict[str, Any]) -> str:
    ray, strategy, *amounts = placement.items()
    each = ", ".join(
        f"{format_size(int(amount)) if name == 'memory' else f'{amount:g}'} {name}" for name, amount in amounts
    )
    return f" in the Ray cluster {ray[1]}, by {strategy[1]}, with {each or 'no resources'} each"


def replicas_of(pool: PoolConfig | None) -> dict[str, Any]:
    """The rules of one pool for an explanation: of the number, if it is not fixed, and of the place, in a cluster."""
    rules = None if pool is None else pool.scaling
    if pool is None or rules is None:
        return {}
    placement = placement_of(pool.runtime)
    described = {} if placement is None else {"placement": placement}
    if not rules.scales:
        return described
    wait = format_duration(rules.wait)
    return {"replicas": {"min": rules.min, "max": rules.most, "places": pool.places, "wait": wait}, **described}

"""Explanations as text, and what `headrace check` prints of bindings and of the steps of rollouts."""

import json
from collections.abc import Iterator
from math import isinf
from typing import Any

from config.schema.bus import BindingConfig
from config.schema.config import Config, PoolConfig, RuntimeConfig
from config.schema.rollout import RolloutConfig
from config.schema.runtimes.ray import PlacedRuntime
from config.schema.runtimes.replicas import ReplicasConfig
from config.schema.units import RateLimit, format_duration, format_percent, format_size
from policies.rollouts.power import RATIOS, StepPower, step_powers
from policies.routing.explain import Explanation, Later, RouteCheck, Side
from policies.routing.rules import rollouts_of

_SCOPE = {"per", "enforce", "models", "count", "on_redis_failure"}
DAY = 86400.0


def explained(explanation: Explanation) -> str:
    """The text of an explanation, without a final line feed."""
    return "\n".join(_lines(explanation))


def _lines(explanation: Explanation) -> Iterator[str]:
    model = explanation.model or "no model"
    version = f", version {explanation.version}" if explanation.version else ""
    yield f'{explanation.tenant} requests "{explanation.requested}": {model}{version}'
    if explanation.band is not None:
        yield f"  as a line of a {explanation.band}: below all live requests, at the price of batches"
    for route in explanation.routes:
        yield f"  {_route(route)}: {_checks(route)}"
    if explanation.refused is not None:
        yield f"refused ({explanation.refused}): {explanation.because}"
        return
    if explanation.steps:
        yield "goes through a pipeline:"
        yield from (f"  {line}" for line in explanation.steps)
    elif explanation.to is not None:
        yield from _way(explanation.to)
    else:
        yield "selected for each request, at random or by a key of the request:"
    if len(explanation.arms) > 1:
        for side in explanation.arms:
            yield f"  {format_percent(round(side.share, 4)):>7}  {side.arm}: {', then '.join(_order(side))}"
    yield from _rest(explanation)


def _route(route: RouteCheck) -> str:
    name = f" ({route.name})" if route.name else ""
    return f"routes[{route.route}]{name}" + (f", line {route.line}" if route.line else "")


def _checks(route: RouteCheck) -> str:
    if route.matches:
        conditions = ", ".join(f"{check.field} {check.required} (is {check.seen})" for check in route.checks)
        return f"yes: {conditions}" if conditions else "yes: takes everything"
    return "no: " + ", ".join(
        f"{check.field} {check.required} (is {check.seen})" for check in route.checks if not check.holds
    )


def _way(side: Side) -> Iterator[str]:
    arm = f", arm {side.arm} ({format_percent(round(side.share, 4))} of such requests)" if side.arm else ""
    yield f"goes to {side.pool}{arm}"
    for later in side.fallback:
        yield f"  then {_later(later)}"


def _order(side: Side) -> Iterator[str]:
    yield side.pool
    yield from map(_later, side.fallback)


def _later(later: Later) -> str:
    return f"{' or '.join(later.pools)} after {', '.join(later.on)}"


def _rest(explanation: Explanation) -> Iterator[str]:
    for name, value in explanation.sent.items():
        yield f"  sends {name}: {_json(value)}" if value is not None else f"  does not send {name}"
    for limit in explanation.limits:
        units = ", ".join(f"{unit} {value}" for unit, value in limit.items() if unit not in _SCOPE)
        shadow = ", in shadow" if limit.get("enforce") == "shadow" else ""
        counted = f", counted {limit['count']} by Redis" if "count" in limit else ""
        yield f"  limit per {limit['per']}: {units}{counted}{shadow}"
    if explanation.cost is not None:
        yield f"  costs {explanation.cost} at most"
    if explanation.guards:
        yield f"  guards: {', '.join(explanation.guards)}"
    if explanation.exempt:
        yield f"  exempt from guards: {', '.join(explanation.exempt)}"
    for name, value in explanation.settings.items():
        written = ", ".join(f"{key} {inner}" for key, inner in value.items()) if isinstance(value, dict) else value
        yield f"  {name}: {written}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def binding_lines(config: Config) -> Iterator[str]:
    """One line for each binding: topic, API, model, tenant, and the topics of its answers."""
    for binding in config.listen.bus:
        replies = ", ".join((binding.reply.topic, *binding.reply.allowed))
        yield (
            f"listen.bus {binding.name}: {binding.broker.scheme} {binding.topic} (group {binding.group}) -> "
            f"{_api(binding)} as {_holder(binding)} -> {replies}; dead letters: {binding.dead_letters}"
        )


def _api(binding: BindingConfig) -> str:
    paths = " or ".join((binding.path, *binding.paths))
    if binding.path.startswith("/v2/"):
        return paths
    return f"{paths} of {binding.model or 'the model that the message names'}"


def _holder(binding: BindingConfig) -> str:
    if binding.key_header is None:
        return f"tenant {binding.tenant}"
    of = "" if binding.tenant is None else f" of tenant {binding.tenant}"
    return f"the holder of the key{of} in the header {binding.key_header}"


def step_durations(config: Config, requests: RateLimit, failures: float) -> Iterator[str]:
    """A line for each step of each rollout."""
    for _, rollout in rollouts_of(config.models):
        yield from durations_of(rollout, requests.amount / requests.period, failures)


def durations_of(rollout: RolloutConfig, requests: float, failures: float) -> Iterator[str]:
    """A line for each step of a rollout. `requests` is in 1/s."""
    for step in step_powers(rollout, requests, failures):
        times = ", ".join(f"{ratio:g}x after {_shown(s)}" for ratio, s in zip(RATIOS, step.seconds, strict=True))
        yield f"rollout {rollout.name}: {_written(step)} sees failures of {times}"


def _written(step: StepPower) -> str:
    return f"step {format_percent(step.weight)} for {format_duration(step.least)}"


def _shown(seconds: float) -> str:
    if isinf(seconds):
        return "no time"
    if seconds >= 2 * DAY:
        return f"{seconds / DAY:.0f}d"
    rounded = round(seconds) if seconds < 600 else round(seconds / 60) * 60
    return format_duration(float(max(rounded, 1))) if rounded < 3600 else f"{rounded / 3600:.1f}h"


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

"""Explains the route of a request: the decision, with every condition that was evaluated."""

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import msgspec

from config.schema.config import ClientModelConfig, Config, QuotaConfig, RouteConfig, TenantConfig
from policies.clock import Window
from policies.facts import Facts
from policies.globs import GlobSet
from policies.limits.price import Price
from policies.routing.conditions import Requirement, requirements
from policies.routing.decision import FallbackTarget, Split, Target, chain
from policies.routing.rewrite import Fields
from policies.routing.rules import ARM_SIGN, targets
from policies.splits import choose, steady_subject

MAX_SHOWN = 128
"""Maximum characters of a client's text in an explanation."""

_READ: dict[str, Callable[[Facts], object]] = {
    **{name: attrgetter(name) for name in ("tenant", "key", "version", "front", "stream")},
    "model": attrgetter("requested"),
    "role": lambda facts: ", ".join(sorted(facts.roles)),
    "prompt_tokens": attrgetter("prompt_tokens"),
    "max_tokens": attrgetter("max_tokens"),
    "tools": lambda facts: facts.uses_feature("tools"),
    "json_schema": lambda facts: facts.uses_feature("json_schema"),
    "vision": lambda facts: facts.uses_feature("vision"),
}


class ConditionCheck(msgspec.Struct, frozen=True):
    """One condition of a route, and the request's value."""

    field: str
    required: str
    seen: str
    holds: bool


class RouteCheck(msgspec.Struct, frozen=True, omit_defaults=True):
    """One evaluated route."""

    route: int
    matches: bool
    name: str | None = None
    line: int | None = None
    checks: tuple[ConditionCheck, ...] = ()


class Later(msgspec.Struct, frozen=True):
    """A fallback after some failures: one pool, or the pools of a split."""

    on: tuple[str, ...]
    pools: tuple[str, ...]


class Side(msgspec.Struct, frozen=True, omit_defaults=True):
    """One possible path of the request: the arm, its share of the requests, its pool and its fallbacks."""

    pool: str
    share: float
    arm: str | None = None
    fallback: tuple[Later, ...] = ()

    @property
    def pools(self) -> tuple[str, ...]:
        """All pools of the path, in order."""
        return tuple(dict.fromkeys((self.pool, *(pool for later in self.fallback for pool in later.pools))))


class Explanation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The explanation of one request."""

    tenant: str
    requested: str
    model: str | None = None
    version: str | None = None
    band: str | None = None
    """`batch` for a line of a batch: its priority is below all live requests, and its price is that of batches."""
    refused: str | None = None
    """The code of the error, for a rejected request."""
    because: str | None = None
    """The reason, which the client does not receive."""
    routes: tuple[RouteCheck, ...] = ()
    """The evaluated routes. Either the last one matches, or none."""
    to: Side | None = None
    """The path of the request. None for a random split, and for a rejected request."""
    arms: tuple[Side, ...] = ()
    """All possible paths of a split."""
    sent: dict[str, Any] = {}
    """Fields that the gateway changes for the upstream; None for a removed field."""
    cost: str | None = None
    """The reserved cost, an upper bound."""
    limits: tuple[dict[str, Any], ...] = ()
    guards: tuple[str, ...] = ()
    """The guards that examine it, each with its action, and its mode unless that is `enforce`."""
    exempt: tuple[str, ...] = ()
    """The guards from which its client is exempt, each with the role or the key that exempts it."""
    steps: tuple[str, ...] = ()
    """The steps of a pipeline, one on each line."""
    settings: dict[str, Any] = {}
    """The route's settings for timeouts, retries and queues."""


def routes_of(config: Config, index: int, facts: Facts) -> Iterator[RouteCheck]:
    """Evaluate a model's routes until one matches."""
    model = config.models[index]
    price = None if model.price is None else Price(model.price)
    for i, route in enumerate(model.routes):
        checks = tuple(_check(requirement, route, facts, price) for requirement in requirements(route.when, price))
        matches = all(check.holds for check in checks)
        yield RouteCheck(i, matches, route.name, config.line_of(index, i), checks)
        if matches:
            return


def sides_of(model: ClientModelConfig, route: int, facts: Facts) -> tuple[Side | None, tuple[Side, ...]]:
    """The path of a request by a route, and all paths of a split. The path of a random split is None."""
    target = list(targets(model))[route]
    ways = list(_sides(target, facts, (), (), 1.0, True))
    possible = [side for side, is_it in ways if is_it]
    return (possible[0] if len(possible) == 1 else None), (tuple(side for side, _ in ways) if len(ways) > 1 else ())


def changed(before: Fields, after: Fields) -> dict[str, Any]:
    """The fields that differ between two bodies; None for a removed field."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return {name: msgspec.json.decode(after[name]) if name in after else None for name in names}


def limits_of(tenant: TenantConfig, model: str) -> tuple[dict[str, Any], ...]:
    """The limits of a tenant that apply to a model, as configured."""
    covering = (limit for limit in tenant.limit_list() if limit.models is None or model in GlobSet(limit.models))
    return tuple(limit for limit in map(_limit, covering) if set(limit) - {"per", "enforce", "models"})


def quotas_of(model: ClientModelConfig) -> tuple[dict[str, Any], ...]:
    """The limits of a model, which all tenants share."""
    return tuple({**_limit(quota), "per": "everybody"} for quota in model.limit_list())


def _limit(limit: QuotaConfig) -> dict[str, Any]:
    written = limit.model_dump(mode="json", exclude_none=True)
    if limit.count == "host":
        del written["count"], written["on_redis_failure"]
    return written


def settings_of(route: RouteConfig) -> dict[str, Any]:
    """A route's settings other than its target, as configured or by default."""
    apart = {"name", "when", "otherwise", "to", "split", "fallback", "rewrite", "guards"}
    return route.model_dump(mode="json", exclude=apart, exclude_none=True)


def _check(requirement: Requirement, route: RouteConfig, facts: Facts, price: Price | None) -> ConditionCheck:
    return ConditionCheck(
        requirement.field,
        requirement.written,
        _seen(requirement.field, route, facts, price)[:MAX_SHOWN],
        requirement.holds(facts),
    )


def _seen(field: str, route: RouteConfig, facts: Facts, price: Price | None) -> str:
    """The request's value for a field of a condition."""
    kind, _, name = field.partition(" ")
    value: object
    if kind in ("label", "header"):
        value = (facts.labels if kind == "label" else facts.headers).get(name)
    elif kind == "time" and route.when.time is not None:
        value = Window(route.when.time).show(facts.time)
    elif kind == "cost" and price is not None:
        value = price.at(facts.time).estimate(facts.prompt_tokens, facts.max_tokens, facts.n)
    else:
        value = _READ[kind](facts)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "none" if value is None or value == "" else str(value)


def _sides(
    target: Target, facts: Facts, arms: tuple[str, ...], later: tuple[FallbackTarget, ...], share: float, chosen: bool
) -> Iterator[tuple[Side, bool]]:
    """Every path, and whether the request may take it."""
    steps = (*target.fallback, *later)
    if (split := target.split) is None:
        pool = target.pool or (arms[-1] if arms else "")  # the arm of a rollout may be another model
        where = chain(pool, steps)
        fallback = tuple(Later(tuple(sorted(step.on)), tuple(step.target.pools())) for step in where.fallback)
        yield Side(pool, share, ARM_SIGN.join(arms) or None, fallback), chosen
        return
    sticky, total = _sticky_arm(split, facts), sum(weight for _, weight in split.arms)
    for arm, weight in split.arms:
        possible = chosen and weight > 0 and sticky in (None, arm)
        yield from _sides(split.targets[arm], facts, (*arms, arm), steps, share * weight / total, possible)


def _sticky_arm(split: Split, facts: Facts) -> str | None:
    """The arm of the request's subject; None for a random split, or an unknown subject."""
    subject = steady_subject(split.sticky, facts, facts)
    return None if subject is None else choose(subject, split.salt, split.arms)

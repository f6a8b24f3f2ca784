"""Formats an explanation as text."""

import json
from collections.abc import Iterator
from typing import Any

from config.schema.units import format_percent
from policies.routing.explain import Explanation, Later, RouteCheck, Side

_SCOPE = {"per", "enforce", "models", "count", "on_redis_failure"}


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
    for name, value in explanation.settings.items():
        written = ", ".join(f"{key} {inner}" for key, inner in value.items()) if isinstance(value, dict) else value
        yield f"  {name}: {written}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)

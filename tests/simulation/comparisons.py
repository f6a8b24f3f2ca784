"""Rollouts, experiments and shadows in the file of a story. Each follows from the seed and the file without them."""

from copy import deepcopy
from random import Random
from typing import Any, Literal

Variant = Literal["all", "copies", "few copies"]
"""`copies` and `few copies` have shadows only, of all requests and of nearly none: their clients see the same."""
STICKY = ("request", "request", "user", "key", "header:x-session")
STEPS = (
    ("100%",),
    ("50%",),
    ("20%", "60%"),
    ("10%", "40%", "90%"),
    ("50%", "100%"),
)
EVENTS: tuple[dict[str, Any], ...] = (
    {"metric": "failures"},
    {"metric": "failures", "above": "1.2x"},
    {"metric": "first_byte", "slower_than": "500ms"},
    {"metric": "total", "slower_than": "1s", "above": "1.5x"},
    {"metric": "retries"},
    {"metric": "refusals"},
)
SIMILAR = {"text": [{"edit": "20%"}], "tools": False}
METRIC = "solved"


def has_comparisons(seed: int) -> bool:
    """One story of eight: the others remain as they were when they revealed a bug."""
    return seed % 8 == 2


def compared(seed: int, version: int, before: dict[str, Any], variant: Variant = "all") -> dict[str, Any]:
    """The file with comparisons. `version` counts the edits: some change the steps of the same arms."""
    config = deepcopy(before)
    pools = [pool["name"] for pool in config["pools"]]
    for model in config["models"]:
        for index, route in enumerate(model["routes"]):
            place = f"{model['name']}-{index}"
            dice = Random(f"{seed} {place}")
            kind = (
                dice.choice(("rollout", "rollout", "rollout", "experiment", "shadow")) if variant == "all" else "shadow"
            )
            if variant != "all":
                route.pop("hedge", None)
            if kind == "shadow":
                route["shadow"] = _shadow(dice, place, route, pools, variant)
                continue
            first = _first(route)
            del route["split" if "split" in route else "to"]
            others = [pool for pool in pools if pool != first]
            if kind == "rollout":
                route["rollout"] = _rollout(dice, Random(f"{seed} {place} {version // 2}"), place, first, others)
            else:
                route["experiment"] = _experiment(dice, place, first, others)
    if any("experiment" in route for model in config["models"] for route in model["routes"]):
        config["feedback"] = [{"name": METRIC}]
    return _tidied(config)


def _first(route: dict[str, Any]) -> str:
    """The first pool of a route."""
    pool: str = route["split"]["arms"][0]["pool"] if "split" in route else route["to"]
    return pool


def _other(dice: Random, first: str, others: list[str], name: str) -> dict[str, Any]:
    """An arm in another pool, or in the same pool with another parameter. No two of a route are equal."""
    if others and name != "c" and dice.random() < 0.8:
        return {"name": name, "pool": dice.choice(others)}
    return {"name": name, "pool": first, "rewrite": {"force": {"temperature": 0.5 if name == "c" else 0.25}}}


def _rollout(dice: Random, edited: Random, name: str, first: str, others: list[str]) -> dict[str, Any]:
    weights, warmup = edited.choice(STEPS), dice.choice(("0s", "0s", "500ms"))
    rollout: dict[str, Any] = {
        "name": name,
        "from": {"name": "old", "pool": first},
        "to": _other(dice, first, others, "new"),
        "sticky": dice.choice(STICKY),
        "steps": [{"weight": weight, "for": edited.choice(("1s", "2s", "6s"))} for weight in weights],
        "warmup": warmup,
        "requests": dice.choice((1, 3, 10)),
        "back_if": dice.sample(EVENTS[1:], dice.randint(1, 2)),
        "alpha": "20%",
        "unproven": dice.choice(("hold", "go_on", "back")),
    }
    if len(weights) > 1 and dice.random() < 0.4:
        bound = {"at_most": "60%"} if rollout["sticky"] == "request" else {"below": "3x"}
        rollout["on_if"] = [{"metric": "failures", **bound}]
    if dice.random() < 0.4:
        rollout["shadow_first"] = _copies(dice) | {"share": "100%", "agree": "40%", "answers": dice.choice((2, 5))}
    return rollout


def _experiment(dice: Random, name: str, first: str, others: list[str]) -> dict[str, Any]:
    arms = [{"name": "a", "pool": first, "weight": dice.randint(1, 5)}]
    arms += [_other(dice, first, others, arm) | {"weight": dice.randint(1, 5)} for arm in dice.choice(("b", "bc"))]
    experiment: dict[str, Any] = {
        "name": name,
        "arms": arms,
        "metric": METRIC,
        "sticky": dice.choice(STICKY),
        "warmup": dice.choice(("0s", "1s")),
        "guards": dice.sample(EVENTS, 1),
        "alpha": "20%",
    }
    if dice.random() < 0.5:
        experiment |= {"decide": "thompson", "floor": "10%", "every": "2s"}
    if dice.random() < 0.5:
        experiment |= {"longest": "9s", "then": dice.choice(("hold", "winner"))}
    return experiment


def _shadow(dice: Random, name: str, route: dict[str, Any], pools: list[str], variant: Variant) -> dict[str, Any]:
    first = _first(route)
    to = _other(dice, first, [pool for pool in pools if pool != first], "shadow")
    share = dice.choice(("30%", "100%"))
    if variant != "all":
        share = {"copies": "100%", "few copies": "0.0000001%"}[variant]
    return {"name": name, "to": to, "share": share, **_copies(dice)}


def _copies(dice: Random) -> dict[str, Any]:
    copies: dict[str, Any] = {
        "noise": dice.choice(("0%", "0%", "50%")),
        "compare": dice.choice((SIMILAR, SIMILAR, {"exact": True})),
        "at_most": {"concurrency": dice.choice((1, 2, 4)), "requests": dice.choice(("2/s", "50/s"))},
    }
    return copies


def _tidied(config: dict[str, Any]) -> dict[str, Any]:
    """Without settings that no longer have an effect, which `headrace check` refuses."""
    queued = {pool["name"] for pool in config["pools"] if "queue" in pool}
    several = {pool["name"] for pool in config["pools"] if len(pool["endpoints"]) > 1}
    for model in config["models"]:
        for route in model["routes"]:
            pools = _pools(route)
            route["fallback"] = [pool for pool in route.get("fallback", ()) if pool not in pools[:1]]
            if not route["fallback"]:
                del route["fallback"]
            every = {*pools, *route.get("fallback", ())}
            if not several & every:
                route.pop("hedge", None)
            if not queued & every or "fallback" not in route:
                route.pop("when_full", None)
    if not queued:
        for tenant in config["tenants"]:
            tenant.pop("share", None)
            tenant.pop("priority", None)
    return config


def _pools(route: dict[str, Any]) -> list[str]:
    """The pools of a route, but for its fallbacks."""
    if "rollout" in route:
        return [route["rollout"][side]["pool"] for side in ("from", "to")]
    arms = route.get("experiment", route.get("split", {})).get("arms")
    return [route["to"]] if arms is None else [arm["pool"] for arm in arms]

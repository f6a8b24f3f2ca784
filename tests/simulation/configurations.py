"""Configurations that a story may begin with, and the changes of operators while it runs."""

from copy import deepcopy
from random import Random
from typing import Any

BALANCES: tuple[dict[str, Any], ...] = (
    {},
    {"by": "round_robin"},
    {"by": "least_request", "slow_start": "3s"},
    {"by": "peak_ewma"},
    {"by": "peak_ewma", "panic": "50%"},
    {"by": "hash", "key": "user"},
    {"by": "hash", "key": "header:x-session", "bound": "125%"},
    {"by": "prefix_affinity"},
)
PRICE = {"prompt": "1 usd/1M", "completion": "2 usd/1M", "request": "0.001 usd"}


def first(dice: Random, servers: list[str]) -> dict[str, Any]:
    """Pools over these servers (URLs), a few models and tenants."""
    servers = list(servers)
    dice.shuffle(servers)
    pools = []
    for index in range(dice.randint(1, min(3, len(servers)))):
        mine = [servers.pop() for _ in range(dice.randint(1, max(1, min(4, len(servers) - 2))))]
        pools.append(_pool(dice, f"p{index}", mine))
        if not servers:
            break
    names = [pool["name"] for pool in pools]
    config = {
        "version": 1,
        "pools": pools,
        "models": [_model(dice, f"m{i}", names) for i in range(dice.randint(1, 2))],
        "tenants": [_tenant(dice, f"t{i}") for i in range(dice.randint(1, 3))],
    }
    return _tidied(config)


def changed(dice: Random, before: dict[str, Any], servers: list[str]) -> dict[str, Any]:
    """The next version of the file: one to three edits."""
    config = deepcopy(before)
    for _ in range(dice.randint(1, 3)):
        dice.choice((_new_weights, _new_limits, _new_routes, _other_endpoints, _one_pool_more, _nothing))(
            dice, config, servers
        )
    return _tidied(config)


def _pool(dice: Random, name: str, urls: list[str]) -> dict[str, Any]:
    probe = {"interval": "1s", "timeout": "500ms", "unhealthy_after": dice.randint(1, 3)}
    balance = dice.choice(BALANCES)
    has_probe = "panic" in balance or dice.random() < 0.7
    pool = {
        "name": name,
        "endpoints": [{"url": url, "weight": dice.choice((1, 1, 2.5))} for url in urls],
        "balance": balance,
        "probe": probe if has_probe else None,
        "breaker": {"failures": dice.randint(1, 5), "open_for": dice.choice(("500ms", "2s", "10s"))},
        "connect_timeout": "500ms",
        "max_connections": dice.choice((1, 2, 4, 64)),
    }
    if dice.random() < 0.4:
        pool["resume"] = "text"
    return pool | ({"queue": _queue(dice, pool)} if dice.random() < 0.4 else {})


def _queue(dice: Random, pool: dict[str, Any]) -> dict[str, Any]:
    return {
        "max": dice.choice((1, 4, 100)),
        "timeout": dice.choice(("500ms", "3s")),
        "max_in_flight": dice.randint(1, pool["max_connections"]),
        "lower_priorities": dice.choice(("0%", "20%")),
    }


def _model(dice: Random, name: str, pools: list[str]) -> dict[str, Any]:
    routes = [_route(dice, pools)]
    if dice.random() < 0.4:
        when = dice.choice(({"stream": True}, {"prompt_tokens": ">20"}, {"tenant": ["t0"]}))
        routes.insert(0, {"when": when, **_route(dice, pools)})
    return {"name": name, "routes": routes, "price": PRICE}


def _route(dice: Random, pools: list[str]) -> dict[str, Any]:
    chosen = dice.sample(pools, len(pools))
    attempts = dice.randint(1, 4)
    route: dict[str, Any] = {
        "retry": {"attempts": attempts} | ({} if attempts == 1 else {"budget": dice.choice(("0%", "20%"))}),
        "timeout": {"first_byte": dice.choice(("1s", "2s")), "idle": "1s", "total": dice.choice(("4s", "8s"))},
    }
    if dice.random() < 0.3:
        route["hedge"] = {"after": dice.choice(("100ms", "500ms", "p90")), "max": dice.randint(1, 2), "budget": "20%"}
    if dice.random() < 0.3:
        route["when_full"] = "fallback"
    if len(chosen) > 1 and dice.random() < 0.5:
        sticky = dice.choice(("user", "key", "tenant", "request", "header:x-session"))
        arms = [{"pool": pool, "weight": dice.randint(1, 9)} for pool in chosen[:2]]
        route["split"] = {"sticky": sticky, "arms": arms}
        return route | ({"fallback": chosen[:1]} if dice.random() < 0.3 else {})
    route["to"] = chosen[0]
    return route | ({"fallback": chosen[1:]} if len(chosen) > 1 and dice.random() < 0.6 else {})


def _tenant(dice: Random, name: str) -> dict[str, Any]:
    standing = {"share": dice.randint(1, 3), "priority": dice.choice(("high", "normal", "low"))}
    return {"name": name, "models": ["*"], "limits": _limits(dice), **standing}


def _limits(dice: Random) -> list[dict[str, Any]]:
    """Several limits; of two limits on the same subject, the second is left out, as `headrace check` requires."""
    limits = []
    seen: set[tuple[Any, ...]] = set()
    for _ in range(dice.choice((0, 1, 1, 2, 3))):
        units = _units(dice)
        scope: dict[str, Any] = {"per": dice.choice(("tenant", "tenant", "key", "model", "user"))}
        scope |= {"models": ["m0"]} if dice.random() < 0.2 else {}
        for unit, amount in list(units.items()):
            limited = (*map(str, scope.values()), unit, str(amount).partition("/")[2])
            if limited in seen:
                del units[unit]
            seen.add(limited)
        if units:
            limits.append(units | scope | ({"enforce": "shadow"} if dice.random() < 0.2 else {}))
    return limits


def _units(dice: Random) -> dict[str, Any]:
    units = {
        "requests": dice.choice(("5/s", "60/min", "20/min", "300/h")),
        "tokens": dice.choice(("300/s", "2k/min", "20k/min")),
        "concurrency": dice.choice((1, 3, 8)),
        "spend": dice.choice(("0.02 usd/hour", "0.05 usd/day")),
    }
    return {unit: units[unit] for unit in dice.sample(list(units), dice.randint(1, 2))}


def _tidied(config: dict[str, Any]) -> dict[str, Any]:
    """Without what would have no effect, which `headrace check` refuses. Only of what is written at random."""
    config = deepcopy(config)
    queued = {pool["name"] for pool in config["pools"] if "queue" in pool}
    several = {pool["name"] for pool in config["pools"] if len(pool["endpoints"]) > 1}
    for pool in config["pools"]:
        if pool["name"] not in several:
            pool.pop("resume", None)
    for model in config["models"]:
        for route in model["routes"]:
            arms = [arm["pool"] for arm in route["split"]["arms"]] if "split" in route else [route["to"]]
            pools = {*arms, *route.get("fallback", ())}
            if not several & pools:
                route.pop("hedge", None)
            if not queued & pools or "fallback" not in route:
                route.pop("when_full", None)
    for tenant in config["tenants"] if not queued else ():
        tenant.pop("share", None)
        tenant.pop("priority", None)
    return config


# ── edits ─────────────────────────────────────────────────────────────────────────────────────────────


def _new_weights(dice: Random, config: dict[str, Any], _: list[str]) -> None:
    for model in config["models"]:
        for route in model["routes"]:
            for arm in route.get("split", {}).get("arms", ()):
                arm["weight"] = dice.randint(0, 9) + (arm is route["split"]["arms"][0])
    for pool in config["pools"]:
        for endpoint in pool["endpoints"]:
            endpoint["weight"] = dice.choice((1, 3))


def _new_limits(dice: Random, config: dict[str, Any], _: list[str]) -> None:
    dice.choice(config["tenants"])["limits"] = _limits(dice)


def _new_routes(dice: Random, config: dict[str, Any], _: list[str]) -> None:
    names = [pool["name"] for pool in config["pools"]]
    config["models"] = [_model(dice, model["name"], names) for model in config["models"]]


def _other_endpoints(dice: Random, config: dict[str, Any], servers: list[str]) -> None:
    """Some leave, some come; another pool's may, too, so that two pools share one."""
    pool = dice.choice(config["pools"])
    urls = dice.sample(servers, dice.randint(1, min(4, len(servers))))
    pool["endpoints"] = [{"url": url, "weight": 1} for url in urls]


def _one_pool_more(dice: Random, config: dict[str, Any], servers: list[str]) -> None:
    taken = {pool["name"] for pool in config["pools"]}
    name = next(f"p{i}" for i in range(100) if f"p{i}" not in taken)
    config["pools"].append(_pool(dice, name, dice.sample(servers, 1)))
    if len(config["pools"]) > 3:  # and the oldest goes
        del config["pools"][0]
        _new_routes(dice, config, servers)


def _nothing(_: Random, __: dict[str, Any], ___: list[str]) -> None:
    """A file that is saved as it was."""

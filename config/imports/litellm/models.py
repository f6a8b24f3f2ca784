"""The deployments of one name, as a model: its pools, its shares and its order."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from config.imports.draft import Blueprint
from config.imports.litellm.deployments import Deployment
from config.schema.config import EndpointConfig
from config.schema.text import is_glob

_OF_ENDPOINT: Final = ("key", "model", "headers")
"""Fields that endpoints of one pool may have for themselves."""

Target = dict[str, Any]
"""``{"pool": NAME}``, or ``{"split": …}``."""


class DeploymentGroup:
    """One name of clients. `tiers` are its targets, in the order in which they are tried."""

    def __init__(self, name: str, deployments: Sequence[Deployment], draft: Blueprint, balance: str | None) -> None:
        self.name = name
        self.deployments = deployments
        orders = sorted({each.order for each in deployments})
        self.tiers = [_tier([each for each in deployments if each.order == order], draft, balance) for order in orders]

    @property
    def family(self) -> str:
        """The beginning of the clients' names that the provider's names lack."""
        return self.deployments[0].family

    @property
    def is_family(self) -> bool:
        """Whether it serves every name that a wildcard matches."""
        return is_glob(self.name)

    def pools(self) -> list[str]:
        """The names of its pools."""
        return [name for tier in self.tiers for name in pools_of(tier)]

    def common(self, field: str) -> Any:
        """The value that all deployments share; None if they differ."""
        values = [getattr(each, field) for each in self.deployments]
        return values[0] if all(value == values[0] for value in values) else None

    def limits(self) -> dict[str, str]:
        """Requests and tokens of a minute of all deployments together, if each has a bound."""
        made: dict[str, str] = {}
        for field, ours in (("rpm", "requests"), ("tpm", "tokens")):
            values = [getattr(each, field) for each in self.deployments]
            if all(values):
                made[ours] = f"{sum(values)}/min"
        return made


def pools_of(target: Target) -> list[str]:
    """The pools of a target, without its fallbacks."""
    if "pool" in target:
        return [target["pool"]]
    return [pool for arm in target["split"]["arms"] for pool in pools_of(arm)]


def _tier(deployments: Sequence[Deployment], draft: Blueprint, balance: str | None) -> Target:
    """The target of the deployments of one order."""
    weights = _weights(deployments)
    groups: list[list[tuple[Deployment, Decimal]]] = []
    for deployment, weight in zip(deployments, weights, strict=True):
        for group in groups:
            if _shared(group[0][0].pool) == _shared(deployment.pool) and _can_join(group, deployment):
                group.append((deployment, weight))
                break
        else:
            groups.append([(deployment, weight)])
    names = [_add(group, draft, balance) for group in groups]
    shares: dict[str, Decimal] = {}
    for name, group in zip(names, groups, strict=True):
        shares[name] = shares.get(name, Decimal(0)) + sum((weight for _, weight in group), Decimal(0))
    if len(shares) == 1:
        return {"pool": names[0]}
    if not any(shares.values()):
        shares = dict.fromkeys(shares, Decimal(1))
    arms = [
        {"pool": name, "weight": _number(share), "fallback": [{"pool": other} for other in shares if other != name]}
        for name, share in shares.items()
    ]
    return {"split": {"sticky": "request", "arms": [_compact(arm) for arm in arms]}}


def _compact(arm: Mapping[str, Any]) -> dict[str, Any]:
    return {**arm, "fallback": [entry["pool"] for entry in arm["fallback"]]}


def _weights(deployments: Sequence[Deployment]) -> list[Decimal]:
    """The shares of deployments: by `weight`, else by their requests or tokens of a minute, else equal."""
    for field in ("weight", "rpm", "tpm"):
        values = [getattr(each, field) for each in deployments]
        if any(value is not None for value in values):
            return [Decimal(value) if value is not None and value >= 0 else Decimal(0) for value in values]
    return [Decimal(1)] * len(deployments)


def _number(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)


def _accounts() -> bool:
    """Whether endpoints of one pool may differ in their keys and models."""
    return "key" in EndpointConfig.model_fields


def _shared(pool: Mapping[str, Any]) -> dict[str, Any]:
    own = {"endpoints", *(_OF_ENDPOINT if _accounts() else ())}
    return {name: value for name, value in pool.items() if name not in own}


def _can_join(group: Iterable[tuple[Deployment, Decimal]], deployment: Deployment) -> bool:
    """Endpoints of a pool have different addresses or accounts, and all of them have a model or none has."""
    rows = [_own(each.pool) for each, _ in group]
    mine = _own(deployment.pool)
    return mine not in rows and all(set(row) == set(mine) for row in rows)


def _own(pool: Mapping[str, Any]) -> dict[str, Any]:
    fields = _OF_ENDPOINT if _accounts() else ()
    return {"url": pool["endpoints"][0], **{name: pool[name] for name in fields if name in pool}}


def _add(group: Sequence[tuple[Deployment, Decimal]], draft: Blueprint, balance: str | None) -> str:
    """Add the pool of deployments that differ only in their endpoints."""
    first = group[0][0]
    if len(group) == 1:
        return draft.pool(first.wish, first.pool)
    weighted = len({weight for _, weight in group}) > 1 and all(weight > 0 for _, weight in group)
    rows = [_own(each.pool) for each, _ in group]
    common = {name: value for name, value in rows[0].items() if all(row.get(name) == value for row in rows)}
    endpoints: list[Any] = []
    for row, (each, weight) in zip(rows, group, strict=True):
        entry = {name: value for name, value in row.items() if name == "url" or name not in common}
        if weighted:
            entry["weight"] = _number(weight)
        if _accounts() and (limits := _limits(each)):
            entry["limits"] = limits
        endpoints.append(entry if len(entry) > 1 else entry["url"])
    fields = {**_shared(first.pool), "endpoints": endpoints, **{k: v for k, v in common.items() if k != "url"}}
    if balance is not None:
        fields["balance"] = {"by": balance}
    return draft.pool(first.name, fields)


def _limits(deployment: Deployment) -> dict[str, str]:
    pairs = (("requests", deployment.rpm), ("tokens", deployment.tpm))
    return {name: f"{amount}/min" for name, amount in pairs if amount}

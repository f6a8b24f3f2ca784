"""The deployments of one name, as a model: its pools, its shares and its order."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from config.imports.draft import Blueprint
from config.imports.litellm.deployments import Deployment
from config.schema.config import PoolConfig
from config.schema.text import is_glob

_OF_ENDPOINT: Final = ("key", "credentials", "model", "headers")
"""Fields that endpoints of one pool may have for themselves."""

Target = dict[str, Any]
"""``{"pool": NAME}``, or ``{"split": …}``."""


class DeploymentGroup:
    """One name of clients. `tiers` are its targets, in the order in which they are tried."""

    def __init__(self, name: str, deployments: Sequence[Deployment], draft: Blueprint, balance: str | None) -> None:
        self.name = name
        self.deployments = deployments
        self._draft = draft
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
        if any(len(self._draft.pools[name].get("endpoints", ())) > 1 for name in self.pools()):
            return made  # endpoints of one pool have limits of their own
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
            attempt = [*group, (deployment, weight)]
            if (
                _shared(group[0][0].pool) == _shared(deployment.pool)
                and _can_join(group, deployment)
                and draft.error(PoolConfig, {"name": "pool", **_joined(attempt, balance)}) is None
            ):
                group.append((deployment, weight))
                break
        else:
            groups.append([(deployment, weight)])
    shares: dict[str, Decimal] = {}
    for group in groups:
        first = group[0][0]
        name = (
            draft.pool(first.wish, first.pool) if len(group) == 1 else draft.pool(first.name, _joined(group, balance))
        )
        shares[name] = shares.get(name, Decimal(0)) + sum((weight for _, weight in group), Decimal(0))
    if len(shares) == 1:
        return {"pool": next(iter(shares))}
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


def _shared(pool: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in pool.items() if name not in ("endpoints", *_OF_ENDPOINT)}


def _can_join(group: Iterable[tuple[Deployment, Decimal]], deployment: Deployment) -> bool:
    """Endpoints of a pool have different addresses or accounts, and all of them have a model or none has."""
    if "endpoints" not in deployment.pool:
        return False
    rows = [_own(each.pool) for each, _ in group]
    mine = _own(deployment.pool)
    return mine not in rows and all(set(row) == set(mine) for row in rows)


def _own(pool: Mapping[str, Any]) -> dict[str, Any]:
    return {"url": pool["endpoints"][0], **{name: pool[name] for name in _OF_ENDPOINT if name in pool}}


def _joined(group: Sequence[tuple[Deployment, Decimal]], balance: str | None) -> dict[str, Any]:
    """The pool of deployments that differ only in their endpoints."""
    weighted = len({weight for _, weight in group}) > 1 and all(weight > 0 for _, weight in group)
    rows = [_own(each.pool) for each, _ in group]
    common = {name: value for name, value in rows[0].items() if all(row.get(name) == value for row in rows)}
    common.pop("url", None)
    endpoints: list[Any] = []
    for row, (each, weight) in zip(rows, group, strict=True):
        entry = {name: value for name, value in row.items() if name not in common}
        if weighted:
            entry["weight"] = _number(weight)
        if limits := _limits(each):
            entry["limits"] = limits
        endpoints.append(entry if len(entry) > 1 else entry["url"])
    fields = {**_shared(group[0][0].pool), **common, "endpoints": endpoints}
    return fields if balance is None else {**fields, "balance": {"by": balance}}


def _limits(deployment: Deployment) -> dict[str, str]:
    pairs = (("requests", deployment.rpm), ("tokens", deployment.tpm))
    return {name: f"{amount}/min" for name, amount in pairs if amount}

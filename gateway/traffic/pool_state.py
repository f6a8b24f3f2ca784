"""Measurements of a pool, preserved across reloads that do not change its balancing."""

from collections import defaultdict
from dataclasses import dataclass

from config.schema.config import BalanceConfig, Config, OutliersConfig, PoolConfig
from config.schema.text import is_glob
from policies.balancing.balance import Picker
from policies.balancing.pickers import picker
from policies.health import Outliers


@dataclass(frozen=True, slots=True)
class PoolState:
    """A pool's picker and its outlier ejection, and the configuration of both."""

    balance: tuple[BalanceConfig, str | None, frozenset[str]]
    judged: OutliersConfig | None
    picker: Picker
    outliers: Outliers | None


def pool_state(pool: PoolConfig, zone: str | None, near: frozenset[str], previous: PoolState | None) -> PoolState:
    """The pool's state: existing parts with the same configuration are retained, the rest is new."""
    balance, judged = (pool.balance, zone, near), pool.outliers
    made = previous.picker if previous is not None and previous.balance == balance else picker(*balance)
    if previous is not None and previous.judged == judged:
        return PoolState(balance, judged, made, previous.outliers)
    return PoolState(balance, judged, made, Outliers(**judged.model_dump()) if judged is not None else None)


def several_models(config: Config) -> frozenset[str]:
    """The names of the pools whose servers receive requests under several names of models."""
    sent: defaultdict[str, set[str]] = defaultdict(set)
    for model in config.models:
        for route in model.routes:
            rewritten = route.rewrite.model if route.rewrite is not None else None
            name = rewritten or model.name
            for pool in route.pools():
                sent[pool] |= {name, "*"} if is_glob(name) else {name}
    return frozenset(pool for pool, names in sent.items() if len(names) > 1)

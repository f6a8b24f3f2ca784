"""What a pool has learned of its endpoints: preserved across reloads that do not change its balancing."""

from dataclasses import dataclass

from config.schema.config import BalanceConfig, OutliersConfig, PoolConfig
from policies.balancing.balance import Picker
from policies.balancing.pickers import picker
from policies.outliers import Outliers


@dataclass(frozen=True, slots=True)
class PoolState:
    """A pool's picker and its judge of outliers, and what they were made from."""

    balance: tuple[BalanceConfig, str | None]
    judged: OutliersConfig | None
    picker: Picker
    outliers: Outliers | None


def pool_state(pool: PoolConfig, zone: str | None, known: PoolState | None) -> PoolState:
    """What is known, as far as it goes by the same configuration; the rest begins anew."""
    balance, judged = (pool.balance, zone), pool.outliers
    made = known.picker if known is not None and known.balance == balance else picker(*balance)
    if known is not None and known.judged == judged:
        return PoolState(balance, judged, made, known.outliers)
    return PoolState(balance, judged, made, Outliers(**judged.model_dump()) if judged is not None else None)

"""The arm of a split that is balanced by latency, load or price, at the time of each request."""

from math import inf
from random import Random
from typing import Literal, NamedTuple, Protocol

from config.schema.config import SplitConfig
from config.schema.money import PriceRowConfig
from policies.balancing.balance import Caller
from policies.limits.price import PriceRow, expected_output
from policies.splits import ArmChoice, Arms, SplitRequest, arm_choice

By = Literal["latency", "load", "price"]


class BalancedRequest(SplitRequest, Protocol):
    """The attributes of a request that the choice may read."""

    @property
    def model(self) -> str: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def max_tokens(self) -> int | None: ...
    @property
    def n(self) -> int: ...


class ArmStates(Protocol):
    """What is measured of the pools of an arm."""

    def latency(self, pools: tuple[str, ...], model: str, tenant: str) -> float:
        """The expected seconds to the first byte; inf if none of the pools has a place now."""

    def load(self, pools: tuple[str, ...], model: str, tenant: str) -> float:
        """The share of the places that are taken, this request included; inf if none of the pools has a place."""


class ArmBalance(NamedTuple):
    """How the arms of a split are balanced. `pools` and `prices` are in their order."""

    by: By
    pools: tuple[tuple[str, ...], ...]
    prices: tuple[PriceRow | None, ...]

    @classmethod
    def of(cls, config: SplitConfig) -> "ArmBalance | None":
        """None for a split by weight alone. The first target of an arm decides, not its fallbacks."""
        if config.by is None:
            return None
        rows = tuple(None if arm.price is None else _row(arm.price) for arm in config.arms)
        return cls(config.by, tuple(arm.first_pools() for arm in config.arms), rows)


def _row(config: PriceRowConfig) -> PriceRow:
    return PriceRow(config, "" if config.prompt is None else config.prompt.currency, 1.0)


def balanced_choice(
    sticky: str, salt: str, arms: Arms, balance: ArmBalance | None, states: ArmStates | None
) -> ArmChoice:
    """The choice between the arms of one split.

    The arm with the lowest value wins, relative to its weight; by chance among equals. An arm without a place is taken
    only if all are. A sequence stays with its arm.
    """
    drawn = arm_choice(sticky, salt, arms)
    if balance is None or states is None:
        return drawn

    def chosen(request: SplitRequest, caller: Caller, rng: Random) -> int:
        if request.sequence:
            return drawn(request, caller, rng)
        values = _values(balance, arms, states, request, caller)  # type: ignore[arg-type]  # all requests have these
        lowest = min(values)
        if lowest == inf:
            return drawn(request, caller, rng)
        equal = [number for number, value in enumerate(values) if value == lowest]
        return equal[int(rng.random() * len(equal))]

    return chosen


def _values(
    balance: ArmBalance, arms: Arms, states: ArmStates, request: BalancedRequest, caller: Caller
) -> list[float]:
    values = []
    for (_, weight), pools, price in zip(arms, balance.pools, balance.prices, strict=True):
        subject = pools, request.model, caller.tenant
        value = states.latency(*subject) if balance.by == "latency" else states.load(*subject)
        if balance.by == "price" and value < inf and price is not None:
            value = price.cost(request.prompt_tokens, expected_output(request.max_tokens, request.n)).picos
        values.append(value / weight if weight else inf)
    return values

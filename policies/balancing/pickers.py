"""The picker of a pool's ``balance``, and the one that balances by server-reported load."""

from collections.abc import Sequence, Set
from random import Random

from config.schema.config import BalanceConfig
from policies.balancing.affinity import PrefixAffinity
from policies.balancing.balance import (
    C,
    Caller,
    Drawn,
    LeastRequest,
    MostLeft,
    PeakEwmaTwoChoices,
    Picker,
    RoundRobin,
    RoutedRequest,
    two_of,
)
from policies.balancing.stickiness import BoundedHash
from policies.balancing.zones import NearestFirst, NearFirst

LOADING = 4.0
"""The cost of loading a LoRA adapter, in requests."""


class LoadTwoChoices:
    """Pick the less loaded of two random candidates by the load that their servers report.

    Two candidates rather than the minimum of all: every gateway reads the same reports, and all gateways would send
    to the server that was idle before. (Dahlin, "Interpreting Stale Load Information",
    IEEE TPDS 11(10), 2000: old reports make the minimum worse than chance.) Both reports get the lower of the two
    weights, so that a server without readable metrics does not look idle in comparison. Without reports
    this is `least_request`.

    A request for a LoRA adapter goes to a server that has it loaded, unless these servers are busier by more than
    the cost of loading it.
    """

    __slots__ = ()

    def pick(self, candidates: Sequence[C], request: RoutedRequest, caller: Caller, now: float, rng: Random) -> C:
        holding = [candidate for candidate in candidates if request.model in candidate.signal.adapters]
        if not holding or len(holding) == len(candidates):
            return self._of_two(candidates, now, rng)
        near = self._of_two(holding, now, rng)
        far = self._of_two([candidate for candidate in candidates if candidate not in holding], now, rng)
        trust = min(near.signal.trust(now), far.signal.trust(now))
        mine = near.signal.load(near.in_flight + 1, trust) * far.weight
        return near if mine <= (far.signal.load(far.in_flight + 1, trust) + LOADING) * near.weight else far

    def _of_two(self, candidates: Sequence[C], now: float, rng: Random) -> C:
        first, second = two_of(candidates, rng)
        trust = min(first.signal.trust(now), second.signal.trust(now))
        mine = first.signal.load(first.in_flight + 1, trust) * second.weight
        return first if mine <= second.signal.load(second.in_flight + 1, trust) * first.weight else second


def picker(config: BalanceConfig, zone: str | None = None, near: Set[str] = frozenset()) -> Picker:
    """A new picker: each pool has its own. `zone` is the gateway's zone, `near` are the zones of its region; hashing
    ignores both."""
    made = _by(config)
    if zone is None or config.by == "hash":
        return made
    return (
        NearestFirst(made, zone, near) if config.locality == "nearest" else NearFirst(made, zone, config.zone_traffic)
    )


def _by(config: BalanceConfig) -> Picker:
    match config.by:
        case "least_request":
            return LeastRequest()
        case "round_robin":
            return RoundRobin()
        case "random":
            return Drawn()
        case "quota":
            return MostLeft()
        case "peak_ewma":
            return PeakEwmaTwoChoices()
        case "load":
            return LoadTwoChoices()
        case "prefix_affinity":
            return PrefixAffinity(config.bound)
        case "hash":
            assert config.key is not None  # the section's own validator
            return BoundedHash(config.key, config.bound)

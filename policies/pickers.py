"""From ``balance:`` to the picker that it describes."""

from config.schema import BalanceConfig
from policies.affinity import PrefixAffinity
from policies.balance import LeastRequest, PeakEwmaTwoChoices, Picker, RoundRobin
from policies.stickiness import BoundedHash


def picker(config: BalanceConfig) -> Picker:
    """A new one: each pool has its own."""
    match config.by:
        case "least_request":
            return LeastRequest()
        case "round_robin":
            return RoundRobin()
        case "peak_ewma":
            return PeakEwmaTwoChoices()
        case "prefix_affinity":
            return PrefixAffinity(config.bound)
        case "hash":
            assert config.key is not None  # the section's own validator
            return BoundedHash(config.key, config.bound)

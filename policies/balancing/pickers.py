"""Creates the picker of a pool's ``balance``."""

from collections.abc import Set

from config.schema.config import BalanceConfig
from policies.balancing.affinity import PrefixAffinity
from policies.balancing.balance import Drawn, LeastRequest, PeakEwmaTwoChoices, Picker, RoundRobin
from policies.balancing.load import LoadTwoChoices
from policies.balancing.localities import NearestFirst
from policies.balancing.stickiness import BoundedHash
from policies.balancing.zones import NearFirst


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
        case "peak_ewma":
            return PeakEwmaTwoChoices()
        case "load":
            return LoadTwoChoices()
        case "prefix_affinity":
            return PrefixAffinity(config.bound)
        case "hash":
            assert config.key is not None  # the section's own validator
            return BoundedHash(config.key, config.bound)

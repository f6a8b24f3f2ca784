"""What the rules say about one request."""

from dataclasses import dataclass

from config.schema.config import CacheConfig, HedgeConfig, Priority, RetryConfig, TimeoutConfig
from policies.routing.rewrite import Rewrite
from policies.routing.target import Target


@dataclass(frozen=True, slots=True)
class Decision:
    """Built when the rules are compiled and shared by every request that gets it."""

    route: int
    """Index of the route in its model."""
    name: str | None
    """The route's name, where it has one."""
    target: Target
    """The chosen pool, and where to go when it fails."""
    arm: str | None
    """The split's chosen arm; of splits within splits each one's, joined by ``>``. None without a split."""
    rewrite: Rewrite | None
    retry: RetryConfig
    timeout: TimeoutConfig
    model: str = ""
    """The model's name as configured."""
    hedge: HedgeConfig | None = None
    cache: CacheConfig | None = None
    priority: Priority | None = None
    """While a pool is full; None for the tenant's."""
    strict: bool = False
    """Whether a field that the model has no use for is refused."""
    elsewhere_first: bool = False
    """Whether a request waits for a full pool only when no other one of these can take it."""
    hide_model_errors: bool = False
    """Whether the model's own error text is withheld from clients."""

    @property
    def pools(self) -> tuple[str, ...]:
        """The chosen pool, then all that may be tried after it; no duplicates."""
        return tuple(dict.fromkeys(self.target.pools()))

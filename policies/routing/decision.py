"""The result of the rules for one request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from config.schema.config import CacheConfig, HedgeConfig, Priority, RetryConfig, TimeoutConfig
from config.schema.telemetry.traces import TraceContentConfig
from policies.routing.rewrite import Rewrite
from policies.routing.target import Target

if TYPE_CHECKING:  # for routes that compare
    from policies.rollouts.live import LiveComparison
    from policies.shadowing.live import LiveShadow


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision, built when the rules are compiled and shared by all its requests."""

    route: int
    """Index of the route in its model."""
    name: str | None
    """The route's name, if any."""
    target: Target
    """The chosen pool and its fallbacks."""
    arm: str | None
    """The chosen arm of the split; the arms of nested splits are joined by ``>``. None without a split."""
    rewrite: Rewrite | None
    retry: RetryConfig
    timeout: TimeoutConfig
    model: str = ""
    """The model's name as configured."""
    hedge: HedgeConfig | None = None
    cache: CacheConfig | None = None
    priority: Priority | None = None
    """The priority in a pool's queue; None for the tenant's priority."""
    calls_models: bool = False
    """Whether models answer instead of pools: those of a pipeline, or an arm that is a model."""
    strict: bool = False
    """Whether a field that the model does not support is rejected."""
    elsewhere_first: bool = False
    """Whether a request waits for a full pool only if no other pool of the decision has a free slot."""
    hide_model_errors: bool = False
    """Whether the model's own error text is withheld from clients."""

    trace_content: TraceContentConfig | None = None
    """The texts in exported traces; None for none."""
    comparison: LiveComparison | None = None
    """The rollout or the experiment that chose this decision."""
    side: int = 0
    """The number of its arm: in a rollout 0 for `from`, 1 for `to`."""
    version: str = ""
    """The version of the model that the servers receive, if the arm sets it."""
    shadow: LiveShadow | None = None
    """The copies of its requests; None without a shadow."""

    @property
    def pools(self) -> tuple[str, ...]:
        """The chosen pool, then its fallbacks, without duplicates."""
        return tuple(dict.fromkeys(self.target.pools()))

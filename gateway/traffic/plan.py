"""A decision as one upstream."""

from collections.abc import Callable, Mapping
from random import Random

from adapters.base import Upstream
from gateway.traffic.fallback import ElsewhereFirst, Fallback
from gateway.traffic.hedge import Hedge
from gateway.traffic.kept import Kept
from gateway.traffic.pool import Pool
from gateway.traffic.retry import Retry
from policies.decision import Decision


class Composer:
    """Puts plans together: the pools of a decision in order, each with its retries.

    What a decision does not ask for is not in its plan.
    """

    def __init__(self, pools: Mapping[str, Pool], kept: Kept, rng: Random, clock: Callable[[], float]) -> None:
        self._pools = pools
        self._kept = kept
        self._rng = rng
        self._clock = clock

    def plan(self, decision: Decision) -> Upstream:
        """The whole of it."""
        branches = {name: self._branch(decision, name) for name in decision.pools}
        if len(branches) == 1:
            return next(iter(branches.values()))
        plan = Fallback([*branches.values()])
        return ElsewhereFirst(plan, branches) if decision.elsewhere_first else plan

    def _branch(self, decision: Decision, name: str) -> Upstream:
        """One pool, and what stands between it and the others."""
        retry, branch = decision.retry, (decision.model, decision.route, name)
        upstream: Upstream = self._pools[name]
        if (hedge := decision.hedge) is not None:
            patience, budget = self._kept.hedges(branch, hedge)
            upstream = Hedge(self._pools[name], patience=patience, most=hedge.max, budget=budget, clock=self._clock)
        return Retry(
            upstream,
            attempts=retry.attempts,
            base=retry.backoff,
            budget=self._kept.retries(branch, retry.budget),
            rng=self._rng,
            clock=self._clock,
            patient=name == decision.pools[-1],
        )

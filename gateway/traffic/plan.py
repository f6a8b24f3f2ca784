"""A decision as one upstream."""

from collections.abc import Callable, Mapping
from random import Random

from adapters.base import Upstream
from adapters.wire.continuation import Mode
from gateway.traffic.fallback import ElsewhereFirst, Fallback, Step
from gateway.traffic.hedge import Hedge
from gateway.traffic.kept import Kept
from gateway.traffic.pool import Pool
from gateway.traffic.resume import Resume
from gateway.traffic.retry import Retry
from gateway.traffic.split import Split
from policies.decision import Decision
from policies.target import Target


class Composer:
    """Puts plans together: the pools of a decision in order, each with its retries.

    What a decision does not ask for is not in its plan.
    """

    def __init__(
        self,
        pools: Mapping[str, Pool],
        resume: Mapping[str, Mode],
        kept: Kept,
        rng: Random,
        clock: Callable[[], float],
    ) -> None:
        self._pools = pools
        self._resume = resume
        self._kept = kept
        self._rng = rng
        self._clock = clock

    def plan(self, decision: Decision) -> Upstream:
        """The whole of it."""
        branches: dict[str, Upstream] = {}
        plan = self._upstream(decision, decision.target, branches, last=True)
        return ElsewhereFirst(plan, branches) if decision.elsewhere_first and len(branches) > 1 else plan

    def _upstream(self, decision: Decision, target: Target, branches: dict[str, Upstream], *, last: bool) -> Upstream:
        """A part of it; its pools go into `branches`. `last`: nothing else is tried when this fails."""
        steps = target.fallback
        if target.pool is not None:
            first = self._branch(decision, target.pool, patient=last and not steps)
            branches.setdefault(target.pool, first)
        else:
            assert target.split is not None
            arms = target.split.targets.items()
            sides = {arm: self._upstream(decision, side, branches, last=last and not steps) for arm, side in arms}
            first = Split(target.split, sides, self._rng)
        others = [
            Step(step.on, self._upstream(decision, step.target, branches, last=last and step is steps[-1]))
            for step in steps
        ]
        return Fallback(first, others) if others else first

    def _branch(self, decision: Decision, name: str, *, patient: bool) -> Upstream:
        """One pool, and what stands between it and the others."""
        retry, branch = decision.retry, (decision.model, decision.route, name)
        upstream: Upstream = self._pools[name]
        if (hedge := decision.hedge) is not None:
            patience, hedges = self._kept.hedges(branch, hedge)
            upstream = Hedge(self._pools[name], patience=patience, most=hedge.max, budget=hedges, clock=self._clock)
        upstream = Retry(
            upstream,
            attempts=retry.attempts,
            base=retry.backoff,
            budget=self._kept.retries(branch, retry.budget),
            rng=self._rng,
            clock=self._clock,
            patient=patient,
        )
        if (mode := self._resume.get(name)) is not None:
            upstream = Resume(upstream, name, mode=mode, budget=self._kept.resumes(branch), clock=self._clock)
        return upstream

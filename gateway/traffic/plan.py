"""Composes the upstream of a decision."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING

from adapters.base import Upstream
from config.schema.config import PoolConfig
from gateway.traffic.cache import Cache
from gateway.traffic.fallback import ElsewhereFirst, Fallback, FallbackStep
from gateway.traffic.hedge import Hedge
from gateway.traffic.plan_state import PlanState
from gateway.traffic.pool import Pool
from gateway.traffic.retry import Retry
from gateway.traffic.split import SplitUpstream
from policies.routing.decision import Decision, Target

if TYPE_CHECKING:  # for splits that are balanced
    from policies.routing.arm_balance import ArmStates


class Composer:
    """Composes plans: the pools of a decision in order, each with its retries.

    A plan has only the layers that its decision requires.
    """

    def __init__(
        self,
        pools: Mapping[str, Pool],
        configs: Mapping[str, PoolConfig],
        plan_state: PlanState,
        rng: Random,
        clock: Callable[[], float],
        states: "ArmStates | None" = None,
    ) -> None:
        self._states = states
        self._pools = pools
        self._configs = configs
        self._state = plan_state
        self._rng = rng
        self._clock = clock

    def plan(self, decision: Decision) -> Upstream:
        """The upstream of a whole decision."""
        branches: dict[str, Upstream] = {}
        plan = self._upstream(decision, decision.target, branches, last=True)
        if decision.elsewhere_first and len(branches) > 1:
            plan = ElsewhereFirst(plan, branches)
        if (embedder := self._state.embedders.get(decision.model)) is not None:
            plan = embedder.around(plan, self._clock)
        return self._cached(decision, plan)

    def _cached(self, decision: Decision, plan: Upstream) -> Upstream:
        cache, pool = decision.cache, decision.target.pool
        if cache is None or pool is None:
            return plan
        shelf = self._state.shelf(decision.model, decision.route, cache)
        salt = _digest([self._configs[name] for name in decision.pools]) + decision.version.encode()
        return Cache(plan, shelf, cache, salt=salt, model=decision.model, pool=pool, clock=self._clock)

    def _upstream(self, decision: Decision, target: Target, branches: dict[str, Upstream], *, last: bool) -> Upstream:
        """The upstream of a part of a decision. Its pools are added to `branches`. `last`: it has no fallback."""
        steps = target.fallback
        first: Upstream
        if target.model is not None:
            from gateway.traffic.arm import ArmUpstream, ModelArm

            first = ArmUpstream(ModelArm(target.model), target.model, self._clock)
        elif target.pool is not None:
            first = self._branch(decision, target.pool, patient=last and not steps)
            if decision.comparison is not None and target is decision.target:
                from gateway.traffic.arm import ArmUpstream

                first = ArmUpstream(first, target.pool, self._clock)
            branches.setdefault(target.pool, first)
        else:
            assert target.split is not None
            arms = target.split.targets.items()
            sides = {arm: self._upstream(decision, side, branches, last=last and not steps) for arm, side in arms}
            first = SplitUpstream(target.split, sides, self._rng, self._states)
        others = [
            FallbackStep(step.on, self._upstream(decision, step.target, branches, last=last and step is steps[-1]))
            for step in steps
        ]
        return Fallback(first, others) if others else first

    def _branch(self, decision: Decision, name: str, *, patient: bool) -> Upstream:
        """One pool with its hedges, resumption and retries."""
        retry, branch = decision.retry, (decision.model, decision.route, name)
        upstream: Upstream = self._pools[name]
        if (hedge := decision.hedge) is not None:
            patience, hedges = self._state.hedges(branch, hedge)
            upstream = Hedge(self._pools[name], patience=patience, most=hedge.max, budget=hedges, clock=self._clock)
        upstream = Retry(
            upstream,
            name,
            attempts=retry.attempts,
            base=retry.backoff,
            budget=self._state.retries(branch, retry.budget),
            rng=self._rng,
            clock=self._clock,
            patient=patient,
            again=retry.methods == "all",
            spare=self._pools[name].spare,
        )
        config = self._configs[name]
        if config.prompt_cache is not None and config.protocol.prompt_caches == "marks":
            from gateway.traffic.prompt_cache import PromptCache

            upstream = PromptCache(upstream, config.prompt_cache)
        if (mode := self._configs[name].resume) is not None:
            from gateway.traffic.resume import Resume

            upstream = Resume(upstream, name, mode=mode, budget=self._state.resumes(branch), clock=self._clock)
        return upstream


def _digest(pools: Sequence[PoolConfig]) -> bytes:
    """A digest of the pools' servers and models: it changes if the answers may change."""
    served = {"name", "protocol", "model", "runtime", "endpoints", "discover"}
    text = "\n".join(pool.model_dump_json(include=served, exclude={"runtime": {"replicas"}}) for pool in pools)
    return hashlib.blake2b(text.encode(), digest_size=32).digest()

"""Compiled routes: Facts → Decision. Everything possible is computed at load."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from config.schema.config import (
    ClientModelConfig,
    ExperimentConfig,
    RetryConfig,
    RewriteConfig,
    RolloutConfig,
    RouteConfig,
    TimeoutConfig,
    is_glob,
)
from config.schema.pipelines.pipeline import PipelineConfig
from policies.facts import Facts
from policies.globs import GlobSet, GlobTable
from policies.limits.price import Price
from policies.routing.conditions import Condition, conditions
from policies.routing.decision import Decision, FallbackTarget, Split, Target, chain, compiled
from policies.routing.rewrite import Rewrite
from policies.splits import ArmChoice, arm_choice

if TYPE_CHECKING:  # imported for files that compare or balance
    from policies.rollouts.live import LiveComparison
    from policies.routing.arm_balance import ArmStates
    from policies.shadowing.live import LiveShadow

Pick = Callable[[Facts, Random], Decision]
Rollouts = Mapping[str, "LiveComparison"]
"""The rollouts and experiments of a process, by name."""
NO_ROLLOUTS: Rollouts = {}
Shadows = Mapping[str, "LiveShadow"]
"""The shadows of a process, by name."""
NO_SHADOWS: Shadows = {}
VERSION_SIGN = "@"
"""The separator between a model's name and its version. No configured name contains it."""
ARM_SIGN = ">"
"""The separator between a split's arm and the arm of a nested split. No name contains it."""


class Rules:
    """One model's routes. The first matching route wins."""

    __slots__ = ("_routes", "dropped", "model", "price")

    def __init__(
        self,
        model: ClientModelConfig,
        rollouts: Rollouts = NO_ROLLOUTS,
        shadows: Shadows = NO_SHADOWS,
        states: "ArmStates | None" = None,
    ) -> None:
        """`states` measure the arms of balanced splits; without them the weights decide. A rollout that is not among
        `rollouts` stays with its first arm, and a shadow not among `shadows` has no copies."""
        self.model = model.name
        """The name as configured: a glob for a family, so that metrics can have it as a label."""
        self.price = None if model.price is None else Price(model.price)
        self.dropped = frozenset().union(*(Rewrite(rewrite).gone for rewrite in _rewrites(model)))
        """Fields that some route drops from the client's request."""
        if model.pipeline is not None:
            decision = _of_pipeline(model.name, model.pipeline)
            self._routes: tuple[tuple[tuple[Condition, ...], Pick], ...] = (((), lambda _facts, _rng: decision),)
            return
        self._routes = tuple(
            (conditions(route.when, self.price), _pick(model.name, index, route, target, rollouts, shadows, states))
            for index, (route, target) in enumerate(zip(model.routes, targets(model), strict=True))
        )

    def decide(self, facts: Facts, rng: Random) -> Decision | None:
        """The decision for a request; None if no route matches."""
        for when, pick in self._routes:
            for holds in when:
                if not holds(facts):
                    break
            else:
                return pick(facts, rng)
        return None


class ResolvedModel(NamedTuple):
    """The model of a requested name."""

    rules: Rules
    name: str = ""
    """The model's own name. Empty for a family, which has no single name."""
    requested: str = ""
    """The name without the version. Empty for a family."""
    version: str = ""


class Catalogue(GlobTable["ResolvedModel"]):
    """Every model, under each of its names: `find` returns the model with exactly a name, else the first in the file
    whose glob matches."""

    __slots__ = ()

    def __init__(
        self,
        models: Sequence[ClientModelConfig],
        rollouts: Rollouts = NO_ROLLOUTS,
        shadows: Shadows = NO_SHADOWS,
        states: "ArmStates | None" = None,
    ) -> None:
        super().__init__(entry for model in models for entry in _entries(model, rollouts, shadows, states))


class ModelList(GlobSet):
    """The models that a tenant may use, by their own names."""

    __slots__ = ()

    allows = GlobSet.__contains__


def names(model: ClientModelConfig) -> Iterator[tuple[str, str, str]]:
    """Each name that clients may request, with its parts: the model's name and the version."""
    for name in (model.name, *model.aliases):
        yield name, name, ""
        for version in model.versions:
            yield f"{name}{VERSION_SIGN}{version}", name, version


def targets(model: ClientModelConfig) -> Iterator[Target]:
    """The target of each of a model's routes.

    A split is identified by its position among the model's splits, so neither new weights, new conditions nor a new
    route without a split move a subject.
    """
    splits = 0
    for route in model.routes:
        if route.comparison is not None:
            from policies.rollouts.live import LiveComparison

            yield compiled(route.target, LiveComparison(route.comparison, "", model.name).salt)
            continue
        target = compiled(route.target, f"{model.name}#{splits}")
        splits += target.split is not None
        yield target


def rollouts_of(models: Sequence[ClientModelConfig]) -> Iterator[tuple[ClientModelConfig, RolloutConfig]]:
    """Each rollout of a file, with its model."""
    return ((model, route.rollout) for model in models for route in model.routes if route.rollout is not None)


def comparisons_of(
    models: Sequence[ClientModelConfig],
) -> Iterator[tuple[ClientModelConfig, RolloutConfig | ExperimentConfig]]:
    """Each rollout and each experiment of a file, with its model."""
    return ((model, route.comparison) for model in models for route in model.routes if route.comparison is not None)


def _rewrites(model: ClientModelConfig) -> Iterator[RewriteConfig]:
    for route in model.routes:
        arms = () if route.comparison is None else route.comparison.sides
        yield from (rewrite for rewrite in (route.rewrite, *(arm.rewrite for arm in arms)) if rewrite is not None)


def _entries(
    model: ClientModelConfig, rollouts: Rollouts, shadows: Shadows, states: "ArmStates | None"
) -> Iterator[tuple[str, ResolvedModel]]:
    rules = Rules(model, rollouts, shadows, states)
    if is_glob(model.name):
        yield model.name, ResolvedModel(rules)
        return
    for written, requested, version in names(model):
        # An alias may have brackets, as hosted models do; only a model's own name is a glob.
        yield written.replace("[", "[[]"), ResolvedModel(rules, model.name, requested, version)


def _of_pipeline(name: str, pipeline: PipelineConfig) -> Decision:
    """The only decision of a pipeline, which has no routes and no pools of its own."""
    timeout = TimeoutConfig() if pipeline.deadline is None else TimeoutConfig.model_construct(total=pipeline.deadline)
    target = Target(None, None, ())
    return Decision(0, None, target, None, None, RetryConfig(), timeout, model=name, calls_models=True)


def _pick(
    model: str,
    index: int,
    route: RouteConfig,
    target: Target,
    rollouts: Rollouts,
    shadows: Shadows,
    states: "ArmStates | None",
) -> Pick:
    """The function that selects one of a route's decisions. Each arm has a decision."""
    if route.comparison is not None:
        return _compared(model, index, route, route.comparison, target, rollouts, shadows)
    rewrite = None if route.rewrite is None else Rewrite(route.rewrite)
    shadow = None if route.shadow is None else shadows.get(route.shadow.label)

    def inner(target: Target, arms: tuple[str, ...], later: tuple[FallbackTarget, ...]) -> Pick:
        steps = (*target.fallback, *later)
        if (split := target.split) is not None:
            picks = [inner(split.targets[arm], (*arms, arm), steps) for arm, _ in split.arms]
            choose = choice_of(split, states)
            return lambda facts, rng: picks[choose(facts, facts, rng)](facts, rng)
        decision = _decision(model, index, route, chain(target.pool or "", steps), ARM_SIGN.join(arms) or None, rewrite)
        decision = replace(decision, shadow=shadow)
        return lambda _facts, _rng: decision

    return inner(target, (), ())


def choice_of(split: Split, states: "ArmStates | None") -> ArmChoice:
    """The choice between the arms of a split."""
    if split.balance is None:
        return arm_choice(split.sticky, split.salt, split.arms)
    from policies.routing.arm_balance import balanced_choice

    return balanced_choice(split.sticky, split.salt, split.arms, split.balance, states)


def _compared(
    model: str,
    index: int,
    route: RouteConfig,
    config: RolloutConfig | ExperimentConfig,
    target: Target,
    rollouts: Rollouts,
    shadows: Shadows,
) -> Pick:
    """The function that selects the decision of an arm, by the shares that are in force then."""
    from policies.rollouts.live import LiveComparison

    live = rollouts.get(config.name) or LiveComparison(config, "", model)
    decisions = []
    for side, arm in enumerate(config.sides):
        written = arm.rewrite or route.rewrite
        rewrite = None if written is None else Rewrite(written)
        where = chain(arm.pool or "", target.fallback)
        if arm.model is not None:
            where = replace(where, pool=None, model=arm.model)
        decision = _decision(model, index, route, where, arm.label, rewrite)
        decisions.append(replace(decision, comparison=live, side=side, version=arm.version or ""))
    if isinstance(config, RolloutConfig) and config.shadow_first is not None:
        decisions[0] = replace(decisions[0], shadow=shadows.get(config.name))
    choose = live.choose
    return lambda facts, rng: decisions[choose(facts, rng)]


def _decision(
    model: str, index: int, route: RouteConfig, target: Target, arm: str | None, rewrite: Rewrite | None
) -> Decision:
    return Decision(
        index,
        route.name,
        target,
        arm,
        rewrite,
        route.retry,
        route.timeout,
        model=model,
        hedge=route.hedge,
        cache=route.cache,
        priority=route.priority,
        calls_models=target.model is not None,
        strict=route.strict,
        elsewhere_first=route.when_full == "fallback",
        hide_model_errors=route.hide_model_errors,
        trace_content=route.trace_content,
    )

"""Routes compiled: Facts → Decision. Everything that can be computed at load is."""

from collections.abc import Callable, Iterator, Sequence
from random import Random

from config.schema import ModelConfig, RouteConfig, SplitConfig
from policies.conditions import Condition, conditions
from policies.decision import Decision
from policies.facts import Facts
from policies.globs import GlobSet, GlobTable
from policies.split import choose, subject_of

Target = Callable[[Facts, Random], Decision]


class Rules:
    """One model's routes; the first that matches wins."""

    __slots__ = ("_routes", "model")

    def __init__(self, model: ModelConfig) -> None:
        self.model = model.name
        """As configured: a glob for a family, so that it can label a metric."""
        self._routes = tuple(_compile(model))

    def decide(self, facts: Facts, rng: Random) -> Decision | None:
        """None when no route matches."""
        for when, target in self._routes:
            for holds in when:
                if not holds(facts):
                    break
            else:
                return target(facts, rng)
        return None


class Catalogue:
    """Every model that clients may ask for."""

    __slots__ = ("_table",)

    def __init__(self, models: Sequence[ModelConfig]) -> None:
        self._table = GlobTable((model.name, Rules(model)) for model in models)

    def find(self, name: str) -> Rules | None:
        """The model of that exact name, else the first in the file whose glob matches."""
        return self._table.find(name)


class ModelList(GlobSet):
    """The models a tenant may use."""

    __slots__ = ()

    def allows(self, name: str) -> bool:
        return name in self


def _compile(model: ModelConfig) -> Iterator[tuple[tuple[Condition, ...], Target]]:
    splits = 0
    for index, route in enumerate(model.routes):
        if route.split is None:
            target = _fixed(_decision(model.name, index, route, route.pools()[0], None))
        else:
            # A split is known by its place among the model's splits, so neither new weights, a new
            # condition nor a plain route put above it moves a subject.
            target = _split(model.name, index, route, route.split, f"{model.name}#{splits}")
            splits += 1
        yield conditions(route.when), target


def _fixed(decision: Decision) -> Target:
    return lambda _facts, _rng: decision


def _split(model: str, index: int, route: RouteConfig, split: SplitConfig, salt: str) -> Target:
    arms = tuple((arm.pool, arm.weight) for arm in split.arms)
    decisions = {pool: _decision(model, index, route, pool, pool) for pool, _ in arms}
    sticky = split.sticky
    return lambda facts, rng: decisions[choose(subject_of(sticky, facts, rng), salt, arms)]


def _decision(model: str, index: int, route: RouteConfig, first: str, arm: str | None) -> Decision:
    pools = tuple(dict.fromkeys((first, *route.fallback)))
    return Decision(
        index,
        route.name,
        pools,
        arm,
        route.retry,
        route.timeout,
        model=model,
        hedge=route.hedge,
        priority=route.priority,
        elsewhere_first=route.when_full == "fallback",
    )

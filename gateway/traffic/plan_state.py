"""State of plans that outlives the snapshot for which they were composed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from adapters.base import Upstream
from config.schema.config import CacheConfig, Config, HedgeConfig
from gateway.traffic.cache import Shelf
from policies.hedge import Patience, patience
from policies.retry import ResumeBudget, RetryBudget

Branch = tuple[str, int, str]
"""A model, the index of its route, and one of the route's pools."""


class TokenEmbedder(Protocol):
    """Computes embeddings where a model's servers return vectors of tokens."""

    def around(self, upstream: Upstream, clock: Callable[[], float]) -> Upstream:
        """An upstream that also answers requests for embeddings."""
        ...


class PlanState:
    """Budgets and measurements by branch, and cached answers. A reload preserves all of them."""

    def __init__(self) -> None:
        self.embedders: Mapping[str, TokenEmbedder] = {}
        """Embedders by model, loaded before their configuration is applied."""
        self._retries: dict[Branch, RetryBudget] = {}
        self._hedges: dict[Branch, tuple[str, Patience, RetryBudget]] = {}
        self._resumes: dict[Branch, ResumeBudget] = {}
        self._shelves: dict[tuple[str, int], Shelf] = {}

    def retries(self, branch: Branch, ratio: float) -> RetryBudget:
        """The retry budget of a branch, with the configured ratio."""
        budget = self._retries.setdefault(branch, RetryBudget(ratio))
        budget.ratio = ratio
        return budget

    def hedges(self, branch: Branch, config: HedgeConfig) -> tuple[Patience, RetryBudget]:
        """The time that a branch waits before a hedge, and its budget of hedges."""
        after, waits, budget = self._hedges.get(branch, ("", None, RetryBudget(config.budget)))
        if waits is None or after != config.after:
            waits = patience(config.after)
        self._hedges[branch] = (config.after, waits, budget)
        budget.ratio = config.budget
        return waits, budget

    def resumes(self, branch: Branch) -> ResumeBudget:
        """The budget of a branch for resumed streams."""
        return self._resumes.setdefault(branch, ResumeBudget())

    def shelf(self, model: str, route: int, config: CacheConfig) -> Shelf:
        """The cached answers of a route, within the configured limits."""
        shelf = self._shelves.get((model, route))
        if shelf is None:
            shelf = self._shelves[model, route] = Shelf(config)
        shelf.store.configure(config.ttl, config.max_bytes)
        return shelf

    def shelves(self) -> Iterator[tuple[str, Shelf]]:
        """`(model, shelf)` for each route with a cache that has received a request."""
        return ((model, shelf) for (model, _), shelf in self._shelves.items())

    def retain(self, config: Config) -> None:
        """Drop the state of branches that are not in a configuration."""
        branches = {
            (model.name, index, pool)
            for model in config.models
            for index, route in enumerate(model.routes)
            for pool in route.pools()
        }
        self._retries = {branch: budget for branch, budget in self._retries.items() if branch in branches}
        self._hedges = {branch: hedges for branch, hedges in self._hedges.items() if branch in branches}
        self._resumes = {branch: budget for branch, budget in self._resumes.items() if branch in branches}
        caching = {
            (model.name, index)
            for model in config.models
            for index, route in enumerate(model.routes)
            if route.cache is not None
        }
        self._shelves = {place: shelf for place, shelf in self._shelves.items() if place in caching}

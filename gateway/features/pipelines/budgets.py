"""The budgets of the pipelines around a call of a model."""

from __future__ import annotations

from adapters.errors import BudgetExceeded
from config.schema.money import Money
from config.schema.pipelines.pipeline import BudgetConfig
from policies.pipelines.request_budget import RequestBudget, Use


class Budgets:
    """The budgets of a request to a pipeline and of the pipelines around it. Each call counts against all of them."""

    __slots__ = ("_all", "_currency")

    def __init__(self, all_: tuple[RequestBudget, ...] = (), currency: str = "") -> None:
        self._all = all_
        self._currency = currency

    def within(self, pipeline: str, config: BudgetConfig | None) -> Budgets:
        """These budgets and that of a pipeline inside, for one request."""
        if config is None:
            return self
        spend = config.spend
        own = RequestBudget(pipeline, config.tokens, None if spend is None else spend.picos)
        return Budgets((*self._all, own), self._currency if spend is None else spend.currency)

    def reserve(self, model: str, estimate: Use) -> None:
        """Count a call that starts. Raises `BudgetExceeded`, and counts nothing then."""
        for budget in self._all:
            if budget.exceeded(estimate):
                reason = f"A call of `{model}` would exceed the budget of `{budget.pipeline}`"
                remedy = "Send a shorter prompt, or fewer `max_tokens`."
                raise BudgetExceeded(f"{reason}: {self._shown(budget, estimate)}. {remedy}")
        for budget in self._all:
            budget.reserve(estimate)

    def settle(self, estimate: Use, truth: Use) -> None:
        """Count a call that has ended."""
        for budget in self._all:
            budget.settle(estimate, truth)

    def _shown(self, budget: RequestBudget, estimate: Use) -> str:
        used = budget.used + budget.reserved
        parts = []
        if budget.tokens is not None:
            parts.append(f"{used.tokens:g} of {budget.tokens:g} tokens are used, and it may use {estimate.tokens:g}")
        if budget.picos is not None:
            spent, most, more = (Money(each, self._currency) for each in (used.picos, budget.picos, estimate.picos))
            parts.append(f"{spent} of {most} are spent, and it may cost {more}")
        return "; ".join(parts)

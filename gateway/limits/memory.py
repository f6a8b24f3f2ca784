"""The bytes that requests hold in this process, in total and for each tenant."""

from collections.abc import Iterable

from adapters.http1.budget import Budget
from config.schema.config import HttpConfig


class Memory:
    """The budget of one process. Survives reloads."""

    def __init__(self, http: HttpConfig) -> None:
        self.process = Budget(http.held_by_all)
        self.tenants: dict[str, Budget] = {}
        self._most = http.held_by_tenant
        self.unverified = Budget(self._most, self.process)
        """Bodies that are read to verify their signature, together: they belong to no tenant yet."""

    def of(self, tenant: str) -> Budget:
        """A tenant's budget, which is a part of the process's."""
        budget = self.tenants.get(tenant)
        if budget is None:
            budget = self.tenants[tenant] = Budget(self._most, self.process, tenant)
        return budget

    def configure(self, tenants: Iterable[str]) -> None:
        """Delete budgets of removed tenants that hold nothing."""
        current = set(tenants)
        for name in [name for name, budget in self.tenants.items() if name not in current and budget.held == 0]:
            del self.tenants[name]

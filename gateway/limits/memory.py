"""The bytes that requests hold in this process, in total and for each tenant."""

from collections.abc import Iterable
from weakref import WeakValueDictionary

from adapters.http1.budget import Budget
from config.schema.config import HttpConfig
from config.schema.units import HELD_COPIES

KEYS = 4
"""Keys whose unverified bodies fit at the same time, each with all that it may hold. The largest body always fits."""


class Memory:
    """The budget of one process. Survives reloads."""

    def __init__(self, http: HttpConfig) -> None:
        self.process = Budget(http.held_by_all)
        self.tenants: dict[str, Budget] = {}
        self._most = http.held_by_tenant
        self.unverified = Budget(self._most, self.process)
        """Bodies that are read to verify their signature, together: they belong to no tenant yet."""
        self._of_one_key = max(HELD_COPIES * http.max_body, self._most // KEYS)
        self._claimed: WeakValueDictionary[str, Budget] = WeakValueDictionary()

    def of(self, tenant: str) -> Budget:
        """A tenant's budget, which is a part of the process's."""
        budget = self.tenants.get(tenant)
        if budget is None:
            budget = self.tenants[tenant] = Budget(self._most, self.process, tenant)
        return budget

    def claimed_by(self, key_id: str) -> Budget:
        """The part of `unverified` for bodies that claim to be of one key: its id is no secret, and who sends bodies in
        its name must not starve the other keys. Lives as long as a request refers to it."""
        budget = self._claimed.get(key_id)
        if budget is None:
            budget = self._claimed[key_id] = Budget(self._of_one_key, self.unverified)
        return budget

    def configure(self, tenants: Iterable[str]) -> None:
        """Delete budgets of removed tenants that hold nothing."""
        current = set(tenants)
        for name in [name for name, budget in self.tenants.items() if name not in current and budget.held == 0]:
            del self.tenants[name]

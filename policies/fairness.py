"""Fair shares between tenants: the tenant with the least service for its share is next.

Each tenant has a virtual token counter: its service, in weighted tokens, divided by its share. (Sheng et al.,
"Fairness in Serving Large Language Models", OSDI 2024, algorithm 2.) The counter uses actual service, so no estimate of
answer lengths is needed.

For two tenants that both wait throughout an interval, their charges in the interval, per share, differ by at most
2 × U, where U = (largest prompt + slots × largest rest of a charge) / smallest share. U is the most by which one
counter can exceed the lowest, as it was the lowest when it was last chosen.
"""

from collections.abc import Container, Iterable

PROMPT, COMPLETION = 1.0, 2.0
"""Weights of tokens. A completion token costs a server more than a prompt token, as all price lists reflect."""


def work(prompt_tokens: int, completion_tokens: int, rows: int = 0) -> float:
    """Weighted tokens, or rows of tensors; never 0, so that requests without either take turns too."""
    return max(1.0, PROMPT * prompt_tokens + COMPLETION * completion_tokens + rows)


class VirtualTokenCounter:
    """The counters of all tenants. The caller passes `waiting`, the tenants that wait at the moment."""

    __slots__ = ("_counters", "_last_level")

    def __init__(self) -> None:
        self._counters: dict[str, float] = {}
        self._last_level = 0.0

    def level(self, tenant: str) -> float:
        """A tenant's service for its share. Only differences are meaningful."""
        return self._counters.get(tenant, 0.0)

    def join(self, tenant: str, waiting: Iterable[str]) -> None:
        """Record that a tenant begins to wait. Its counter is raised to the lowest of the waiting tenants, or to that
        of the last tenant that left: idle time earns no credit, and a new tenant has no debt."""
        floor = min(map(self.level, waiting), default=self._last_level)
        self._counters[tenant] = max(self.level(tenant), floor)

    def leave(self, tenant: str) -> None:
        """Record that a tenant stops waiting."""
        self._last_level = self.level(tenant)

    def next(self, waiting: Iterable[str]) -> str:
        """The next tenant; among equals, the first. Raises ValueError if no tenant waits."""
        return min(waiting, key=self.level)

    def charge(self, tenant: str, tokens: float, share: float) -> None:
        """Charge a tenant for service; a negative amount corrects an estimate."""
        self._counters[tenant] = self.level(tenant) + tokens / share

    def keep(self, tenants: Container[str]) -> None:
        """Drop the counters of all other tenants."""
        self._counters = {tenant: level for tenant, level in self._counters.items() if tenant in tenants}

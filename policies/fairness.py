"""Fair shares of servers that everyone wants at once: who was served least, for its share, is next.

A virtual token counter for each tenant: what it was served, in weighted tokens, divided by its share. (Sheng et
al., "Fairness in Serving Large Language Models", OSDI 2024, algorithm 2.) Counting what was served and not what
was asked, it needs no guess of how long an answer will be.

For two tenants that both wait all the time between two moments, what they were charged in that time differs, per
share, by at most 2 × U, where U = (largest prompt + slots × largest rest of a charge) / smallest share: the most
that one counter can run ahead of the lowest, for it was the lowest when it was last chosen.
"""

from collections.abc import Container, Iterable

PROMPT, COMPLETION = 1.0, 2.0
"""What a token counts. One that is made costs a server more than one that is read, as every price list says."""


def work(prompt_tokens: int, completion_tokens: int, rows: int = 0) -> float:
    """Weighted tokens, or rows of tensors; never nothing, so that requests without either take turns too."""
    return max(1.0, PROMPT * prompt_tokens + COMPLETION * completion_tokens + rows)


class VirtualTokenCounter:
    """`waiting` are the tenants that wait at that moment; it is theirs to know, and given where it counts."""

    __slots__ = ("_counters", "_last_level")

    def __init__(self) -> None:
        self._counters: dict[str, float] = {}
        self._last_level = 0.0

    def level(self, tenant: str) -> float:
        """How much it was served for its share. Only differences mean something."""
        return self._counters.get(tenant, 0.0)

    def join(self, tenant: str, waiting: Iterable[str]) -> None:
        """It begins to wait, and others do already. It is lifted to the lowest of them, and without any to where
        the last one left: time in which it wanted nothing earns no credit, and a new one owes nothing."""
        floor = min(map(self.level, waiting), default=self._last_level)
        self._counters[tenant] = max(self.level(tenant), floor)

    def leave(self, tenant: str) -> None:
        """It waits no more."""
        self._last_level = self.level(tenant)

    def next(self, waiting: Iterable[str]) -> str:
        """Whose turn it is; the first of those at one level. ValueError when nobody waits."""
        return min(waiting, key=self.level)

    def charge(self, tenant: str, tokens: float, share: float) -> None:
        """It was served that much more, or less than was thought."""
        self._counters[tenant] = self.level(tenant) + tokens / share

    def keep(self, tenants: Container[str]) -> None:
        """Forget all others."""
        self._counters = {tenant: level for tenant, level in self._counters.items() if tenant in tenants}

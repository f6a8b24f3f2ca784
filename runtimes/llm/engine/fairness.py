"""Fair shares of the engine: the tenant that was served least for its share is next.

A virtual token counter for each tenant (Sheng et al. 2024, "Fairness in Serving Large Language Models",
https://arxiv.org/abs/2401.00588, algorithm 2): what was computed for it, in weighted tokens, divided by its share. It
counts what was served and not what was asked for, so nobody has to guess how long an answer will be. What two tenants
that both wait are served between two moments differs, per share, by a constant (theorem 4.8).
"""

from collections.abc import Set

PROMPT, COMPLETION = 1.0, 2.0
"""What a token counts. One that is made keeps the engine busy for longer than one that is read."""
MAX_TENANTS = 4096


class ServedTokens:
    """How much each tenant was served. `waiting` are those that wait at that moment, which whoever asks knows."""

    __slots__ = ("_last_level", "_levels")

    def __init__(self) -> None:
        self._levels: dict[str, float] = {}
        self._last_level = 0.0

    def level(self, tenant: str) -> float:
        """Only differences mean something."""
        return self._levels.get(tenant, 0.0)

    def join(self, tenant: str, waiting: Set[str]) -> None:
        """It begins to wait. It is lifted to the lowest of those that wait already, or without any to where the last
        one left: time in which it wanted nothing earns no credit."""
        floor = min(map(self.level, waiting), default=self._last_level)
        self._levels[tenant] = max(self.level(tenant), floor)
        if len(self._levels) > MAX_TENANTS + len(waiting):
            self._levels = {name: self.level(name) for name in waiting | {tenant}}

    def leave(self, tenant: str) -> None:
        """It waits no more."""
        self._last_level = self.level(tenant)

    def charge(self, tenant: str, tokens: float, share: float) -> None:
        """It was served that much more."""
        self._levels[tenant] = self.level(tenant) + tokens / share

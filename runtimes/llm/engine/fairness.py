"""Fair shares of the engine: the tenant with the least service for its share is next.

Each tenant has a virtual token counter (Sheng et al. 2024, "Fairness in Serving Large Language Models",
https://arxiv.org/abs/2401.00588, algorithm 2): its service, in weighted tokens, divided by its share. The counter uses
actual service, so no estimate of answer lengths is needed. For two tenants that both wait throughout an interval, the
service in the interval differs, per share, by at most a constant (theorem 4.8).

`policies.queueing` has the same counter for the gateway's queue: a runtime imports no policy, as it also runs alone.
"""

from collections.abc import Set

from runtimes.llm.engine.sequence import Chunk, Sequence

PROMPT, COMPLETION = 1.0, 2.0
"""Weights of tokens. A completion token takes more of the engine's time than a prompt token."""
MAX_TENANTS = 4096


class ServedTokens:
    """The counters of all tenants. The caller passes `waiting`, the tenants that wait at the moment."""

    __slots__ = ("_last_level", "_levels")

    def __init__(self) -> None:
        self._levels: dict[str, float] = {}
        self._last_level = 0.0

    def level(self, tenant: str) -> float:
        """A tenant's service for its share. Only differences are meaningful."""
        return self._levels.get(tenant, 0.0)

    def join(self, tenant: str, waiting: Set[str]) -> None:
        """Record that a tenant begins to wait. Its counter is raised to the lowest of the waiting tenants, or to that
        of the last tenant that left: idle time earns no credit."""
        floor = min(map(self.level, waiting), default=self._last_level)
        self._levels[tenant] = max(self.level(tenant), floor)
        if len(self._levels) > MAX_TENANTS + len(waiting):
            self._levels = {name: self.level(name) for name in waiting | {tenant}}

    def leave(self, tenant: str) -> None:
        """Record that a tenant stops waiting."""
        self._last_level = self.level(tenant)

    def charge(self, tenant: str, tokens: float, share: float) -> None:
        """Charge a tenant for service."""
        self._levels[tenant] = self.level(tenant) + tokens / share

    def charge_prompt(self, sequence: Sequence, chunk: Chunk) -> None:
        """Charge for a chunk of a prompt: each computed token once, cached tokens not at all."""
        tokens = min(chunk.end, sequence.num_prompt_tokens) - max(chunk.start, sequence.num_charged)
        if tokens > 0:
            sequence.num_charged = chunk.end
            self.charge(sequence.standing.tenant, PROMPT * tokens, sequence.standing.share)

    def charge_completion(self, sequence: Sequence) -> None:
        """Charge for one generated token."""
        self.charge(sequence.standing.tenant, COMPLETION, sequence.standing.share)

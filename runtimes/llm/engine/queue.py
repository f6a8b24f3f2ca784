"""The queue of sequences that wait to run, and their order.

    priority      the lowest number first, strictly
    tenant        among those, the one that has received least for its share (`fairness`)
    urgency       within a tenant, the earliest deadline; without one, PATIENCE after the arrival

A full queue makes room from the other end: the highest number first, there the tenant with most waiting requests for
its share, and the newest of its requests. So a flood fills the places of the tenant that sends it and of no other
(McKenney 1990, "Stochastic fairness queueing": drop from the longest queue).
"""

from bisect import insort
from collections.abc import Container, Iterator
from math import inf

from runtimes.llm.engine.fairness import ServedTokens
from runtimes.llm.engine.sequence import Sequence

PATIENCE = 600.0
"""Seconds after its arrival at which a sequence without a deadline counts as due, so that others' deadlines cannot
starve it.
"""


class SequenceQueue:
    """Sequences by priority and tenant. The last in a tenant's line is not always the newest: preempted ones return."""

    def __init__(self, counter: ServedTokens) -> None:
        self.size = 0
        self._counter = counter
        self._bands: dict[int, dict[str, list[Sequence]]] = {}
        self._tenants: dict[str, int] = {}
        """The number of waiting sequences of each tenant, over all priorities."""

    def __iter__(self) -> Iterator[Sequence]:
        return (sequence for band in self._bands.values() for line in band.values() for sequence in line)

    def push(self, sequence: Sequence) -> None:
        tenant = sequence.standing.tenant
        if tenant not in self._tenants:
            self._counter.join(tenant, self._tenants.keys())
        self._tenants[tenant] = self._tenants.get(tenant, 0) + 1
        band = self._bands.setdefault(sequence.standing.priority, {})
        insort(band.setdefault(tenant, []), sequence, key=urgency)
        self.size += 1

    def remove(self, sequence: Sequence) -> None:
        """Raises ValueError or KeyError for a sequence that does not wait."""
        tenant, priority = sequence.standing.tenant, sequence.standing.priority
        band = self._bands[priority]
        band[tenant].remove(sequence)
        self.size -= 1
        if not band[tenant]:
            del band[tenant]
            if not band:
                del self._bands[priority]
        self._tenants[tenant] -= 1
        if not self._tenants[tenant]:
            del self._tenants[tenant]
            self._counter.leave(tenant)

    def has_above(self, priority: float) -> bool:
        """Whether a sequence of a more urgent priority waits."""
        return any(band < priority for band in self._bands)

    def first(self, passed: Container[int], below: float = inf) -> Sequence | None:
        """The next sequence whose id is not in `passed`, of a priority number below `below`."""
        for priority in sorted(self._bands):
            if priority >= below:
                return None
            lines = self._bands[priority].values()
            firsts = [first for line in lines if (first := next((s for s in line if s.id not in passed), None))]
            if firsts:
                return firsts[0] if len(firsts) == 1 else min(firsts, key=self.rank)
        return None

    def heads(self, tenant: str) -> list[Sequence]:
        """The most urgent sequence without a token, for each priority of a tenant."""
        lines = (band[tenant] for band in self._bands.values() if tenant in band)
        heads = (next((sequence for sequence in line if not sequence.begun), None) for line in lines)
        return [head for head in heads if head is not None]

    def rank(self, sequence: Sequence) -> tuple[int, float, float, int]:
        """The order of sequences: the lowest rank runs first."""
        standing = sequence.standing
        return standing.priority, self._counter.level(standing.tenant), *urgency(sequence)

    def victim(self, newcomer: Sequence) -> Sequence | None:
        """The sequence that loses its place to a new one; None if the new sequence has the lowest claim.

        A sequence whose answer has begun is never selected.
        """
        priority, mine = newcomer.standing.priority, newcomer.standing
        for lowest in sorted(self._bands, reverse=True):
            if lowest < priority:
                return None
            lines = {tenant: new for tenant, line in self._bands[lowest].items() if (new := _not_begun(line))}
            if not lines:
                continue
            longest = max(lines.values(), key=lambda line: len(line) / line[-1].standing.share)
            if lowest == priority:
                own = (len(lines.get(mine.tenant, ())) + 1) / mine.share
                if len(longest) / longest[-1].standing.share <= own:
                    return None
            return max(longest, key=lambda sequence: sequence.id)
        return None


def urgency(sequence: Sequence) -> tuple[float, int]:
    """The time by which its wait should end; ties go to the older."""
    return min(sequence.standing.deadline, sequence.arrived + PATIENCE), sequence.id


def _not_begun(line: list[Sequence]) -> list[Sequence]:
    return [sequence for sequence in line if not sequence.begun]

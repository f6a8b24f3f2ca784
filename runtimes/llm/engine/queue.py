"""The queue of sequences that wait to run, and their order; those that run, and which of them is preempted first.

    priority      the lowest number first, strictly
    tenant        among those, the one that has received least for its share
    urgency       within a tenant, the earliest deadline; without one, PATIENCE after the arrival

A full queue makes room from the other end: the highest number first, there the tenant with most waiting requests for
its share, and the newest of its requests. So a flood fills the places of the tenant that sends it and of no other
(McKenney 1990, "Stochastic fairness queueing": drop from the longest queue).

Shares are fair: each tenant has a virtual token counter (Sheng et al. 2024, "Fairness in Serving Large Language
Models", https://arxiv.org/abs/2401.00588, algorithm 2): its service, in weighted tokens, divided by its share. The
counter uses actual service, so no estimate of answer lengths is needed. For two tenants that both wait throughout an
interval, the service in the interval differs, per share, by at most a constant (theorem 4.8).

`policies.queueing` has the same counter for the gateway's queue: a runtime imports no policy, as it also runs alone.
"""

from bisect import insort
from collections.abc import Container, Iterator, Set
from itertools import chain
from math import inf

from adapters.errors import CapacityError, ContextTooLong, DeadlineError
from runtimes.llm.sequence import Chunk, Sequence

RETRY_SECONDS = 1.0
"""The queue has no free place. One becomes free as soon as the next answer has ended."""


class QueueFull(CapacityError):
    """The maximum of sequences wait already."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after=RETRY_SECONDS)


class TooLate(DeadlineError):
    """The deadline of a sequence has passed, while it waited or ran."""

    def __init__(self) -> None:
        super().__init__("The request's deadline has passed.")


class PromptTooLong(ContextTooLong, ValueError):
    """The prompt leaves no room for an answer: it has `length` tokens, and `limit` is the maximum."""

    def __init__(self, *, length: int, limit: int) -> None:
        super().__init__(f"the prompt has {length} tokens; the longest this engine takes has {limit}")
        self.length = length
        self.limit = limit


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


class Running:
    """By id: `prompts` have more than one token to compute, `decoding` have one."""

    def __init__(self, counter: ServedTokens) -> None:
        self.prompts: dict[int, Sequence] = {}
        self.decoding: dict[int, Sequence] = {}
        self._counter = counter

    def __len__(self) -> int:
        return len(self.prompts) + len(self.decoding)

    def __iter__(self) -> Iterator[Sequence]:
        return chain(self.prompts.values(), self.decoding.values())

    def __contains__(self, sequence_id: int) -> bool:
        return sequence_id in self.prompts or sequence_id in self.decoding

    def decodes(self, sequence: Sequence) -> None:
        """Record that a prompt is computed and that its sequence has a new token."""
        if self.prompts.pop(sequence.id, None) is not None:
            self.decoding[sequence.id] = sequence

    def remove(self, sequence_id: int) -> None:
        """Remove a sequence; no effect if it does not run."""
        self.prompts.pop(sequence_id, None)
        self.decoding.pop(sequence_id, None)

    def decoding_below(self, priority: float) -> list[Sequence]:
        """The sequences that decode, of priority numbers below `priority`."""
        return [sequence for sequence in self.decoding.values() if sequence.standing.priority < priority]

    def turn(self, background: int, most: int) -> list[Sequence]:
        """All live sequences that decode, and of the background, beside them, those that rested longest: `most` in
        all, and at least one."""
        live = self.decoding_below(background)
        others = [sequence for sequence in self.decoding.values() if sequence.standing.priority >= background]
        chosen = others[: max(1, most - len(live))]
        for sequence in chosen if len(chosen) < len(others) else ():
            self.decoding[sequence.id] = self.decoding.pop(sequence.id)
        return live + chosen

    def last(self) -> Sequence:
        """The sequence to preempt first: of the lowest priority, of the tenant that has received most, the newest.

        Raises ValueError if nothing runs.
        """
        return max(self, key=self._rank)

    def _rank(self, sequence: Sequence) -> tuple[int, float, int]:
        return sequence.standing.priority, self._counter.level(sequence.standing.tenant), sequence.id

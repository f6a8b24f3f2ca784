"""What a server reports of its own load, and the picker that goes by it."""

from collections.abc import Sequence
from random import Random

from policies.balancing.balance import C, Caller, Request, two_of

FULL = 0.8
"""Share of a KV cache in use above which each new request pushes out another or waits for its pages."""
CROWDED = 4.0
"""How many times longer an endpoint with a full cache seems to be than one with room."""
LOADING = 4.0
"""Requests that it is as dear as to have an endpoint load a LoRA adapter that another one has at hand."""


class Signal:
    """The last report of one server, which counts for less the older it is.

    What a server runs and lets wait includes this gateway's own requests, which are counted at once and need
    no report; what it had beyond them is the load that others put on it. Waiting requests count twice: where
    some wait, the next one does too.
    """

    __slots__ = ("_at", "_crowding", "_half_life", "_others", "adapters", "seen")

    def __init__(self) -> None:
        self.seen = False
        self.adapters: frozenset[str] = frozenset()
        """Those that it had at hand."""
        self._half_life = 1.0
        self._at = 0.0
        self._others = 0.0
        self._crowding = 0.0

    def report(
        self,
        *,
        running: float,
        waiting: float,
        cache: float,
        own: int,
        half_life: float,
        now: float,
        adapters: frozenset[str] = frozenset(),
    ) -> None:
        """What it said now: requests run and waiting, the share of its cache in use, and how many of ours it had."""
        self.seen = True
        self.adapters = adapters
        self._at = now
        self._half_life = half_life
        self._others = max(0.0, running + waiting - own) + waiting
        self._crowding = CROWDED * min(1.0, max(0.0, (cache - FULL) / (1.0 - FULL)))

    def trust(self, now: float) -> float:
        """1 for a report of this moment, half of that after each half-life, 0 without any."""
        return 2.0 ** min(0.0, (self._at - now) / self._half_life) if self.seen else 0.0

    def load(self, own: int, trust: float) -> float:
        """Requests there, `own` of this gateway included, if the report is worth that much."""
        return (own + trust * self._others) * (1.0 + trust * self._crowding)

    def age(self, now: float) -> float | None:
        """Seconds since the last report; None before the first."""
        return now - self._at if self.seen else None


class LoadTwoChoices:
    """The less loaded of two drawn at random, going by what both servers reported.

    Two, and not the least of all: every gateway reads the same reports, and all would send to the one that was
    idle a moment ago. (Dahlin, "Interpreting Stale Load Information", IEEE TPDS 11(10), 2000: old reports make
    the minimum worse than chance.) The older report's trust is given to both, so a server whose metrics cannot
    be read does not look idle beside one that tells of its load; without reports this is `least_request`.

    A LoRA adapter goes where it is at hand, unless those that have it are busier by what loading it costs.
    """

    __slots__ = ()

    def pick(self, candidates: Sequence[C], request: Request, caller: Caller, now: float, rng: Random) -> C:
        holding = [candidate for candidate in candidates if request.model in candidate.signal.adapters]
        if not holding or len(holding) == len(candidates):
            return self._of_two(candidates, now, rng)
        near = self._of_two(holding, now, rng)
        far = self._of_two([candidate for candidate in candidates if candidate not in holding], now, rng)
        trust = min(near.signal.trust(now), far.signal.trust(now))
        mine = near.signal.load(near.in_flight + 1, trust) * far.weight
        return near if mine <= (far.signal.load(far.in_flight + 1, trust) + LOADING) * near.weight else far

    def _of_two(self, candidates: Sequence[C], now: float, rng: Random) -> C:
        first, second = two_of(candidates, rng)
        trust = min(first.signal.trust(now), second.signal.trust(now))
        mine = first.signal.load(first.in_flight + 1, trust) * second.weight
        return first if mine <= second.signal.load(second.in_flight + 1, trust) * first.weight else second

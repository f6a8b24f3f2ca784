"""The interface of pickers, and the pickers that use only the endpoints.

Pickers that use the request too are in `stickiness` and `affinity`, pickers with data from beyond this process in
`load` and `zones`. `pickers` creates the configured one.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Protocol, TypeVar

from policies.balancing.signals import PeakEwma, Signal

UNMEASURED = 1e6
"""The assumed seconds of a busy endpoint without a measurement, so that it gets one request at a time."""


class Candidate(Protocol):
    """An endpoint that may be picked."""

    @property
    def place(self) -> str: ...  # the same in every gateway and after a restart
    @property
    def in_flight(self) -> int: ...
    @property
    def weight(self) -> float: ...
    @property
    def latency(self) -> PeakEwma: ...
    @property
    def signal(self) -> Signal: ...
    @property
    def zone(self) -> str | None: ...
    def share_left(self, model: str, now: float) -> float: ...  # of the provider's quota for the model


class RoutedRequest(Protocol):
    """The attributes of a request that a picker may read. A pick creates no object."""

    @property
    def user(self) -> str | None: ...
    @property
    def model(self) -> str: ...
    @property
    def prompt(self) -> memoryview: ...  # the client's bytes, still encoded


class Caller(Protocol):
    """The attributes of the client that a picker may read."""

    @property
    def tenant(self) -> str: ...
    @property
    def key(self) -> str: ...  # the key's id, never its secret
    @property
    def headers(self) -> Mapping[str, str]: ...  # lower-case names


C = TypeVar("C", bound=Candidate)


class Picker(Protocol):
    """Picks one of the candidates. Raises ValueError without candidates."""

    def pick(self, candidates: Sequence[C], request: RoutedRequest, caller: Caller, now: float, rng: Random) -> C: ...


def two_of(candidates: Sequence[C], rng: Random) -> tuple[C, C]:
    """Two different random candidates in random order; a single candidate twice."""
    count = len(candidates)
    if count < 2:
        if not count:
            raise ValueError("no candidates to pick from")
        return candidates[0], candidates[0]
    # int(random() * n) costs less than half of randrange(n); its bias, n × 2⁻⁵³, is negligible.
    first = int(rng.random() * count)
    second = int(rng.random() * (count - 1))
    second += second >= first
    return candidates[first], candidates[second]


def least_request(candidates: Sequence[C], rng: Random) -> C:
    """The less loaded of two candidates drawn at random.

    Two choices make the longest queue exponentially shorter than one choice. Unlike the minimum of all, they do
    not send a burst to a single endpoint that looked idle. (Mitzenmacher, "The Power of Two Choices
    in Randomized Load Balancing", IEEE TPDS 12(10), 2001.) Load is (in_flight + 1) / weight, which
    includes this request, so an idle endpoint of twice the weight is preferred.
    """
    if len(candidates) == 1:
        return candidates[0]
    first, second = two_of(candidates, rng)
    # The order of the two is random, so a tie is resolved at random.
    return first if (first.in_flight + 1) * second.weight <= (second.in_flight + 1) * first.weight else second


class LeastRequest:
    """Power of two choices. Stateless."""

    __slots__ = ()

    def pick(self, candidates: Sequence[C], request: RoutedRequest, caller: Caller, now: float, rng: Random) -> C:
        return least_request(candidates, rng)


class Drawn:
    """Random choice by weight, independent of load. Stateless."""

    __slots__ = ()

    def pick(self, candidates: Sequence[C], request: RoutedRequest, caller: Caller, now: float, rng: Random) -> C:
        if not candidates:
            raise ValueError("no candidates to pick from")
        left = rng.random() * sum([c.weight for c in candidates])
        for candidate in candidates:
            left -= candidate.weight
            if left < 0:
                return candidate
        return candidates[-1]


class MostLeft:
    """The account of whose quota for the model the largest share is left; the less loaded of two where none is known.

    Stateless: the shares include the requests in flight, so a burst goes to one account until another has more. Equal
    shares run out at the same time, so that no quota refills in vain while another is exhausted.
    """

    __slots__ = ()

    def pick(self, candidates: Sequence[C], request: RoutedRequest, caller: Caller, now: float, rng: Random) -> C:
        shares = [candidate.share_left(request.model, now) for candidate in candidates]
        most = max(shares, default=0.0)
        return least_request([c for c, share in zip(candidates, shares, strict=True) if share == most], rng)


class PeakEwmaTwoChoices:
    """The candidate with the shorter expected wait of two random ones: latency × requests in flight.

    (Finagle's and linkerd's default.) Stateless: the measurements belong to the endpoints.
    """

    __slots__ = ()

    def pick(self, candidates: Sequence[C], request: RoutedRequest, caller: Caller, now: float, rng: Random) -> C:
        first, second = two_of(candidates, rng)
        return first if expected_wait(first, now) <= expected_wait(second, now) else second


def expected_wait(candidate: Candidate, now: float) -> float:
    """Seconds for the requests in flight and this one, per weight; 0 for an idle, unmeasured candidate."""
    latency = candidate.latency
    if not latency.measured:
        return UNMEASURED * candidate.in_flight
    return latency.value(now) * (candidate.in_flight + 1) / candidate.weight


class _Turn:
    """A candidate's credit. The reference to the candidate prevents the reuse of its id()."""

    __slots__ = ("candidate", "credit")

    def __init__(self, candidate: Candidate, credit: float) -> None:
        self.candidate = candidate
        self.credit = credit


class RoundRobin:
    """Smooth weighted round robin: weights 5, 1, 1 give a a b a c a a, not a a a a a b c.

    Each candidate earns its weight; the one with the most credit is picked and pays the sum of all weights. (nginx,
    "Upstream: smooth
    weighted round-robin balancing", commit 52327e0, 2012.)

    Candidates are distinguished by object identity. A candidate that is absent for some picks retains its credit; a
    new one starts at 0, which pulls the credits of a frequently changing pool towards 0.
    """

    __slots__ = ("_turns",)

    def __init__(self) -> None:
        self._turns: dict[int, _Turn] = {}

    def pick(self, candidates: Sequence[C], request: RoutedRequest, caller: Caller, now: float, rng: Random) -> C:
        turns = self._turns_of(candidates, rng)
        total = 0.0
        best, chosen = turns[0], candidates[0]
        for turn, candidate in zip(turns, candidates, strict=True):
            total += candidate.weight
            turn.credit += candidate.weight
            if turn.credit > best.credit:
                best, chosen = turn, candidate
        best.credit -= total
        return chosen

    def _turns_of(self, candidates: Sequence[Candidate], rng: Random) -> list[_Turn]:
        if not candidates:
            raise ValueError("no candidates to pick from")
        turns_by_id = self._turns
        try:
            turns = [turns_by_id[id(candidate)] for candidate in candidates]
        except KeyError:
            turns = [self._turn(candidate, rng) for candidate in candidates]
        if len(turns_by_id) > 2 * len(candidates) + 16:
            self._turns = {id(turn.candidate): turn for turn in turns}
        return turns

    def _turn(self, candidate: Candidate, rng: Random) -> _Turn:
        turns_by_id = self._turns.get(id(candidate))
        if turns_by_id is not None:
            return turns_by_id
        # A first credit far below any weight breaks ties only, so that workers that start together
        # do not all begin with the same endpoint.
        turn = _Turn(candidate, 1e-6 * rng.random() * candidate.weight)
        self._turns[id(candidate)] = turn
        return turn

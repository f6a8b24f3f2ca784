"""Consistent hashing with bounded loads: requests of one key go to the same endpoint until it is full."""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from math import ceil, inf, log
from random import Random

from policies.balancing.balance import C, Caller, Candidate, RoutedRequest, least_request

_MASK = 2**64 - 1


class BoundedHash:
    """Picks the key's first-ranked endpoint among those whose load is below `bound` × their fair share.

    Bounding the load: Mirrokni, Thorup and Zadimoghaddam, "Consistent Hashing with Bounded Loads", SODA 2018.
    The keys of a full endpoint move to the next endpoint in each key's own order, so a popular key overloads no
    endpoint. The order is weighted rendezvous hashing (see `policies.splits`) and not a ring: shares
    are exact, a new or removed endpoint moves only its own keys, there is no state, and a weight that rises in a slow
    start takes over keys one by one. The cost is one draw per candidate.

    `key` is ``user``, ``key``, ``tenant`` or ``header:NAME``, within its tenant. A request without it goes by
    `least_request`.
    """

    __slots__ = ("_bound", "_key")

    def __init__(self, key: str, bound: float) -> None:
        self._key = key
        self._bound = bound

    def pick(self, candidates: Sequence[C], request: RoutedRequest, caller: Caller, now: float, rng: Random) -> C:
        subject = self._subject(request, caller)
        if not subject or len(candidates) < 2:
            return least_request(candidates, rng)
        point = _point(subject)
        requests = weights = 0.0
        for candidate in candidates:
            requests += candidate.in_flight
            weights += candidate.weight
        allowance = self._bound * (requests + 1) / weights
        chosen, lowest = candidates[0], inf
        for candidate in candidates:
            # At least one has room: if all were at ceil(bound × share of n + 1), more than n would be in flight.
            if candidate.in_flight < ceil(allowance * candidate.weight):
                score = _score(point, candidate)
                if score < lowest:
                    chosen, lowest = candidate, score
        return chosen

    def _subject(self, request: RoutedRequest, caller: Caller) -> str | None:
        key = self._key
        if key == "tenant":
            return caller.tenant
        if key == "key":
            value: str | None = caller.key
        elif key == "user":
            value = request.user
        else:
            value = caller.headers.get(key.removeprefix("header:").lower())
        return f"{caller.tenant}\0{value}" if value else None


def home_of(sequence: str, candidates: Sequence[C]) -> C:
    """The candidate that has the state of a sequence, independent of load."""
    point = _point(sequence)
    return min(candidates, key=lambda candidate: _score(point, candidate))


def _score(point: int, candidate: Candidate) -> float:
    """An exponential draw whose rate is the weight; it depends on the key and this endpoint alone."""
    mixed = _mix(point ^ _seed(candidate.place))
    return -log((mixed + 1) / 2**64) / candidate.weight


def _mix(x: int) -> int:
    """Mix 64 bits, so that each result bit depends on all. (The finalizer of MurmurHash3, Appleby.)"""
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD & _MASK
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return x ^ x >> 33


@lru_cache(maxsize=4096)
def _seed(address: str) -> int:
    return _point(address)


def _point(text: str) -> int:
    """Hash a text, the same in every process. JSON allows lone surrogates in a user's name, strict UTF-8 does not."""
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "big")

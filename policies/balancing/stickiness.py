"""Consistent hashing with bounded loads: whoever has the same key gets the same endpoint, while it can take it."""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from math import ceil, inf, log
from random import Random

from policies.balancing.balance import C, Caller, Candidate, RoutedRequest, least_request

_MASK = 2**64 - 1


class BoundedHash:
    """Of the endpoints whose load is below `bound` × their fair share, the one that the key ranks first.

    Bounding the load: Mirrokni, Thorup and Zadimoghaddam, "Consistent Hashing with Bounded Loads", SODA 2018.
    A full endpoint's keys go on to the next in each key's own order, so a popular key overflows and
    overloads nobody. The order is weighted rendezvous hashing (see `policies.routing.split`) and not a ring: shares
    are exact, an endpoint that comes or goes moves its own keys only, there is nothing to build or to keep,
    and a weight that rises in a slow start takes keys over one by one. The price is one draw per candidate.

    `key` is ``user``, ``key``, ``tenant`` or ``header:NAME``, within its tenant; a request without it has no
    endpoint of its own and goes by `least_request`.
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
            # Somebody has room: were all at ceil(bound × share of n + 1) or above, more than n were in flight.
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
    """The one of them where a sequence belongs, whatever the load: its state is there."""
    point = _point(sequence)
    return min(candidates, key=lambda candidate: _score(point, candidate))


def _score(point: int, candidate: Candidate) -> float:
    """An exponential draw whose rate is the weight; it depends on the key and this endpoint alone."""
    mixed = _mix(point ^ _seed(candidate.address))
    return -log((mixed + 1) / 2**64) / candidate.weight


def _mix(x: int) -> int:
    """64 bits, each of which depends on all. (The finalizer of MurmurHash3, Appleby.)"""
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD & _MASK
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return x ^ x >> 33


@lru_cache(maxsize=4096)
def _seed(address: str) -> int:
    return _point(address)


def _point(text: str) -> int:
    """The same in every process. JSON allows lone surrogates in a user's name, strict UTF-8 does not."""
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "big")

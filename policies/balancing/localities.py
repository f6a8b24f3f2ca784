"""Balancing by locality: the gateway's own zone, then its region, then the world."""

from collections.abc import Sequence, Set
from random import Random

from policies.balancing.balance import C, Caller, Picker, RoutedRequest


class NearestFirst:
    """Another picker selects among the candidates of the nearest locality that has one.

    Unhealthy, broken and full endpoints are not candidates. So the first request for which a locality has no endpoint
    goes to the next one, and the first for which it has one again returns.
    """

    __slots__ = ("_near", "_picker", "_zone")

    def __init__(self, picker: Picker, zone: str, near: Set[str]) -> None:
        self._picker = picker
        self._zone = zone
        self._near = near

    def pick(self, candidates: Sequence[C], request: RoutedRequest, caller: Caller, now: float, rng: Random) -> C:
        nearest = [candidate for candidate in candidates if candidate.zone == self._zone]
        if not nearest:
            nearest = [candidate for candidate in candidates if candidate.zone in self._near]
        return self._picker.pick(nearest or candidates, request, caller, now, rng)

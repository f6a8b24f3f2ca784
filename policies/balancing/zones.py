"""Endpoints near the gateway first: of its own zone, then of its region, then of the world."""

from collections.abc import Mapping, Sequence, Set
from random import Random

from policies.balancing.balance import C, Caller, Candidate, Picker, RoutedRequest

BUSIER = 1.5
"""A zone has more than its share of traffic if its load exceeds that of the others by this factor and a request."""
BELIEVED = 0.25
"""The minimum weight of a report to be counted."""


def shares(capacity: Mapping[str | None, float], own: str, traffic: float | None) -> dict[str | None, float]:
    """The shares of requests that a gateway in zone `own` sends to each zone, by the zones' capacities.

    `traffic` is the share of all requests that arrive in this zone; by default, all named zones have equal
    traffic. A zone with at least that share of the capacity serves all of its own requests. Otherwise it serves
    up to its capacity, and the rest goes to the other zones in proportion to their spare capacity. If the gateways
    of all zones do so, every endpoint has the same load, and no request leaves its zone without need. Endpoints of
    no zone (None) have no traffic of their own. (Envoy, "Zone aware routing".)
    """
    total = sum(capacity.values())
    named = sum(zone is not None for zone in capacity)
    here = 1 / named if traffic is None else traffic
    own_share = capacity[own] / (total * here)
    if own_share >= 1 or len(capacity) == 1:
        return {own: 1.0}
    elsewhere = (1 - here) / (named - 1) if named > 1 else 0.0
    spare = {
        zone: max(0.0, size / total - (elsewhere if zone is not None else 0.0))
        for zone, size in capacity.items()
        if zone != own
    }
    scale = (1 - own_share) / sum(spare.values())
    return {own: own_share, **{zone: scale * room for zone, room in spare.items()}}


class NearFirst:
    """Draws the zone by `shares` of the current candidates; another picker selects the endpoint in it.

    Unhealthy and full endpoints are not candidates, so a full zone spills over to others. If servers report
    their load, a zone that is much busier than the others is not preferred, as it receives more traffic than
    assumed.
    """

    __slots__ = ("_picker", "_traffic", "_zone")

    def __init__(self, picker: Picker, zone: str, traffic: float | None) -> None:
        self._picker = picker
        self._zone = zone
        self._traffic = traffic

    def pick(self, candidates: Sequence[C], request: RoutedRequest, caller: Caller, now: float, rng: Random) -> C:
        capacity: dict[str | None, float] = {}
        for candidate in candidates:
            capacity[candidate.zone] = capacity.get(candidate.zone, 0.0) + candidate.weight
        if len(capacity) > 1 and self._zone in capacity and not _is_busy(self._zone, candidates, now):
            zone = _drawn(shares(capacity, self._zone, self._traffic), rng)
            candidates = [candidate for candidate in candidates if candidate.zone == zone]
        return self._picker.pick(candidates, request, caller, now, rng)


def _is_busy(zone: str, candidates: Sequence[Candidate], now: float) -> bool:
    """Whether a zone is busier than the others, by recent reports; False if either side has none."""
    load, weight = [0.0, 0.0], [0.0, 0.0]
    for candidate in candidates:
        trust = candidate.signal.trust(now)
        if trust >= BELIEVED:
            here = candidate.zone == zone
            load[here] += candidate.signal.load(candidate.in_flight, trust)
            weight[here] += candidate.weight
    return 0.0 not in weight and load[1] / weight[1] > BUSIER * load[0] / weight[0] + 1


def _drawn(by_zone: Mapping[str | None, float], rng: Random) -> str | None:
    left = rng.random()
    for zone, share in by_zone.items():
        left -= share
        if left < 0:
            return zone
    return max(by_zone, key=lambda zone: by_zone[zone])  # the shares sum to 1, except for rounding


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

from collections import Counter, defaultdict
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.schema.config import BalanceConfig
from policies.balancing.balance import LeastRequest, RoundRobin
from policies.balancing.pickers import LoadTwoChoices, picker
from policies.balancing.zones import NearFirst, shares
from tests.support.candidates import ANYONE, Candidate

capacities = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.floats(0.1, 1000), min_size=1)


@given(capacities, st.data())
def test_shares_are_a_distribution(named: dict[str | None, float], data: st.DataObject) -> None:
    capacity = dict(named)
    if data.draw(st.booleans()):
        capacity[None] = data.draw(st.floats(0.1, 1000))
    own = data.draw(st.sampled_from(sorted(zone for zone in capacity if zone is not None)))
    traffic = data.draw(st.none() | st.floats(0.01, 1.0))
    shares_by_zone = shares(capacity, own, traffic)
    assert sum(shares_by_zone.values()) == pytest.approx(1.0)
    assert all(0 <= share <= 1 + 1e-9 for share in shares_by_zone.values())
    assert shares_by_zone.keys() <= capacity.keys()


@given(capacities)
def test_with_gateways_in_every_zone_all_endpoints_have_the_same_load(named: dict[str | None, float]) -> None:
    """Each zone has as much traffic as any other, and the rule distributes it by capacity."""
    arriving: dict[str | None, float] = defaultdict(float)
    for own in named:
        assert own is not None
        for zone, share in shares(named, own, None).items():
            arriving[zone] += share / len(named)
    total = sum(named.values())
    assert arriving == pytest.approx({zone: capacity / total for zone, capacity in named.items()})


@given(capacities, st.floats(0.01, 1.0))
def test_no_request_leaves_a_zone_that_can_take_it(named: dict[str | None, float], traffic: float) -> None:
    total = sum(named.values())
    for own in named:
        assert own is not None
        shares_by_zone = shares(named, own, traffic)
        if named[own] >= total * traffic:
            assert shares_by_zone == {own: 1.0}
        elif len(named) > 1:
            assert shares_by_zone[own] == pytest.approx(named[own] / total / traffic)


def test_the_rule_in_figures() -> None:
    assert shares({"a": 1, "b": 1, "c": 1}, "a", None) == {"a": 1.0}
    # Half of a fell: it takes half of its third, the others share the rest.
    assert shares({"a": 1, "b": 2, "c": 2}, "a", None) == pytest.approx({"a": 0.6, "b": 0.2, "c": 0.2})
    # All requests come in here, so this zone has no more claim to its endpoints than any other.
    assert shares({"a": 1, "b": 3}, "a", 1.0) == pytest.approx({"a": 0.25, "b": 0.75})
    # Endpoints of no zone have no traffic of their own, and take what is left.
    assert shares({"a": 1, None: 1}, "a", 0.8) == pytest.approx({"a": 0.625, None: 0.375})


def pool(**zones: int) -> list[Candidate]:
    return [Candidate(f"{zone}{i}", zone=zone) for zone, count in zones.items() for i in range(count)]


def picks(near: NearFirst, candidates: list[Candidate], count: int = 2000) -> Counter[str | None]:
    rng = Random(1)
    return Counter(near.pick(candidates, ANYONE, ANYONE, 0.0, rng).zone for _ in range(count))


def test_near_endpoints_are_first_and_the_rest_spills_over() -> None:
    near = NearFirst(LeastRequest(), "a", None)
    assert picks(near, pool(a=3, b=3)) == {"a": 2000}
    counts = picks(near, pool(a=1, b=3))  # a has a quarter of the capacity and half of the traffic
    assert abs(counts["a"] - 1000) < 100
    assert picks(near, pool(b=2, c=2)).keys() == {"b", "c"}  # none here: as if there were no zones


def test_the_rest_of_a_zone_is_not_overrun() -> None:
    """Three of four near endpoints are down or full, so they are not candidates."""
    counts = picks(NearFirst(RoundRobin(), "a", None), pool(a=1, b=4))
    assert abs(counts["a"] - 800) < 100  # (1/5) ÷ (1/2)


def test_a_slow_start_counts_as_less_capacity() -> None:
    candidates = pool(a=1, b=1)
    candidates[0].weight = 0.1
    counts = picks(NearFirst(LeastRequest(), "a", None), candidates)
    assert abs(counts["a"] - 2000 * (0.1 / 1.1) / 0.5) < 100


def test_none_to_pick_from_is_an_error() -> None:
    with pytest.raises(ValueError, match="no candidates"):
        NearFirst(LeastRequest(), "a", None).pick([], ANYONE, ANYONE, 0.0, Random(1))


def reporting(candidates: list[Candidate], **running: float) -> None:
    for candidate in candidates:
        assert candidate.zone is not None
        candidate.signal.report(running=running[candidate.zone], waiting=0, cache=0, own=0, half_life=3.0, now=0.0)


def test_a_zone_that_is_much_busier_by_its_reports_is_not_preferred() -> None:
    """All gateways may stand in one zone, without a configured count."""
    near, endpoints = NearFirst(LoadTwoChoices(), "a", None), pool(a=4, b=4)
    reporting(endpoints, a=6, b=4)
    assert picks(near, endpoints) == {"a": 2000}
    reporting(endpoints, a=16, b=4)
    assert picks(near, endpoints)["b"] > 1000
    reporting(endpoints, a=1, b=0)  # a request more is no reason to leave
    assert picks(near, endpoints) == {"a": 2000}


def test_reports_of_one_side_or_old_reports_do_not_count_for_a_zone() -> None:
    near, endpoints = NearFirst(LoadTwoChoices(), "a", None), pool(a=4, b=4)
    reporting(endpoints[:4], a=50)
    assert picks(near, endpoints) == {"a": 2000}
    reporting(endpoints, a=50, b=0)
    assert {near.pick(endpoints, ANYONE, ANYONE, 10.0, Random(seed)).zone for seed in range(50)} == {"a"}


ZONES = ["eu-1a", "eu-1b", "us-1a", None]
NEAR = frozenset({"eu-1a", "eu-1b"})
BALANCE = [
    {"by": by} for by in ("least_request", "round_robin", "random", "peak_ewma", "load", "prefix_affinity")
]  # every picker that a locality is around


def level(zone: str | None) -> int:
    return 0 if zone == "eu-1a" else 1 if zone in NEAR else 2


@given(st.sampled_from(BALANCE), st.lists(st.sampled_from(ZONES), min_size=1, max_size=8), st.integers(0, 99))
def test_a_pick_is_always_in_the_nearest_locality(by: dict[str, str], zones: list[str | None], seed: int) -> None:
    """Also while each candidate in turn is away, and at once when it is back."""
    candidates = [Candidate(str(number), zone=zone) for number, zone in enumerate(zones)]
    made = picker(BalanceConfig.model_validate({**by, "locality": "nearest"}), "eu-1a", NEAR)
    for away in (None, *candidates, None):
        present = [each for each in candidates if each is not away] or candidates
        picked = made.pick(present, ANYONE, ANYONE, 0.0, Random(seed))
        assert level(picked.zone) == min(level(each.zone) for each in present)


def test_no_locality_to_pick_from_is_an_error() -> None:
    with pytest.raises(ValueError, match="candidates"):
        picker(BalanceConfig(locality="nearest"), "eu-1a", NEAR).pick([], ANYONE, ANYONE, 0.0, Random(1))

"""The own zone, then the own region, then the world."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.schema.config import BalanceConfig
from policies.balancing.pickers import picker
from tests.support.candidates import ANYONE, Candidate

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


def test_none_to_pick_from_is_an_error() -> None:
    with pytest.raises(ValueError, match="candidates"):
        picker(BalanceConfig(locality="nearest"), "eu-1a", NEAR).pick([], ANYONE, ANYONE, 0.0, Random(1))

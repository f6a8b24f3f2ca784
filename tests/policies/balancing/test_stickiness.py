from collections import Counter
from math import ceil
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.balancing.stickiness import BoundedHash
from tests.support.candidates import Candidate, PickRequest, candidates

UNBOUNDED = 1e9
KEYS = [PickRequest(key=f"k{i}") for i in range(4000)]


def homes(pool: list[Candidate], bound: float = UNBOUNDED) -> list[Candidate]:
    picker, rng = BoundedHash("key", bound), Random(1)
    return [picker.pick(pool, request, request, 0.0, rng) for request in KEYS]


@given(st.integers(2, 8), st.text(min_size=1), st.integers(0, 2**32))
def test_a_key_has_one_endpoint_in_any_order_and_by_any_chance(count: int, key: str, seed: int) -> None:
    pool, rng = candidates(*[1.0] * count), Random(seed)
    home = BoundedHash("key", UNBOUNDED).pick(pool, PickRequest(key=key), PickRequest(key=key), 0.0, rng)
    rng.shuffle(pool)
    assert BoundedHash("key", UNBOUNDED).pick(pool, PickRequest(key=key), PickRequest(key=key), 9.0, rng) is home


def test_shares_follow_the_weights() -> None:
    pool = candidates(1, 1, 2, 4)
    counts = Counter(homes(pool))
    assert [round(counts[c] / len(KEYS), 1) for c in pool] == [0.1, 0.1, 0.2, 0.5]
    even = Counter(homes(candidates(*[1.0] * 8)))
    assert all(abs(count / len(KEYS) - 1 / 8) < 0.02 for count in even.values())


@given(st.integers(0, 9))
def test_one_that_leaves_moves_its_own_keys_only_and_evenly(gone: int) -> None:
    pool = candidates(*[1.0] * 10)
    before, after = homes(pool), homes([c for i, c in enumerate(pool) if i != gone])
    moved = [new for old, new in zip(before, after, strict=True) if old is not new]
    assert all(old is pool[gone] or old is new for old, new in zip(before, after, strict=True))
    assert len(moved) == sum(old is pool[gone] for old in before)
    assert max(Counter(moved).values()) < 2.5 * len(moved) / 9


def test_one_that_joins_takes_its_share_and_nothing_else_moves() -> None:
    pool = candidates(*[1.0] * 10)
    before, after = homes(pool[:9]), homes(pool)
    assert all(new is old or new is pool[9] for old, new in zip(before, after, strict=True))
    assert abs(sum(new is pool[9] for new in after) / len(KEYS) - 0.1) < 0.02


def test_a_weight_that_rises_takes_keys_and_gives_none() -> None:
    pool = candidates(1, 1, 1)
    pool[2].weight = 0.1
    cold = homes(pool)
    pool[2].weight = 1.0
    warm = homes(pool)
    assert all(new is old or new is pool[2] for old, new in zip(cold, warm, strict=True))
    assert Counter(warm)[pool[2]] > 5 * Counter(cold)[pool[2]] > 0


weights = st.lists(st.sampled_from([0.5, 1.0, 3.0]), min_size=2, max_size=8)


@given(weights, st.floats(1.01, 4.0), st.lists(st.sampled_from("aab"), min_size=1, max_size=120))
def test_no_load_passes_its_bound_however_popular_a_key_is(shares: list[float], bound: float, keys: list[str]) -> None:
    pool, picker, rng = candidates(*shares), BoundedHash("key", bound), Random(1)
    for placed, key in enumerate(keys, 1):
        picked = picker.pick(pool, PickRequest(key=key), PickRequest(key=key), 0.0, rng)
        picked.in_flight += 1
        assert picked.in_flight <= ceil(bound * placed * picked.weight / sum(shares))


def test_an_overflow_follows_the_keys_own_order_and_returns() -> None:
    pool, picker, rng = candidates(1, 1, 1, 1), BoundedHash("key", 1.5), Random(1)
    home = picker.pick(pool, KEYS[0], KEYS[0], 0.0, rng)
    home.in_flight = 8
    second = picker.pick(pool, KEYS[0], KEYS[0], 0.0, rng)
    assert second is not home
    assert second is picker.pick([c for c in pool if c is not home], KEYS[0], KEYS[0], 0.0, rng)
    home.in_flight = 0
    assert picker.pick(pool, KEYS[0], KEYS[0], 0.0, rng) is home


@pytest.mark.parametrize(
    ("key", "one", "other"),
    [
        ("key", PickRequest(key="a"), PickRequest(key="b")),
        ("tenant", PickRequest(tenant="a"), PickRequest(tenant="b")),
        ("user", PickRequest(user="a"), PickRequest(user="b")),
        ("user", PickRequest(user="a", tenant="a"), PickRequest(user="a", tenant="b")),
        ("user", PickRequest(user="\ud800"), PickRequest(user="b")),
        ("header:X-Session", PickRequest(headers={"x-session": "a"}), PickRequest(headers={"x-session": "b"})),
    ],
)
def test_the_field_of_the_key_decides(key: str, one: PickRequest, other: PickRequest) -> None:
    pool, rng, picker = candidates(*[1.0] * 1000), Random(1), BoundedHash(key, UNBOUNDED)
    picked = {picker.pick(pool, one, one, 0.0, rng) for _ in range(5)}
    assert len(picked) == 1
    assert picker.pick(pool, other, other, 0.0, rng) not in picked


@pytest.mark.parametrize("key", ["user", "header:x-session"])
def test_a_request_without_the_key_goes_to_the_least_loaded(key: str) -> None:
    pool, rng, picker = candidates(*[1.0] * 4), Random(1), BoundedHash(key, UNBOUNDED)
    request = PickRequest(user="", headers={"x-session": ""})
    for _ in range(400):
        picker.pick(pool, request, request, 0.0, rng).in_flight += 1
    assert max(c.in_flight for c in pool) - min(c.in_flight for c in pool) <= 4

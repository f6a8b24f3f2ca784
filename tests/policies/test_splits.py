from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from policies.facts import Facts
from policies.splits import LONGEST, Arms, arm_choice, choose, steady_subject, upper_ends

SUBJECTS = [f"user-{i}" for i in range(4000)]
weights = st.integers(0, 100)
shares = st.lists(weights, min_size=2, max_size=4).filter(any)


def assign(arms: Arms, salt: str = "chat#0") -> list[str]:
    return [choose(subject, salt, arms) for subject in SUBJECTS]


def arm_for(sticky: str, request_facts: Facts, salt: str, arms: Arms, rng: Random) -> str:
    return arms[arm_choice(sticky, salt, arms)(request_facts, request_facts, rng)][0]


def arms_of(values: list[int]) -> Arms:
    return tuple((f"arm-{i}", float(weight)) for i, weight in enumerate(values))


@settings(max_examples=40)
@given(shares)
def test_each_arm_gets_its_share(values: list[int]) -> None:
    counts = Counter(assign(arms_of(values)))
    for name, weight in arms_of(values):
        share = weight / sum(values)
        # Five standard deviations of a binomial share, and a little for the skew of small ones.
        tolerance = 5 * (share * (1 - share) / len(SUBJECTS)) ** 0.5 + 0.003 * (share > 0)
        assert abs(counts[name] / len(SUBJECTS) - share) <= tolerance


@settings(max_examples=40)
@given(shares, st.data())
def test_raising_one_weight_moves_subjects_to_that_arm_only(values: list[int], data: st.DataObject) -> None:
    grown = data.draw(st.integers(0, len(values) - 1))
    more = data.draw(st.integers(1, 100))
    before = assign(arms_of(values))
    after = assign(arms_of([w + more * (i == grown) for i, w in enumerate(values)]))
    moved = {new for old, new in zip(before, after, strict=True) if old != new}
    assert moved <= {f"arm-{grown}"}


def test_from_90_10_to_80_20_a_tenth_moves() -> None:
    before = assign((("stable", 90), ("canary", 10)))
    after = assign((("stable", 80), ("canary", 20)))
    moves = Counter((old, new) for old, new in zip(before, after, strict=True) if old != new)
    assert set(moves) == {("stable", "canary")}
    assert abs(moves.total() / len(SUBJECTS) - 0.1) < 0.02


@given(st.text(max_size=5), st.permutations(arms_of([5, 3, 2])).map(tuple), st.sampled_from([0.01, 1.0, 7.0]))
def test_neither_order_nor_scale_of_the_arms_matters(subject: str, arms: Arms, scale: float) -> None:
    scaled = tuple((name, weight * scale) for name, weight in arms)
    assert choose(subject, "s", scaled) == choose(subject, "s", arms_of([5, 3, 2]))


def test_salts_are_independent() -> None:
    arms = (("a", 1.0), ("b", 1.0))
    pairs = Counter(zip(assign(arms, "one"), assign(arms, "two"), strict=True))
    assert len(pairs) == 4
    assert all(abs(count / len(SUBJECTS) - 0.25) < 0.04 for count in pairs.values())


@given(st.text(max_size=5), st.floats(5e-324, 1e308))
@example("\ud800", 1.0)  # a lone surrogate, which JSON allows and strict UTF-8 does not
def test_any_subject_and_any_positive_weight_has_an_arm(subject: str, weight: float) -> None:
    assert choose(subject, "s", (("off", 0.0), ("on", weight))) == "on"


def test_a_split_with_no_weight_is_refused() -> None:
    with pytest.raises(ValueError, match="weight above 0"):
        choose("u", "s", (("a", 0.0),))


def test_an_assignment_is_the_same_in_every_release() -> None:
    """Users in a running experiment must not be reshuffled by an upgrade."""
    arms_chosen = "".join(choose(f"u{i}", "chat#0", (("a", 1.0), ("b", 1.0))) for i in range(16))
    assert arms_chosen == "aabbbaaabbabbbab"


def facts(**changes: Any) -> Facts:
    base = Facts("acme", "key-1", "chat", {"x-session": "s1"}, False, 1, "ann", "req-1")
    return base._replace(**changes)


def subject(sticky: str, request_facts: Facts) -> str:
    return steady_subject(sticky, request_facts, request_facts) or request_facts.tenant


@pytest.mark.parametrize(
    ("sticky", "field", "value"),
    [
        ("user", "user", "bob"),
        ("key", "key", "key-2"),
        ("tenant", "tenant", "other"),
        ("header:X-Session", "headers", {"x-session": "s2"}),
    ],
)
def test_a_subject_depends_on_the_sticky_field_only(sticky: str, field: str, value: object) -> None:
    assert subject(sticky, facts()) != subject(sticky, facts(**{field: value}))
    unrelated: dict[str, Any] = {"model": "m", "stream": True, "prompt_tokens": 9, "request_id": "r"}
    assert subject(sticky, facts()) == subject(sticky, facts(**unrelated))


@pytest.mark.parametrize("sticky", ["user", "key", "header:x-session"])
def test_two_tenants_with_the_same_user_are_two_subjects(sticky: str) -> None:
    assert subject(sticky, facts()) != subject(sticky, facts(tenant="other"))


def test_a_missing_user_or_header_falls_back_to_the_key() -> None:
    by_key = subject("key", facts())
    assert subject("user", facts(user=None)) == by_key
    assert subject("header:x-session", facts(headers={})) == by_key


def test_request_draws_anew_each_time() -> None:
    rng, arms = Random(1), (("off", 0.0), ("a", 3.0), ("b", 1.0))
    counts = Counter(arm_for("request", facts(), "s", arms, rng) for _ in range(4000))
    assert counts.keys() == {"a", "b"}
    assert abs(counts["a"] / 4000 - 0.75) < 0.03


def test_the_requests_of_one_sequence_share_an_arm() -> None:
    rng, arms = Random(1), (("a", 1.0), ("b", 1.0))
    for sequence in ("1", "2", "3"):
        request_facts = facts(sequence=sequence)
        assert len({arm_for("request", request_facts, "s", arms, rng) for _ in range(30)}) == 1


def test_no_random_arm_without_a_weight() -> None:
    with pytest.raises(ValueError, match="weight above 0"):
        upper_ends([0.0])


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=5).filter(lambda values: sum(values) > 0.01), st.integers())
def test_a_point_falls_into_the_part_of_one_arm(values: list[float], seed: int) -> None:
    """The parts of arms lie side by side in the order of the file. A part begins where the ones before end."""
    point, arms = Random(seed).random(), tuple((f"arm-{i}", value) for i, value in enumerate(values))
    chosen = arm_for("request", facts(), "s", arms, Random(seed))
    before, weight = sum(values[: (i := int(chosen[4:]))]) / sum(values), values[i] / sum(values)
    assert weight > 0
    assert before - 1e-9 <= point <= before + weight + 1e-9


@given(st.text(max_size=2 * LONGEST))
def test_a_cached_arm_equals_the_drawn_arm(user: str) -> None:
    arms = (("a", 1.0), ("b", 1.0))
    facts_of_user = facts(user=user)
    expected = choose(subject("user", facts_of_user), "s", arms)
    choice = arm_choice("user", "s", arms)
    arms_of_user = [arms[choice(facts_of_user, facts_of_user, Random(1))][0] for _ in range(2)]
    assert arms_of_user == [expected, expected]


def test_other_weights_and_other_splits_are_cached_separately() -> None:
    facts_of_user = facts()
    assert arm_for("key", facts_of_user, "s", (("a", 1.0), ("b", 0.0)), Random(1)) == "a"
    assert arm_for("key", facts_of_user, "s", (("a", 0.0), ("b", 1.0)), Random(1)) == "b"
    places = {arm_for("key", facts_of_user, f"split-{i}", (("a", 1.0), ("b", 1.0)), Random(1)) for i in range(20)}
    assert places == {"a", "b"}

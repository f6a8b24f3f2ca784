from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from policies.pipelines import combine, votes
from policies.pipelines.combine import CombineError, MemberTensor

weights = st.sampled_from([1, 2, 3])
floats = st.sampled_from([np.float16, np.float32, np.float64])


def parts(*values: Any, weights: tuple[float, ...] = ()) -> list[MemberTensor]:
    exact = [votes.units(weight) for weight in weights or (1,) * len(values)]
    return [MemberTensor(f"m{i}", np.asarray(v), exact[i], i) for i, v in enumerate(values)]


@given(st.data(), floats, st.lists(weights, min_size=1, max_size=4))
def test_a_weighted_mean_is_numpys_average(data: st.DataObject, dtype: Any, each: list[int]) -> None:
    values = arrays.arrays(dtype, (2, 3), elements=st.integers(-8, 8).map(float))
    made = [data.draw(values) for _ in each]
    result = combine.weighted_mean(parts(*made, weights=tuple(map(float, each))))
    assert result.dtype == dtype
    np.testing.assert_allclose(
        result, np.average(np.stack(made).astype(float), axis=0, weights=each), rtol=2e-3, atol=1e-2
    )


@given(st.lists(st.tuples(weights, st.booleans(), st.lists(st.integers(0, 2), min_size=3, max_size=3)), max_size=5))
def test_each_row_of_a_vote_follows_the_rules_of_labels(listed: list[tuple[int, bool, list[int]]]) -> None:
    present = [
        MemberTensor(f"m{i}", np.array(labels), weight, i) for i, (weight, here, labels) in enumerate(listed) if here
    ]
    missing = [votes.Voter(weight, i) for i, (weight, here, _) in enumerate(listed) if not here]
    if not present:
        assert combine.decided(present, missing) is None
        return
    rows = [[votes.Ballot(int(p.value[row]), p.weight, p.order) for p in present] for row in range(3)]
    assert combine.vote(present).tolist() == [votes.winner(row) for row in rows]
    certain = [votes.decided(row, missing) for row in rows]
    result = combine.decided(present, missing)
    assert (None if result is None else result.tolist()) == (None if None in certain else certain)


def test_scores_vote_with_their_largest_class() -> None:
    scores = parts(np.array([[0.1, 0.9], [0.6, 0.4]]), np.array([[0.8, 0.2], [0.7, 0.3]]), np.array([1, 1]))
    assert combine.vote(scores).tolist() == [1, 0]


def test_a_mean_is_renormalised_over_the_present() -> None:
    all_three = parts([2.0], [4.0], [9.0], weights=(1, 1, 2))
    assert combine.weighted_mean(all_three[:2]).tolist() == [3.0]
    assert combine.weighted_mean(all_three[1:]).tolist() == [pytest.approx(22 / 3)]
    assert combine.mean(all_three).tolist() == [5.0]


def test_parts_are_joined_in_the_configurations_order() -> None:
    late, early = MemberTensor("b", np.array([[3]]), 1, 1), MemberTensor("a", np.array([[1], [2]]), 1, 0)
    assert combine.concat([late, early]).tolist() == [[1], [2], [3]]
    words = parts(np.array([b"x"], object), np.array([b"y"], object))
    assert combine.concat(words, -1).tolist() == [b"x", b"y"]


@pytest.mark.parametrize(
    ("call", "values", "message"),
    [
        ("mean", ([1], [2]), "m0: a mean requires floats"),
        ("mean", ([True], [False]), "m0: a mean requires floats"),
        ("mean", ([1.0], [1.0, 2.0]), "m1: shape [2], m0 has [1]"),
        ("mean", (np.ones(1, np.float32), np.ones(1)), "m1: datatype float64, m0 has float32"),
        ("mean", ([1.0], [float("nan")]), "m1: the tensor has elements that are not numbers"),
        ("mean", ([float("inf")], [-float("inf")]), "infinities of both signs"),
        ("mean", (), "nothing to combine"),
        ("concat", ([[1]], [[1, 2, 3]]), "differ beyond axis 0"),
        ("concat", ([1], [[1]]), "differ beyond axis 0"),
        ("concat", (1, 2), "has no axis 0"),
        ("concat", ([1], [1.0]), "m1: datatype"),
        ("concat", (), "nothing to combine"),
        ("vote", ([[float("nan"), 1.0]],), "m0: the tensor has elements that are not numbers"),
        ("vote", (np.zeros((2, 0)),), "the scores have no classes"),
        ("vote", ([1], [1, 2]), "m1: votes of shape [2]"),
        ("vote", ([True],), "a vote requires scores or integer labels"),
        ("vote", (np.zeros(300_000, int),) * 4, "is too large"),
        ("vote", (), "nothing to combine"),
    ],
)
def test_parts_that_do_not_fit_name_the_member(call: str, values: tuple[Any, ...], message: str) -> None:
    with pytest.raises(CombineError) as caught:
        getattr(combine, call)(parts(*values))
    assert message in caught.value.message
    assert caught.value.member in ("", "m0", "m1")
    assert not caught.value.member or caught.value.message.startswith(caught.value.member)

from math import inf, isnan, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.pipelines import rerank
from policies.pipelines.rerank import RerankError, cosine, top

scores = st.lists(st.sampled_from([nan, inf, -inf, 0.0, 1.0, 2.0]), max_size=12)


@given(scores, st.integers(0, 12))
def test_the_top_is_sorted_stable_and_without_nan(values: list[float], count: int) -> None:
    valid = [index for index, score in enumerate(values) if not isnan(score)]
    if values and not valid:
        with pytest.raises(RerankError, match="every score is NaN"):
            top(values, count)
        return
    expected = sorted(valid, key=lambda index: (-values[index], index))[:count]
    assert [each.place for each in top(values, count)] == expected
    assert top(np.array(values), count) == top(values, count)


vectors = st.lists(st.lists(st.floats(-1e3, 1e3, width=32), min_size=3, max_size=3), min_size=1, max_size=5)


@given(vectors, st.sampled_from([np.float32, np.float64]))
def test_the_cosine_is_that_of_the_definition(rows: list[list[float]], dtype: Any) -> None:
    matrix = np.array(rows, dtype)
    result = cosine(matrix[0], matrix)
    for each, row in zip(result, matrix.astype(float), strict=True):
        query = matrix[0].astype(float)
        lengths = np.linalg.norm(query) * np.linalg.norm(row)
        assert each == pytest.approx(0 if lengths == 0 else query @ row / lengths, abs=1e-6) or lengths < 1e-30


def test_lengths_do_not_overflow_and_nan_stays_with_its_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rerank, "_ROWS", 2)
    matrix = np.array([[1e300, 1e300], [nan, 1], [inf, 1], [0, 0], [1, 1]])
    result = cosine(np.array([[1e-300, 1e-300]]), matrix)
    assert result[[0, 3, 4]] == pytest.approx([1, 0, 1])
    assert np.isnan(result[[1, 2]]).all()
    assert [each.place for each in top(result, 2)] == [0, 4]


@pytest.mark.parametrize(
    ("query", "candidates"),
    [
        (np.zeros(3), np.zeros((2, 4))),
        (np.zeros(3), np.zeros(3)),
        (np.zeros((2, 3)), np.zeros((2, 3))),
        (np.zeros(0), np.zeros((2, 0))),
        (np.array([b"a"], object), np.zeros((1, 1))),
    ],
)
def test_other_shapes_and_kinds_are_refused(query: Any, candidates: Any) -> None:
    with pytest.raises(RerankError):
        cosine(query, candidates)


def test_no_candidates() -> None:
    assert cosine(np.ones(3), np.zeros((0, 3))).shape == (0,)
    assert top([], 3) == []

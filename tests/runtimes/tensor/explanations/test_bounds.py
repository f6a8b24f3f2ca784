"""Explanations of requests that are too large, or that no parts exist for: refused before they cost anything."""

import asyncio

import numpy as np
import pytest

from adapters.errors import CallerError
from tests.runtimes.tensor.explaining import Summing, request, summing


def far() -> float:
    return asyncio.get_running_loop().time() + 300


async def test_a_model_of_one_feature_is_exact_and_has_a_budget_too() -> None:
    explainer = summing(scheduler := Summing(99), width=1, budget=100)
    got = await explainer.explain(request(np.ones((100, 1))), far())
    assert (got.method, got.model_rows) == ("exact", 100)
    np.testing.assert_array_equal(got.values, np.ones((100, 1, 1)))
    calls = scheduler.calls
    with pytest.raises(CallerError, match="101 rows needs at least 101 rows of the model, and the budget is 100"):
        await explainer.explain(request(np.ones((101, 1))), far())
    assert scheduler.calls == calls

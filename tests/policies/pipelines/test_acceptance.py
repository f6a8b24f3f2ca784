from math import inf, isnan, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.expressions import Variables, compile_expression
from config.schema.pipelines.outputs import GENERATED
from policies.pipelines.acceptance import (
    FINISH_REASONS,
    QUANTILES,
    GeneratedAnswer,
    is_refusal,
    logprob_values,
    values_of,
)

logprobs = st.lists(st.floats(-50, 0), min_size=1, max_size=40)


@given(logprobs)
def test_quantiles_are_numpys(values: list[float]) -> None:
    read = logprob_values(values)
    assert read["min"] == min(values)
    assert read["mean"] == pytest.approx(np.mean(values))
    for percent in QUANTILES:
        assert read[f"p{percent:02}"] == pytest.approx(np.quantile(values, percent / 100))


def test_infinite_positive_and_undefined_logprobs() -> None:
    assert logprob_values([-inf, -inf, -1.0])["p10"] == -inf
    assert logprob_values([1e-7])["p50"] == 0.0
    assert all(isnan(value) for value in logprob_values([-1.0, nan]).values())


@given(
    st.builds(
        GeneratedAnswer,
        st.text(max_size=300),
        st.none() | st.sampled_from(FINISH_REASONS),
        st.none() | st.text(max_size=3),
        st.lists(st.floats(), max_size=5),
        st.none() | st.integers(0, 9),
        st.integers(0, 3),
    )
)
def test_every_value_is_a_declared_variable(answer: GeneratedAnswer) -> None:
    for path, value in values_of(answer).items():
        expression = compile_expression(".".join(path), Variables(GENERATED.declared))
        result = expression.evaluate({path: value})
        assert result == value or (isnan(result) and isnan(value))


@pytest.mark.parametrize(
    ("text", "refuses"),
    [
        ("I'm sorry, but I can't help with that.", True),
        ("I\u2019m sorry, but I can\u2019t assist with that request.", True),
        ("Sorry, I cannot provide medical advice.", True),
        ("As an AI language model, I cannot answer that.", True),
        ("I am unable to comply with this request", True),
        ("Unfortunately, I'm not able to share that.", True),
        ("I must decline.", True),
        ("I don't feel comfortable writing that.", True),
        ("  I\n cannot   help you here", True),
        ("I can help you with that.", False),
        ("The sign says: I'm sorry, but I can't help with that.", False),
        ("I cannot overstate how good this is.", False),
        ("Sorry for the delay. The answer is 4.", False),
        ("", False),
    ],
)
def test_the_phrase_rule_of_refusals(text: str, refuses: bool) -> None:
    assert is_refusal(GeneratedAnswer(text)) is refuses


def test_a_refusal_field_and_a_filter_are_refusals() -> None:
    assert is_refusal(GeneratedAnswer("", refusal="No."))
    assert is_refusal(GeneratedAnswer("Hello", finish="content_filter"))

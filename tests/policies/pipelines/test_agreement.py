import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.pipelines.agreement import Agreement, Comparison, agreement, last_number, normalised

HOW: tuple[Comparison, ...] = ("text", "number", "edit")


@given(st.lists(st.text(max_size=20), min_size=1, max_size=6), st.sampled_from(HOW), st.randoms(use_true_random=False))
def test_agreement_does_not_depend_on_the_order(answers: list[str], how: Comparison, rng: object) -> None:
    result = agreement(answers, how)
    assert 0 <= result.share <= 1
    shuffled = list(answers)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert agreement(shuffled, how).share == pytest.approx(result.share)


@given(st.text(min_size=1, max_size=40), st.integers(1, 5))
def test_equal_answers_agree(text: str, count: int) -> None:
    assert agreement([text] * count, "text") == Agreement(1.0, 0)
    assert agreement([text] * count, "edit") == Agreement(1.0, 0)


def test_groups_of_texts_and_numbers() -> None:
    assert agreement(["Paris.", "Lyon", " paris"], "text") == Agreement(2 / 3, 0)
    assert agreement(["6 × 7 = 42.", "41", "It is 42"], "number") == Agreement(2 / 3, 0)
    assert agreement(["none", "nothing"], "number") == Agreement(0.5, 0)
    assert agreement(["abcd", "abcx", "zzzz"], "edit") == Agreement(pytest.approx(0.375), 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "number"),
    [("1,234.50 usd", 1234.5), ("from 3 to -7", -7), ("\u22125", -5), ("-0", 0), ("no", None), ("v1.2.3", 3)],
)
def test_the_last_number(text: str, number: float | None) -> None:
    assert last_number(text) == number


def test_normalisation() -> None:
    assert normalised("  \u201cThe ANSWER\u201d,\n is\u00a042! ") == "the answer is 42"
    assert normalised("...") == "..."


@pytest.mark.parametrize("how", HOW)
def test_huge_answers_take_bounded_work(how: Comparison) -> None:
    huge = ["1,234" * 400_000, "9" * 2_000_000, "!" * 2_000_000, "a" * 2_000_000]
    assert 0 <= agreement(huge, how).share <= 1


def test_no_answer_is_an_error() -> None:
    with pytest.raises(ValueError, match="no answer"):
        agreement([], "text")

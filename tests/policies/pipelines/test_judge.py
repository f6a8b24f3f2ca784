from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.pipelines.judge import BestOf, Verdict, judge_prompt, of_both_orders, parse_verdict

VERDICTS: tuple[Verdict | None, ...] = ("first", "second", "tie", None)
verdicts = st.sampled_from(VERDICTS)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("[[A]]", "first"),
        ("Answer [[A]] looks good, but overall: [[B]]", "second"),
        ("They are equal. [[C]]", "tie"),
        ("B", "second"),
        ("**A**.", "first"),
        ("Both are fine.\n\nTie", "tie"),
        ('{"winner": "B", "reason": "shorter"}', "second"),
        ('```json\n{"verdict": "a"}\n```', "first"),
        ('{"winner": "neither"}', None),
        ("The better answer is clear. Verdict: A", "first"),
        ("I think the winner is B because it is right.", "second"),
        ("A is a letter, and so is B", None),
        ("I cannot decide", None),
        ("", None),
        ("{" * 3000, None),
    ],
)
def test_verdicts(text: str, verdict: Verdict | None) -> None:
    assert parse_verdict(text) == verdict


@given(st.text(max_size=200))
def test_any_text_is_read(text: str) -> None:
    assert parse_verdict(text) in VERDICTS


@pytest.mark.parametrize("text", ["verdict" + " " * 200_000, "[[" * 100_000, "answer is " * 20_000, "(" * 200_000])
def test_hostile_texts_take_bounded_work(text: str) -> None:
    assert parse_verdict(text) is None


def test_both_orders_agree_or_tie() -> None:
    for forward, backward in product(VERDICTS, VERDICTS):
        verdict = of_both_orders(forward, backward)
        again = of_both_orders(backward, forward)
        swapped = {"first": "second", "second": "first", "tie": "tie", None: None}
        assert again == swapped[verdict]  # the answers have no place of their own
    assert of_both_orders("first", "second") == "first"
    assert of_both_orders("first", "first") == "tie"
    assert of_both_orders(None, "first") == "second"
    assert of_both_orders(None, None) is None


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_the_best_candidate_wins_and_ties_go_to_the_first(quality: list[int]) -> None:
    contest = BestOf(range(len(quality)))
    comparisons = 0
    while (pair := contest.pair) is not None:
        first, second = quality[pair.first], quality[pair.second]
        contest.record("first" if first > second else "second" if second > first else "tie")
        comparisons += 1
    assert contest.best == quality.index(max(quality))
    assert comparisons == len(quality) - 1
    assert contest.judged is (len(quality) > 1)


@given(st.lists(verdicts, max_size=6))
def test_a_contest_without_verdicts_is_not_judged(given_verdicts: list[Verdict | None]) -> None:
    contest = BestOf(range(len(given_verdicts) + 1))
    for verdict in given_verdicts:
        contest.record(verdict)
    assert contest.pair is None
    assert contest.judged is any(verdict is not None for verdict in given_verdicts)
    with pytest.raises(ValueError, match="no candidate"):
        BestOf([])


def test_no_text_is_a_part_of_the_prompts_template() -> None:
    prompt = judge_prompt("{{ a }}", "{{ b }}", "second")
    assert "<question>\n{{ a }}\n</question>\n<answer_a>\n{{ b }}\n</answer_a>\n<answer_b>\nsecond\n" in prompt

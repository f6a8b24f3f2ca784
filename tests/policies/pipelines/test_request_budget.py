"""The budget of one request: no admitted call exceeds it, in any order of calls and their ends."""

from hypothesis import given
from hypothesis import strategies as st

from policies.pipelines.request_budget import RequestBudget, Use

uses = st.builds(Use, st.integers(0, 50), st.integers(0, 50))


@given(
    st.one_of(st.none(), st.integers(1, 100)),
    st.one_of(st.none(), st.integers(1, 100)),
    st.lists(st.tuples(uses, st.booleans(), st.floats(0, 1)), max_size=40),
)
def test_calls_within_their_estimates_never_exceed_the_budget(
    tokens: int | None, picos: int | None, calls: list[tuple[Use, bool, float]]
) -> None:
    budget, under_way, total = RequestBudget("p", tokens, picos), list[Use](), Use()
    for estimate, ends, share in calls:
        if not budget.exceeded(estimate):
            budget.reserve(estimate)
            under_way.append(estimate)
        if ends and under_way:
            ended = under_way.pop(0)
            truth = Use(int(ended.tokens * share), int(ended.picos * share))
            budget.settle(ended, truth)
            total += truth
        assert tokens is None or budget.used.tokens + budget.reserved.tokens <= tokens
        assert picos is None or budget.used.picos + budget.reserved.picos <= picos
    for ended in under_way:
        budget.settle(ended, ended)
        total += ended
    assert (budget.reserved, budget.used) == (Use(), total)


def test_a_call_that_used_more_leaves_less() -> None:
    budget = RequestBudget("p", 10, None)
    budget.reserve(Use(4, 9))
    budget.settle(Use(4, 9), Use(9, 9))
    assert budget.exceeded(Use(2, 0))
    assert not budget.exceeded(Use(1, 10**9))
    assert not budget.exceeded(Use(0, 0))  # a call without tokens is not refused for tokens

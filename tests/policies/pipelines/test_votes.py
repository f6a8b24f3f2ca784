from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.pipelines.votes import Ballot, Voter, decided, first_voter, quorum, units, winner

weights = st.sampled_from([1, 2, 3])
members = st.lists(st.tuples(st.sampled_from("abc"), weights, st.booleans()), min_size=1, max_size=5)


def split(listed: list[tuple[str, int, bool]]) -> tuple[list[Ballot[str]], list[Voter]]:
    ballots = [Ballot(label, weight, order) for order, (label, weight, present) in enumerate(listed) if present]
    missing = [Voter(weight, order) for order, (_, weight, present) in enumerate(listed) if not present]
    return ballots, missing


@given(members)
def test_a_vote_is_decided_exactly_when_no_completion_changes_the_winner(listed: list[tuple[str, int, bool]]) -> None:
    ballots, missing = split(listed)
    winners = set()
    for labels in product(["a", "b", "c", "new", None], repeat=len(missing)):
        later = [Ballot(label, v.weight, v.order) for label, v in zip(labels, missing, strict=True) if label]
        if ballots or later:
            winners.add(winner([*ballots, *later]))
    certain = decided(ballots, missing)
    if ballots and len(winners) == 1:
        assert certain == winners.pop()
    else:
        assert certain is None


@given(members, st.randoms(use_true_random=False))
def test_the_winner_does_not_depend_on_the_order_of_arrival(listed: list[tuple[str, int, bool]], rng: object) -> None:
    ballots, _ = split([(label, weight, True) for label, weight, _ in listed])
    shuffled = list(ballots)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert winner(shuffled) == winner(ballots)


def test_ties_go_to_the_heaviest_voter_then_to_the_first() -> None:
    assert winner([Ballot("a", 1, 0), Ballot("a", 1, 1), Ballot("b", 2, 2)]) == "b"
    assert winner([Ballot("b", 1, 1), Ballot("a", 1, 0)]) == "a"
    assert first_voter([Ballot("b", 1, 3), Ballot("b", 1, 1)], "b") == 1


def test_weights_are_exact() -> None:
    thirds = [Ballot("a", units(0.1), 0), Ballot("a", units(0.2), 1), Ballot("b", units(0.3), 2)]
    assert winner(thirds) == "b"  # 0.1 + 0.2 == 0.3: a tie, for the heaviest voter
    for weight in (0.0, -1.0, float("nan"), float("inf"), 1001.0, 1e-9):
        with pytest.raises(ValueError, match="a weight is between"):
            units(weight)


def test_a_quorum_is_met_open_or_lost() -> None:
    assert [quorum(2, 1, 2), quorum(1, 1, 2), quorum(1, 0, 2)] == ["met", "open", "lost"]

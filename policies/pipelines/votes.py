"""Votes of the members of an ensemble, and the number of members that an answer requires.

The label with the largest total weight wins. Of labels with equal totals, the one with the heaviest single voter wins;
after that, the one whose first voter stands first in the configuration. Weights are exact: millionths, as integers.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

Label = TypeVar("Label", bound=Hashable)
UNIT = 1_000_000
"""Units of a weight of 1."""
MAX_WEIGHT = 1000.0


def units(weight: float) -> int:
    """A weight in units. Raises ValueError unless it is between one millionth and `MAX_WEIGHT`."""
    exact = round(weight * UNIT) if 0 < weight <= MAX_WEIGHT else 0
    if exact < 1:
        raise ValueError(f"a weight is between 0.000001 and {MAX_WEIGHT:g}, not {weight}")
    return exact


@dataclass(frozen=True, slots=True)
class Ballot(Generic[Label]):
    """The vote of one member. `order` is the member's place in the configuration, `weight` is in units."""

    label: Label
    weight: int
    order: int


@dataclass(frozen=True, slots=True)
class Voter:
    """A member that has not voted yet."""

    weight: int
    order: int


@dataclass(frozen=True, slots=True, order=True)
class Support:
    """The support of one label. The greater one wins."""

    total: int
    heaviest: int
    precedence: int
    """The place of the first voter, negated."""

    def plus(self, voters: Iterable[Voter]) -> "Support":
        """The support after votes of these members."""
        support = self
        for voter in voters:
            heaviest, precedence = max(support.heaviest, voter.weight), max(support.precedence, -voter.order)
            support = Support(support.total + voter.weight, heaviest, precedence)
        return support


def winner(ballots: Sequence[Ballot[Label]]) -> Label:
    """The winning label. Raises ValueError without a ballot."""
    supports = _supports(ballots)
    return max(supports, key=supports.__getitem__)


def first_voter(ballots: Sequence[Ballot[Label]], label: Label) -> int:
    """The place of the first member that voted for a label: its answer represents the others'."""
    return min(ballot.order for ballot in ballots if ballot.label == label)


def decided(ballots: Sequence[Ballot[Label]], missing: Sequence[Voter]) -> Label | None:
    """The label that wins with every possible vote of the missing members; None if they may change the winner.

    A missing member may vote for any label, or fail and not vote. All of them voting for one rival is the best that can
    happen to a rival, because each vote increases every part of its `Support`.
    """
    supports = _supports(ballots)
    if not supports:
        return None
    leader = max(supports, key=supports.__getitem__)
    rivals = [support.plus(missing) for label, support in supports.items() if label != leader]
    if missing:
        first, *others = missing
        rivals.append(Support(first.weight, first.weight, -first.order).plus(others))
    return leader if all(supports[leader] > rival for rival in rivals) else None


def _supports(ballots: Sequence[Ballot[Label]]) -> dict[Label, Support]:
    supports: dict[Label, Support] = {}
    for ballot in ballots:
        voter, support = Voter(ballot.weight, ballot.order), supports.get(ballot.label)
        alone = Support(ballot.weight, ballot.weight, -ballot.order)
        supports[ballot.label] = alone if support is None else support.plus((voter,))
    return supports


Quorum = Literal["met", "open", "lost"]


def quorum(present: int, pending: int, need: int) -> Quorum:
    """Whether the present answers suffice, whether pending ones can still suffice, or whether they cannot."""
    if present >= need:
        return "met"
    return "open" if present + pending >= need else "lost"

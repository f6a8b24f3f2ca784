"""How values are estimated: which coalitions are asked for, in rounds, and what their outputs make of the features."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from runtimes.tensor.explanations.sampling import Floats, Masks


class ValueEstimate(Protocol):
    """The values of the rows of one request."""

    method: str
    """Its name in the answer."""

    @property
    def is_enough(self) -> bool:
        """Whether the rounds so far make an answer, so that the deadline may end it."""
        ...

    def round(self) -> Masks | None:
        """The coalitions to ask for next, as many for each row, one row after another. None at the end."""
        ...

    def add(self, means: Floats, base: Floats, full: Floats) -> None:
        """Take the outputs of the last round: [rows, coalitions, targets]; `base` and `full`: [rows, targets]."""
        ...

    def values(self, base: Floats, full: Floats) -> Floats:
        """The values: [rows, targets, features]."""
        ...


class ValueMethod(NamedTuple):
    """A way of estimating."""

    name: str
    least: Callable[[int], int]
    """The coalitions of a row without which there is no answer, for a number of features."""
    begin: Callable[[int, int, int, int], ValueEstimate]
    """The estimate for rows, features, the most coalitions of a row, and a seed."""
    most_features: int
    is_additive: bool = True
    """Whether base and values add up to the output: if not, the error is in the answer."""

"""What a request's features are, and the rows of the model for coalitions of them: a game, in the words of Shapley."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.explanations import sampling
from runtimes.tensor.explanations.explanation import Attributions
from runtimes.tensor.explanations.sampling import Masks, Mixer
from runtimes.tensor.interfaces import Array, ModelLoadError, Tensors


class Mixing(Protocol):
    """Makes the rows of coalitions."""

    @property
    def count(self) -> int:
        """The rows of one coalition."""
        ...

    def mixed(self, rows: Tensors, of: npt.NDArray[np.int64], masks: Masks, begin: int, end: int) -> dict[str, Array]:
        """See `sampling.Mixer`."""
        ...


@dataclass(frozen=True, slots=True)
class Game:
    """Rows that are explained together, because they have the same features."""

    rows: Tensors
    count: int
    features: int
    mixer: Mixing
    has_own_bases: bool
    """Whether each row has a base of its own, which is computed for it alone."""
    width: int
    """The values of a row in the answer, for one number of the output."""

    @property
    def alone(self) -> int:
        """The rows of the model without any coalition: the rows themselves, and their own bases."""
        return self.count * (1 + self.mixer.count if self.has_own_bases else 1)

    @property
    def each(self) -> int:
        """The rows of the model for one coalition of each row."""
        return self.count * self.mixer.count


class Games(Protocol):
    """The features of a model."""

    features: int
    """The features of a row; 0 if rows differ."""

    def of(self, rows: Tensors) -> Sequence[Game]:
        """The games of a request. Raises `CallerError`."""
        ...

    def finished(self, games: Sequence[Game], made: Sequence[Attributions]) -> Attributions:
        """The answer of the values of all games."""
        ...


class Tables:
    """Each element of each input is a feature; or each patch of the only one, whose elements share its value."""

    def __init__(self, config: ModelConfig, background: Tensors) -> None:
        """`background` has the rows of all inputs that are not optional. Raises `ModelLoadError`."""
        assert config.explain is not None
        shapes = [(name, rows.shape[1:]) for name, rows in background.items()]
        places, self._width = sampling.places_of(shapes)
        if patch := config.explain.patch:
            if len(shapes) != 1 or len(shapes[0][1]) != len(patch):
                raise ModelLoadError(f"`patch` has {len(patch)} lengths: it needs one input of as many dimensions")
            places = {shapes[0][0]: sampling.patches(shapes[0][1], patch)}
        self._places = np.concatenate(list(places.values()))
        self._sizes = np.bincount(self._places)
        self.features = len(self._sizes)
        self.mixer = Mixer(background, places)

    def of(self, rows: Tensors) -> Sequence[Game]:
        """See `Games`. Optional inputs have no background, so each row's base has the row's values."""
        has_own_bases = any(name not in self.mixer.background for name in rows)
        return [Game(rows, len(next(iter(rows.values()))), self.features, self.mixer, has_own_bases, self._width)]

    def finished(self, games: Sequence[Game], made: Sequence[Attributions]) -> Attributions:
        """See `Games`."""
        (whole,) = made
        if self.features < self._width:
            whole.values = (whole.values / self._sizes)[:, :, self._places]
        return whole

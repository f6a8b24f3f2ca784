"""The shape of scores that distances between tokens take part in."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Disentangled:
    """Scores of tokens with distances, of which there are 2 × `span` classes, in both directions.

    `keys` are vectors of distances that queries are compared with, `queries` those that keys are. `shared` matrices
    make them, those of tokens. `logarithmic` classes reach to the distance `farthest`. Vectors may have a norm.
    """

    span: int
    farthest: int
    logarithmic: bool
    keys: bool
    queries: bool
    shared: bool
    normed: bool

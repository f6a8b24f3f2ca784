"""DeBERTa's attention (He et al. 2021, https://arxiv.org/abs/2006.03654 and https://arxiv.org/abs/2111.09543).

A score is that of two tokens, and of each with the distance to the other. Shapes: C texts of n tokens, H heads of D
numbers; there are 2 × span classes of distances.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from runtimes.llm.model.encoders.distances import Disentangled


@dataclass(frozen=True, slots=True)
class DistanceVectors:
    """A layer's vectors of distances, as keys for its queries and as queries for its keys, each [H, 2 × span, D]."""

    keys: Tensor | None
    queries: Tensor | None

    def bias(self, query: Tensor, key: Tensor, classes: Tensor, scale: float) -> Tensor:
        """What the distances add to scores: two [C, H, n, D], and the classes [n, n] of pairs → [C, H, n, n]."""
        places = classes.expand(*query.shape[:2], -1, -1)
        added = torch.zeros((), dtype=query.dtype, device=query.device)
        if self.keys is not None:
            added = added + (query @ self.keys.transpose(-1, -2)).gather(-1, places)
        if self.queries is not None:
            # The distance from a key to a query has the class of the opposite one.
            added = added + (key @ self.queries.transpose(-1, -2)).gather(-1, places.transpose(-1, -2)).transpose(
                -1, -2
            )
        return added * scale


def distance_classes(length: int, shape: Disentangled, device: torch.device) -> Tensor:
    """The class of the distance from each token to each other one in a text of `length`: [n, n]."""
    places = torch.arange(length, device=device)
    apart = places[:, None] - places
    if shape.logarithmic:
        apart = _buckets(apart, shape.span, shape.farthest)
    return (apart + shape.span).clamp(0, 2 * shape.span - 1)


def _buckets(apart: Tensor, span: int, farthest: int) -> Tensor:
    """Distances up to half of the `span` are their own class, and farther ones share more and more of one."""
    middle = span // 2
    far = apart.abs().clamp(min=middle)
    steps = torch.log(far / middle) / torch.log(torch.tensor((farthest - 1) / middle)) * (middle - 1)
    shared = (torch.ceil(steps) + middle) * apart.sign()
    return torch.where(apart.abs() <= middle, apart, shared.long())


def scale_of(shape: Disentangled, head_dim: int) -> float:
    """The factor of all scores."""
    return 1 / math.sqrt(head_dim * (1 + shape.keys + shape.queries))

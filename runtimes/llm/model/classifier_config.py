"""The shape of a classifier's head, and what its logits become."""

from dataclasses import dataclass
from typing import Literal

from runtimes.llm.sequence import Pooling

Function = Literal["identity", "sigmoid", "softmax"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadLayout:
    """Where the files have a head: a matrix with an activation and a norm, or neither, and the matrix of its labels."""

    out: str
    dense: str | None = None
    activation: str = "tanh"
    norm: str | None = None
    biased: bool = True
    dense_biased: bool = True
    norm_biased: bool = True
    norm_eps: float = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifierConfig:
    """`score` turns the logit of a model with one label into a relevance, `classify` all logits into probabilities.

    With `yes_no` the model answers a question about a document, and its head has the rows of both words.
    """

    labels: tuple[str, ...]
    pooling: Pooling
    layout: HeadLayout
    score: Function
    classify: Function
    max_length: int | None = None
    """Tokens of the longest pair that the model was made for."""
    yes_no: bool = False

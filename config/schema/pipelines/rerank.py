"""The node `rerank`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from pydantic import Field as Bounds
from pydantic import model_validator

from config.schema.pipelines.leaf import LeafConfig, Place
from config.schema.pipelines.parts import Field
from config.schema.text import Name


class RerankConfig(LeafConfig):
    """Orders candidates by a model, and selects the best. Its inputs are ``query`` and ``candidates``."""

    embed: Name | None = None
    """Model of embeddings. The score is the cosine of a candidate's vector and the query's."""
    score: Name | None = None
    """Model of tensors that scores rows of a query and a candidate, such as a cross-encoder with its tokenizer."""
    by: Field | None = None
    """With ``score``: the output with one score for each row; its only output when absent."""
    query: Field = "query"
    """With ``score``: input of the model for the query, repeated for each candidate."""
    candidate: Field = "candidate"
    """With ``score``: input of the model for the candidates."""
    top: int = Bounds(ge=1, le=1024)
    """Candidates that are selected."""

    @model_validator(mode="after")
    def _one_model(self) -> Self:
        if (self.embed is None) == (self.score is None):
            raise ValueError("give either `embed` or `score`: the model that orders the candidates")
        given = self.model_fields_set & {"by", "query", "candidate"}
        if self.score is None and given:
            raise ValueError(f"`{min(given)}` belongs to `score`")
        return self

    def fixed_inputs(self) -> frozenset[str]:
        return frozenset(("query", "candidates"))

    def placed_models(self) -> Iterator[tuple[Place, str]]:
        if self.embed is not None:
            yield ("embed",), self.embed
        if self.score is not None:
            yield ("score",), self.score

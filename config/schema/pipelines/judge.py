"""The node `judge`, and the drafts that it compares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field as Bounds
from pydantic import field_validator, model_validator

from config.schema.pipelines.leaf import LeafConfig, Place
from config.schema.pipelines.template import TemplateText
from config.schema.text import Name

MAX_DRAFTS = 16


class DraftsConfig(LeafConfig):
    """Several drafts of one answer."""

    of: tuple[Name, ...] = Bounds(min_length=1, max_length=MAX_DRAFTS)
    """Models of chats that write the drafts. A name alone is short for a list of one."""
    n: int = Bounds(1, ge=1, le=MAX_DRAFTS)
    """Drafts of each model."""

    @field_validator("of", mode="before")
    @classmethod
    def _short(cls, data: object) -> object:
        return (data,) if isinstance(data, str) else data

    @model_validator(mode="after")
    def _several(self) -> Self:
        count = len(self.of) * self.n
        if count < 2:
            raise ValueError("one draft has no other to compare: give several models, or `n`")
        if count > MAX_DRAFTS:
            raise ValueError(f"{count} drafts are too many: {MAX_DRAFTS} are the most")
        return self

    def placed_models(self) -> Iterator[tuple[Place, str]]:
        yield from ((("of", index), name) for index, name in enumerate(self.of))

    def answering_model(self) -> str | None:
        return self.of[0]


class JudgeConfig(DraftsConfig):
    """The best of several drafts, by the verdicts of a model that compares two of them at a time."""

    model: Name
    """Model of chats that judges."""
    prompt: TemplateText | None = None
    """Template of the request to the judge, with ``question``, ``a`` and ``b``. It must let the judge end with
    ``[[A]]``, ``[[B]]`` or ``[[C]]`` for a tie. Built in when absent."""
    max_tokens: int = Bounds(512, ge=1, le=65_536)
    """Tokens of a judgement."""
    both_orders: bool = True
    """Whether each pair is judged in both orders. Verdicts that differ are a tie, which the earlier draft wins."""
    otherwise: Literal["first", "fail"] = Bounds("first", alias="else")
    """When no judgement succeeds: ``first`` takes the first draft, ``fail`` fails the step."""

    def placed_models(self) -> Iterator[tuple[Place, str]]:
        yield from super().placed_models()
        yield ("model",), self.model

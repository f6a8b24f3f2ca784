"""The `budget` of a pipeline."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from config.schema.money import Amount
from config.schema.section import Section
from config.schema.units import Count


class BudgetConfig(Section):
    """The most that all calls of one request may use together. A call that may exceed it does not start."""

    tokens: Count | None = None
    """Tokens of prompts and completions, such as ``8k``."""
    spend: Amount | None = None
    """Money, such as ``0.02 usd``, by the prices of the models."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.tokens is None and self.spend is None:
            raise ValueError("limits nothing: give `tokens` or `spend`")
        return self

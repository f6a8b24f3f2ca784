"""The judgements of the node `judge`; its drafts are in `pipeline.py`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field as Bounds

from config.schema.pipelines.template import TemplateText
from config.schema.section import Section
from config.schema.text import Name


class JudgementConfig(Section):
    """A model that compares two drafts at a time."""

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

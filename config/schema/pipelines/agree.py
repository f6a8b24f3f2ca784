"""The comparison of the node `agree`; its drafts are in `pipeline.py`."""

from __future__ import annotations

from typing import Literal

from config.schema.section import Section


class AgreementConfig(Section):
    """A comparison of drafts without a model."""

    by: Literal["text", "number", "edit"] = "text"
    """``text``: equal without case, spaces and punctuation. ``number``: equal in the last number. ``edit``: the mean
    similarity to the other drafts."""

"""The node `agree`."""

from __future__ import annotations

from typing import Literal

from config.schema.pipelines.judge import DraftsConfig


class AgreeConfig(DraftsConfig):
    """The answer on which most of several drafts agree. Its value ``agreement`` is the share, from 0 to 1."""

    by: Literal["text", "number", "edit"] = "text"
    """``text``: equal without case, spaces and punctuation. ``number``: equal in the last number. ``edit``: the mean
    similarity to the other drafts."""

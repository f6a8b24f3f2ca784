"""A mistake at a place of a configuration."""

from __future__ import annotations

from typing import NamedTuple

from config.place import Place


class Complaint(NamedTuple):
    """A mistake at a place, and the necessary change."""

    place: Place
    message: str
    suggestion: str | None = None

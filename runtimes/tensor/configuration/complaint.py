"""What is wrong at a place of a configuration."""

from __future__ import annotations

from typing import NamedTuple

from config.place import Place


class Complaint(NamedTuple):
    """What is wrong at a place, and what to change."""

    place: Place
    message: str
    suggestion: str | None = None

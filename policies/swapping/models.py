"""The measurements of the models that share the memory of a device."""

from dataclasses import dataclass
from typing import Literal

ModelState = Literal["absent", "loading", "loaded", "stopping"]
"""A model that is not `absent` occupies its memory. One that is `stopping` receives no request and ends its work."""


@dataclass(frozen=True, slots=True)
class SharedModel:
    """One model. Times are seconds, sizes bytes."""

    name: str
    size: int
    state: ModelState = "absent"
    waiting: int = 0
    """Requests that wait for the model."""
    waited: float = 0.0
    """The time of the request that waits longest."""
    working: int = 0
    """Requests that the model computes."""
    unused: float = 0.0
    """The time since its last request."""
    loaded: float = 0.0
    """The time since it was loaded."""
    cost: float = 1.0
    """The measured time of a start."""
    pinned: bool = False
    """Whether it is never stopped for another model."""

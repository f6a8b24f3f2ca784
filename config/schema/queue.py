"""The ``queue`` of a pool: the number of waiting requests, and their longest wait."""

from typing import Literal, Self

from pydantic import Field, model_validator

from config.schema.section import Section
from config.schema.units import Duration, Percent

Priority = Literal["high", "normal", "low", "batch"]
"""Lines of batches have ``batch``, below everything live. Other requests may have it too."""


class QueueConfig(Section):
    """Lets requests wait while every endpoint of the pool is full."""

    max: int = Field(256, ge=1)
    """Requests that may wait. At the bound, a new request replaces one of lower priority, or one of the tenant with
    most waiting requests for its share. If there is none, it is refused with 503."""
    timeout: Duration = 30.0
    """Longest wait. A request whose expected wait is longer, by the pool's current rate, is refused at once."""
    max_in_flight: int | None = Field(None, ge=1)
    """Requests in flight at one endpoint; further ones wait. When absent: ``max_connections``, or ``max_num_seqs`` of a
    bundled runtime."""
    lower_priorities: Percent = 0.0
    """Share that each lower priority receives for each turn of a higher one. ``0%``: it waits until no request of
    higher priority does."""

    @model_validator(mode="after")
    def _lower(self) -> Self:
        if self.lower_priorities > 0.5:
            raise ValueError("lower priorities have at most 50% of a turn each")
        return self

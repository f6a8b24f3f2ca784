"""The ``queue`` of a pool: who may wait while it is full, and for how long."""

from typing import Literal, Self

from pydantic import Field, model_validator

from config.schema.section import Section
from config.schema.units import Duration, Percent

Priority = Literal["high", "normal", "low"]


class QueueConfig(Section):
    """Requests wait while every endpoint of the pool is full, instead of being refused."""

    max: int = Field(256, ge=1)
    """How many may wait. When they do, a newcomer takes the place of one of lower priority, or of the tenant that
    has most waiting for its share; without such a one it is refused with 503."""
    timeout: Duration = 30.0
    """How long one may wait. Who would wait longer, by the pace at which the pool answers, is refused at once."""
    max_in_flight: int | None = Field(None, ge=1)
    """Requests that one endpoint has at a time, the others wait. When absent: ``max_connections``, for a bundled
    runtime its ``max_num_seqs``."""
    lower_priorities: Percent = 0.0
    """The part of a turn that each lower priority gets with each turn of a higher one; ``0%``: it waits until no
    higher one does."""

    @model_validator(mode="after")
    def _lower(self) -> Self:
        if self.lower_priorities > 0.5:
            raise ValueError("lower priorities have at most 50% of a turn each")
        return self

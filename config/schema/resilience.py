"""What a route may ask for beyond one attempt at a time."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from config.schema.section import Section
from config.schema.text import Shape
from config.schema.units import DURATION, Delay, Percent, Size, parse_duration


def _some_time(after: str) -> str:
    if not after.startswith("p") and parse_duration(after) <= 0:
        raise ValueError("a hedge waits for some time: two requests at once are twice the load")
    return after


HedgeAfter = Annotated[
    str,
    Shape(rf"p[5-9]\d(\.\d)?|{DURATION}", "p95, or another percentile from p50 on, or a duration such as 200ms"),
    AfterValidator(_some_time),
]


class HedgeConfig(Section):
    """A second attempt on another endpoint while the first has not begun to answer. Whichever begins first answers;
    the other is cancelled. Both cost the upstream something."""

    after: HedgeAfter = "p95"
    """How long to wait for the first. ``p95``: as long as 95% of the route's recent answers took to begin, learned
    from twenty on; or a fixed duration."""
    max: int = Field(1, ge=1, le=3)
    """Attempts beyond the first, each after that time again."""
    budget: Percent = 0.05
    """Hedges as a share of recent requests; beyond it a slow answer is waited for."""


class CacheConfig(Section):
    """Answers kept for whoever asks the very same again, and one call for those who ask it at the same time."""

    ttl: Delay = 600.0
    """How long an answer is kept; ``0s``: only requests at the same time share one."""
    max_bytes: Size = 64 * 1024**2
    """Memory for the route's answers, in each worker; the one unused for longest makes room. An answer of more than
    an eighth of it is not kept."""
    share: Literal["tenant", "key"] = "tenant"
    """Among whom: all keys of a tenant, or each key for itself. Never between tenants."""
    only: Literal["deterministic", "all"] = "deterministic"
    """``deterministic``: requests with ``temperature`` 0 or a ``seed``. ``all``: others too, which then get an answer
    that was drawn once."""

"""The ``hedge`` and ``cache`` of a route."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from config.schema.section import Section
from config.schema.text import Shape
from config.schema.units import DURATION, Delay, Percent, Size, parse_duration


def _some_time(after: str) -> str:
    if not after.startswith("p") and parse_duration(after) <= 0:
        raise ValueError("a hedge needs a delay above 0: two requests at once double the load")
    return after


HedgeAfter = Annotated[
    str,
    Shape(rf"p[5-9]\d(\.\d)?|{DURATION}", "p95, or another percentile from p50 on, or a duration such as 200ms"),
    AfterValidator(_some_time),
]


class HedgeConfig(Section):
    """A second attempt on another endpoint while the first has not begun to answer. The first response wins; the other
    attempt is cancelled. Both use capacity of the upstream."""

    after: HedgeAfter = "p95"
    """Delay before the second attempt: a duration, or a percentile. ``p95`` is the time within which 95% of the route's
    recent responses began, measured from twenty responses on."""
    max: int = Field(1, ge=1, le=3)
    """Attempts beyond the first, each after the same delay again."""
    budget: Percent = 0.05
    """Hedges as a share of recent requests. Beyond it no further hedge is sent."""


class CacheConfig(Section):
    """Responses cached for identical requests, and one call for identical requests at the same time."""

    ttl: Delay = 600.0
    """How long a response is cached; ``0s`` only shares calls in flight."""
    max_bytes: Size = 64 * 1024**2
    """Memory for the route's responses in each worker. The least recently used response is evicted. A response larger
    than an eighth of this is not cached."""
    share: Literal["tenant", "key"] = "tenant"
    """Scope of the cache: all keys of a tenant, or each key. Tenants never share a cache."""
    only: Literal["deterministic", "all"] = "deterministic"
    """``deterministic``: requests with ``temperature`` 0 or a ``seed``. ``all``: every request, so that a sampled
    response is repeated."""

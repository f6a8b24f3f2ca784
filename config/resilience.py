"""What a route may ask for beyond one attempt at a time."""

from typing import Annotated

from pydantic import AfterValidator, Field

from config.section import Section
from config.text import Shape
from config.units import DURATION, Percent, parse_duration


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

"""``feedback``: the metrics that clients report for requests, with ``POST /v1/feedback``."""

from typing import Literal, Self

from pydantic import Field, model_validator

from config.schema.section import Section
from config.schema.text import Name
from config.schema.units import Duration

THUMBS = {"up": 1.0, "down": 0.0}
MOST_METRICS = 32


class FeedbackMetricConfig(Section):
    """One metric of the values that clients report for the subjects of experiments and rollouts."""

    name: Name
    """Name of the metric in reports of clients and in experiments."""
    type: Literal["boolean", "thumbs", "number"] = "boolean"
    """``boolean``: true or false. ``thumbs``: "up" or "down". ``number``: a number from ``min`` to ``max``."""
    better: Literal["higher", "lower"] = "higher"
    """Whether higher values are better, where true is higher than false and "up" than "down"."""
    min: float | None = Field(None, allow_inf_nan=False)
    """Least number."""
    max: float | None = Field(None, allow_inf_nan=False)
    """Greatest number."""
    within: Duration = 86400.0
    """Time after a request in which its values are accepted."""

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        low, high = self.min, self.max
        if self.type != "number" and (low is not None or high is not None):
            raise ValueError("only a metric of type number has min and max")
        if self.type == "number" and (low is None or high is None or not low < high):
            raise ValueError("a number needs min and max, with min below max: larger values are refused")
        if self.type == "thumbs" and self.better == "lower":
            raise ValueError('"up" is better than "down": give the type boolean for a metric that is better when lower')
        return self

    @property
    def span(self) -> float:
        """The greatest value less the least."""
        return 1.0 if self.min is None or self.max is None else self.max - self.min

    @property
    def least(self) -> float:
        """The least value."""
        return self.min or 0.0

    @property
    def scale(self) -> str:
        """A text that changes with the scale of the values: those of two scales do not add up."""
        return f"{self.type} {self.min} {self.max}"

    def scaled(self, value: object) -> float | None:
        """The value in [0, 1]; None for a value of another type or out of range."""
        if self.type == "thumbs":
            return THUMBS.get(value) if isinstance(value, str) else None
        if self.type == "boolean":
            return float(value) if isinstance(value, bool) else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        assert self.min is not None
        assert self.max is not None
        return (value - self.min) / self.span if self.min <= value <= self.max else None

    @property
    def expected(self) -> str:
        """The accepted values, for error messages."""
        if self.type == "number":
            return f"a number from {self.min:g} to {self.max:g}"
        return "true or false" if self.type == "boolean" else '"up" or "down"'

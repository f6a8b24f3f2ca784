"""The ``metrics`` of the file: bounds of the number of time series."""

from pydantic import Field

from config.schema.section import Section
from config.schema.text import Glob


class MetricsConfig(Section):
    """Bounds of the series at ``/metrics``. Values beyond a bound are counted under the label value ``(others)``."""

    tenants: tuple[Glob, ...] = ("*",)
    """Tenants with series of their own. All others share the label value ``(others)``."""
    max_series: int = Field(10_000, ge=100, le=10_000_000)
    """Largest number of label combinations of each counter of tenants. Further combinations share ``(others)``."""

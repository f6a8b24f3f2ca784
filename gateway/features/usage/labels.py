"""The labels and the counters of a row of usage."""

from datetime import UTC, datetime
from typing import Final, NamedTuple

LABELS: Final = ("tenant", "key", "model", "arm", "currency", "team", "user")
COUNTERS: Final = (
    "picos", "requests", "failures", "prompt_tokens", "completion_tokens", "rows", "bytes", "device_us",
)  # fmt: skip
"""Picos are millionths of a millionth of the currency. All counters only grow."""
OTHERS: Final = "(others)"
HOUR: Final = 3600


class UsageLabels(NamedTuple):
    """What is counted separately. `currency` is empty for a request without a price."""

    tenant: str
    key: str
    model: str
    arm: str
    currency: str
    team: str = ""
    user: str = ""
    """The end user; empty without one, and where they are not counted."""


class UsageRow(NamedTuple):
    """The counters of one slot of a writer, or of a file."""

    slot: int
    labels: UsageLabels
    counters: tuple[int, ...]
    """In the order of `COUNTERS`."""


def day_of(hour: int) -> str:
    """The day of an hour (Unix time // 3600), in UTC."""
    return datetime.fromtimestamp(hour * HOUR, UTC).date().isoformat()

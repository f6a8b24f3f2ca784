"""Timestamps of RFC 3339."""

from datetime import UTC, datetime


def parse(text: str) -> float | None:
    """Unix seconds; None for a text that is no timestamp with a zone."""
    try:
        at = datetime.fromisoformat(text)
        return None if at.tzinfo is None else at.timestamp()
    except (ValueError, OverflowError):
        return None


def format_time(utc: float) -> str:
    """The timestamp in UTC, to the millisecond."""
    return datetime.fromtimestamp(utc, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

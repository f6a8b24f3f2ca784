"""The record of one request, as the spool and the database have it. It has no prompt, no answer and no credential."""

from datetime import UTC, datetime

import msgspec

MICROS = 1_000_000
HOUR_MICROS = 3600 * MICROS
DAY_MICROS = 24 * HOUR_MICROS
PART = 10**9
"""Large amounts of money are stored in two parts of so many picos."""
MOST_TEXT = 256
"""Characters of a text in a record; longer texts are cut."""
NUMBERS = (
    "prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens", "rows", "bytes", "device_us",
)  # fmt: skip
LABELS = ("tenant", "key", "model", "operation", "pool", "arm", "status", "error", "code", "currency", "team")
"""The fields that searches compare. Requests of one hour with the same labels are a series."""
_LONGEST_YEAR = 253_402_300_799


class RequestLine(msgspec.Struct, array_like=True, gc=False):
    """The record of one ended request. Times are microseconds, money is in picos."""

    at: int
    """The end of the request, in Unix time."""
    id: str
    tenant: str
    key: str
    model: str
    operation: str
    pool: str
    arm: str
    status: int
    error: str
    code: str
    currency: str
    endpoint: str
    trace: str
    stream: bool
    duration: int
    first_chunk: int
    """The time to the first chunk; -1 without an answer."""
    picos: int
    usage: tuple[int, ...]
    """In the order of `NUMBERS`."""
    detail: str
    """The decision, the attempts, the steps and the events, as JSON."""
    team: str = ""
    billions: int = 0
    """Billions of picos beyond `picos`, which has 63 bits."""
    counted: bool = False
    """Whether the process also counted the usage of the request."""
    requests: int = 1
    """More than 1 for the requests of a process whose own records are lost."""

    @property
    def cost(self) -> int:
        """Picos."""
        return self.billions * PART + self.picos

    @property
    def labels(self) -> tuple[str | int, ...]:
        """In the order of `LABELS`."""
        return (
            self.tenant, self.key, self.model, self.operation, self.pool, self.arm, self.status, self.error, self.code,
            self.currency, self.team,
        )  # fmt: skip


def day_of(at: int) -> str:
    """The day of a time in microseconds, in UTC: YYYY-MM-DD. A time beyond the year 9999 is in its last day."""
    seconds = min(max(at // MICROS, 0), _LONGEST_YEAR)
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


def begin_of(day: str) -> int:
    """The first microsecond of a day (YYYY-MM-DD) in UTC."""
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()) * MICROS


def time_of(at: int) -> str:
    """RFC 3339 with microseconds."""
    moment = datetime.fromtimestamp(at // MICROS, UTC).replace(microsecond=at % MICROS)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")

"""The record of one request, as a journal has it. It has no prompt, no answer and no credential."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from gateway.limits.drawn import Draw, drawn

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
_EARLIER_FAILURES = frozenset({"backend", "transport", "deadline"})
_EMPTY: dict[str, Any] = {
    "id": "", "operation": "", "pool": "", "status": 0, "code": "", "endpoint": "", "trace": "", "stream": False,
    "duration": 0, "first_chunk": -1, "detail": "",
}  # fmt: skip


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
    """The decision, the attempts, the steps and the events, as JSON. Empty for a line that counts as usage alone."""
    team: str = ""
    billions: int = 0
    """Billions of picos beyond `picos`, which has 63 bits."""
    counted: bool = False
    """Whether the request counts as usage."""
    requests: int = 1
    """More than 1 for a sum."""
    failed: bool | None = None
    """Whether it is a failure of the service; None in lines of earlier releases."""
    lineage: str = ""
    """The first key that the key replaces; empty for a key that replaces none."""
    draws: tuple[Draw, ...] = ()
    """What the request has drawn from limits of long periods."""
    user: str = ""
    """The end user, if usage counts them: also of a request that does not count."""

    @property
    def subject(self) -> str:
        """The key of usage: all keys of one lineage are one."""
        return self.lineage or self.key

    @property
    def cost(self) -> int:
        """Picos."""
        return self.billions * PART + self.picos

    @property
    def is_failure(self) -> bool:
        """Whether it is a failure of the service. Earlier lines of usage alone do not have their status."""
        if self.failed is not None:
            return self.failed
        return self.error in _EARLIER_FAILURES or (self.error == "capacity" and self.status not in (0, 429))

    @property
    def labels(self) -> tuple[str | int, ...]:
        """In the order of `LABELS`."""
        return (
            self.tenant, self.key, self.model, self.operation, self.pool, self.arm, self.status, self.error, self.code,
            self.currency, self.team,
        )  # fmt: skip


def split(picos: int) -> tuple[int, int]:
    """The billions and the picos of a line."""
    return (0, picos) if picos < PART * PART else divmod(picos, PART)


def summed(lines: Iterable[RequestLine]) -> list[RequestLine]:
    """Lines that count as much usage: one for each hour and each set of labels, and one for what limits count."""
    lines = list(lines)
    sums: dict[tuple[int | str, ...], list[int]] = {}
    for line in (each for each in lines if each.counted):
        place = (
            line.at // HOUR_MICROS, line.tenant, line.subject, line.model, line.arm, line.error, line.currency,
            line.team, line.is_failure, line.user,
        )  # fmt: skip
        amounts = (line.requests, line.cost, *line.usage)
        before = sums.get(place)
        sums[place] = list(amounts) if before is None else [a + b for a, b in zip(before, amounts, strict=True)]
    made = []
    for (hour, tenant, key, model, arm, error, currency, team, failed, user), (requests, cost, *usage) in sums.items():
        billions, picos = split(cost)
        fields: dict[str, Any] = {
            "at": int(hour) * HOUR_MICROS, "tenant": tenant, "key": key, "model": model, "arm": arm, "error": error,
            "currency": currency, "team": team, "failed": bool(failed), "picos": picos, "billions": billions,
            "usage": tuple(usage), "user": user,
        }  # fmt: skip
        made.append(RequestLine(**_EMPTY, **fields, counted=True, requests=requests))
    if draws := drawn(draw for line in lines for draw in line.draws):
        nothing: dict[str, Any] = dict.fromkeys(("tenant", "key", "model", "arm", "error", "currency", "team"), "") | {
            "at": lines[-1].at,
            "picos": 0,
            "usage": (0,) * len(NUMBERS),
        }
        made.append(RequestLine(**_EMPTY, **nothing, draws=draws))
    return made


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

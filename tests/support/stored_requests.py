"""Ended requests, and the lines that are stored of them."""

from collections.abc import Iterable
from typing import Any

from adapters.types import Usage
from config.schema.money import Money
from gateway.features.journal.files import WaitingLine
from gateway.features.journal.lines import MICROS, RequestLine
from gateway.telemetry.record import Record
from tests.support.usage_hosts import NOVEMBER


def line(at: int = NOVEMBER * MICROS, **fields: Any) -> RequestLine:
    """A record at a time."""
    values: dict[str, Any] = {
        "id": "r1", "tenant": "acme", "key": "k", "model": "m", "operation": "chat", "pool": "p", "arm": "",
        "status": 200, "error": "", "code": "", "currency": "usd", "endpoint": "p/1", "trace": "", "stream": False,
        "duration": 1500, "first_chunk": 700, "picos": 7, "usage": (3, 2, 1, 0, 0, 10, 0), "detail": '{"client":"c"}',
    }  # fmt: skip
    return RequestLine(at=at, **{**values, **fields})


def record(id: str = "r", tenant: str = "acme", at: float = NOVEMBER, picos: int = 7, **fields: Any) -> Record:
    one = Record(id, "chat", "client", 10.0)
    one.tenant, one.key, one.model, one.time, one.ended = tenant, f"{tenant}-key", "chat", at, 12.0
    one.usage, one.cost = Usage(3, 2), Money(picos, "usd")
    for name, value in fields.items():
        setattr(one, name, value)
    return one


def waiting(lines: Iterable[RequestLine]) -> list[WaitingLine]:
    """The lines as a file has them: each ends at an offset of its own."""
    return [WaitingLine(end, line) for end, line in enumerate(lines, 1)]

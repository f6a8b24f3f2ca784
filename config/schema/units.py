"""Quantities in the file's notation: ``250ms``, ``10MiB``, ``600/min``, ``20%``, ``1.5x``, ``127.0.0.1:8080``.

Each parser takes a value from YAML (a string or a bare number) and returns a plain number, or raises ``ValueError``
with the expected form. The message never contains the value, which may be from the environment. Each formatter is its
parser's inverse.
"""

import ipaddress
import re
from collections.abc import Callable
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator, WithJsonSchema

HELD_COPIES = 3
"""The factor by which the bytes of a body count in the budgets of memory."""
_NUMBER = r"(\d{1,15}(?:\.\d{1,15})?)"  # bounded, to prevent the overflow of a float
_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {
    "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
    "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
}  # fmt: skip
_MULTIPLES = {"": 1.0, "k": 1e3, "M": 1e6}
_PERIOD = {
    "s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "minute": 60.0,
    "h": 3600.0, "hour": 3600.0, "d": 86400.0, "day": 86400.0, "month": 30 * 86400.0,
}  # fmt: skip
QUANTILE = "p(50|75|90|95|99)"
DURATION = rf"{_NUMBER}\s*({'|'.join(_SECONDS)})"
_SIZE = rf"{_NUMBER}\s*({'|'.join(_BYTES)})"
_COUNT = rf"{_NUMBER}\s*(k|M)?"
_RATE = rf"{_NUMBER}\s*(k|M)?\s*/\s*({'|'.join(_PERIOD)})"
_BYTE_RATE = rf"{_SIZE}\s*/\s*({'|'.join(_PERIOD)})"
_PERCENT = rf"{_NUMBER}\s*%"
_FACTOR = rf"{_NUMBER}\s*x"
_ADDRESS = r"(?:\[([0-9a-fA-F:.]+)\]|([^\s:\[\]]+)):(\d{1,5})"
_NETWORK = r"[0-9a-fA-F:.]+(?:/\d{1,3})?"


IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


class RateLimit(NamedTuple):
    """``amount`` units every ``period`` seconds; the amount is also the burst."""

    amount: float
    period: float

    def __str__(self) -> str:
        return f"{_plain(self.amount)}/{self._per}"

    @property
    def _per(self) -> str:
        return next(unit for unit, seconds in _PERIOD.items() if seconds == self.period)


class ByteRateLimit(RateLimit):
    """A rate of bytes, written with units."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{format_size(int(self.amount))}/{self._per}"


class HostPort(NamedTuple):
    """A listening address. ``host`` is an IP literal or ``localhost``; port 0 lets the kernel choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback

    def overlaps(self, other: "HostPort") -> bool:
        """Whether two addresses cannot be bound together. A wildcard host occupies the port on all addresses."""
        mine, theirs = self._ip, other._ip
        same_host = mine == theirs or mine.is_unspecified or theirs.is_unspecified
        return self.port == other.port != 0 and same_host

    @property
    def _ip(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
        return ipaddress.ip_address("127.0.0.1" if self.host == "localhost" else self.host)


def parse_duration(value: object) -> float:
    """Parse a duration into seconds. A bare number is rejected, as its unit would be unclear."""
    m = _match(DURATION, value, "a duration such as 250ms, 10s, 5m or 1h")
    return float(m[1]) * _SECONDS[m[2]]


def parse_time_bound(value: object) -> float | str:
    """Parse a duration, or the name of a quantile of another arm's times."""
    if isinstance(value, str) and re.fullmatch(QUANTILE, value.strip()):
        return value.strip()
    seconds = parse_duration(value) if isinstance(value, str) and re.fullmatch(DURATION, value.strip()) else 0.0
    if seconds <= 0:
        raise ValueError(f"expected a duration above 0s such as 2s, or a quantile such as p95, got {value!r}")
    return seconds


def format_time_bound(bound: float | str) -> str:
    """The text of a bound."""
    return bound if isinstance(bound, str) else format_duration(bound)


def parse_size(value: object) -> int:
    """Parse a size into bytes."""
    m = _match(_SIZE, value, "a size such as 64KiB, 10MiB or 2GB")
    return int(float(m[1]) * _BYTES[m[2]])


def parse_count(value: object) -> int:
    """``8k`` → 8000."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    m = _match(_COUNT, value, "a number such as 500, 8k or 1.5M")
    return int(float(m[1]) * _MULTIPLES[m[2] or ""])


def parse_rate(value: object) -> RateLimit:
    """``200k/min`` → ``RateLimit(200_000, 60)``."""
    m = _match(_RATE, value, "a rate such as 10/s, 600/min or 200k/min")
    amount = float(m[1]) * _MULTIPLES[m[2] or ""]
    if amount < 1:  # the amount is the burst: a bucket below one unit never grants one
        raise ValueError("a rate grants at least 1 per period: write 30/min for 0.5/s")
    return RateLimit(amount, _PERIOD[m[3]])


def parse_byte_rate(value: object) -> ByteRateLimit:
    """``10MiB/min`` → ``ByteRateLimit(10_485_760, 60)``."""
    m = _match(_BYTE_RATE, value, "a rate of bytes such as 64KiB/s or 10MiB/min")
    amount = int(float(m[1]) * _BYTES[m[2]])
    if amount < 1:
        raise ValueError("a rate grants at least 1 byte per period")
    return ByteRateLimit(amount, _PERIOD[m[3]])


def parse_percent(value: object) -> float:
    """``20%`` → 0.2."""
    return float(_match(_PERCENT, value, "a percentage such as 20%")[1]) / 100


def parse_factor(value: object) -> float:
    """``1.5x`` → 1.5."""
    factor = float(_match(_FACTOR, value, "a factor such as 1.5x")[1])
    if not 0.01 <= factor <= 1000:
        raise ValueError("a factor is from 0.01x to 1000x")
    return factor


def parse_size_or_share(value: object) -> int | float:
    """Parse a size into bytes, or a share such as ``30%`` into the float 0.3."""
    try:
        share = parse_percent(value)
    except ValueError:
        try:
            size = parse_size(value)
        except ValueError:
            raise ValueError("expected a size such as 512MiB or 2GB, or a share such as 30%") from None
        if size < 1:
            raise ValueError("a size is at least 1 byte") from None
        return size
    if not 0 < share <= 1:
        raise ValueError("a share is over 0% and at most 100%")
    return share


def parse_host_port(value: object) -> HostPort:
    """``127.0.0.1:8080``, ``localhost:8080`` or ``[::1]:8080``."""
    m = _match(_ADDRESS, value, "an address such as 127.0.0.1:8080 or [::1]:8080")
    host, port = m[1] or m[2], int(m[3])
    if port > 65535:
        raise ValueError("a port is at most 65535")
    if host != "localhost":
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise ValueError("a listening host is an IP address (0.0.0.0 for all) or localhost") from None
    return HostPort(host, port)


def parse_network(value: object) -> IpNetwork:
    """``10.0.0.0/8``, ``fd00::/8``, or one address."""
    m = _match(_NETWORK, value, "an address or a network such as 10.0.0.0/8 or fd00::/8")
    try:
        return ipaddress.ip_network(m[0])
    except ValueError:
        raise ValueError("not an address, or a network whose address has bits behind its length") from None


def format_duration(seconds: float) -> str:
    """The inverse of ``parse_duration``, in the largest unit without a fraction."""
    for unit in ("d", "h", "m", "s"):
        if seconds and seconds % _SECONDS[unit] == 0:
            return f"{_plain(seconds / _SECONDS[unit])}{unit}"
    return f"{_plain(seconds * 1000)}ms" if seconds else "0s"


def format_size(size: int) -> str:
    """The inverse of ``parse_size``, in the largest binary unit without a fraction."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}"
    return f"{size}B"


def format_size_or_share(amount: int | float) -> str:
    """The inverse of ``parse_size_or_share``."""
    return format_size(amount) if isinstance(amount, int) else format_percent(amount)


def format_percent(share: float) -> str:
    """The inverse of ``parse_percent``."""
    return f"{_plain(share * 100)}%"


def format_factor(factor: float) -> str:
    """The inverse of ``parse_factor``."""
    return f"{_plain(factor)}x"


def _plain(number: float) -> str:
    """Format a number without an exponent and without trailing zeros."""
    return f"{number:.9f}".rstrip("0").rstrip(".")


def _match(pattern: str, value: object, expected: str) -> re.Match[str]:
    if isinstance(value, str) and (m := re.fullmatch(pattern, value.strip())):
        return m
    raise ValueError(f"expected {expected}")


def or_environment(pattern: str) -> str:
    """A JSON Schema pattern that also accepts ``${NAME}``, whose value editors do not have."""
    return rf"^(?:{pattern})$|\$\{{"


def _as_text(example: str, pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": or_environment(pattern), "examples": [example]})


def _written_by(formatter: Callable[..., str]) -> PlainSerializer:
    return PlainSerializer(formatter, return_type=str, when_used="json")


Delay = Annotated[float, BeforeValidator(parse_duration), _written_by(format_duration), _as_text("10s", DURATION)]
Duration = Annotated[Delay, Field(gt=0)]
TimeBound = Annotated[
    float | str,
    BeforeValidator(parse_time_bound),
    _written_by(format_time_bound),
    _as_text("p95", f"{DURATION}|{QUANTILE}"),
]
Size = Annotated[int, BeforeValidator(parse_size), Field(gt=0), _written_by(format_size), _as_text("10MiB", _SIZE)]
SizeOrShare = Annotated[
    int | float,
    PlainValidator(parse_size_or_share),
    _written_by(format_size_or_share),
    _as_text("512MiB", f"{_SIZE}|{_PERCENT}"),
]
Count = Annotated[
    int,
    BeforeValidator(parse_count),
    Field(gt=0),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": or_environment(_COUNT), "examples": ["8k"]},
            ]
        }
    ),
]
Rate = Annotated[RateLimit, PlainValidator(parse_rate), _written_by(str), _as_text("600/min", _RATE)]
ByteRate = Annotated[
    ByteRateLimit, PlainValidator(parse_byte_rate), _written_by(str), _as_text("10MiB/min", _BYTE_RATE)
]
Percent = Annotated[float, BeforeValidator(parse_percent), _written_by(format_percent), _as_text("20%", _PERCENT)]
Factor = Annotated[float, BeforeValidator(parse_factor), _written_by(format_factor), _as_text("1.5x", _FACTOR)]
Listen = Annotated[HostPort, PlainValidator(parse_host_port), _written_by(str), _as_text("127.0.0.1:8080", _ADDRESS)]
Network = Annotated[IpNetwork, PlainValidator(parse_network), _written_by(str), _as_text("10.0.0.0/8", _NETWORK)]

import math
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from config.schema.units import (
    Delay,
    Duration,
    HostPort,
    Listen,
    Rate,
    RateLimit,
    format_duration,
    format_percent,
    format_size,
    format_size_or_share,
    parse_duration,
    parse_host_port,
    parse_percent,
    parse_rate,
    parse_size,
    parse_size_or_share,
)

PARSERS: list[Callable[[object], object]] = [parse_duration, parse_size, parse_rate, parse_percent, parse_host_port]
ports = st.integers(0, 65535)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250ms", 0.25), ("10s", 10), ("1.5 s", 1.5), ("5m", 300), ("5min", 300), ("1h", 3600), ("2d", 172800), ("0s", 0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "size"), [("1B", 1), ("64KiB", 65536), ("1kB", 1000), ("1.5MiB", 1572864), ("2GB", 2 * 10**9)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "rate"),
    [("10/s", (10, 1)), ("600/min", (600, 60)), ("200k/min", (200_000, 60)), ("1.5M / day", (1.5e6, 86400))],
)
def test_rates(text: str, rate: tuple[float, float]) -> None:
    assert parse_rate(text) == rate


@given(st.integers(0, 10**12))
def test_whole_milliseconds_survive_being_written(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=1e-12)


@given(st.integers(0, 2**49))
def test_sizes_survive_being_written(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(st.integers(1, 10**9), st.sampled_from([1.0, 60.0, 3600.0, 86400.0]))
def test_rates_survive_being_written(amount: int, period: float) -> None:
    assert parse_rate(str(RateLimit(amount, period))) == RateLimit(amount, period)


@pytest.mark.parametrize(("text", "amount"), [("64KiB", 65536), ("30%", 0.3), ("100%", 1.0), ("0.5 %", 0.005)])
def test_sizes_or_shares(text: str, amount: int | float) -> None:
    parsed = parse_size_or_share(text)
    assert isinstance(parsed, type(amount))
    assert parsed == pytest.approx(amount)
    assert parse_size_or_share(format_size_or_share(parsed)) == pytest.approx(amount)


@pytest.mark.parametrize(
    ("text", "message"),
    [("0%", "over 0%"), ("101%", "at most 100%"), ("0B", "at least 1 byte"), ("half", "or a share"), ("30", "a size")],
)
def test_text_that_is_neither_size_nor_share(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_size_or_share(text)


@given(st.integers(0, 100_000))
def test_percentages_survive_being_written(hundredths: int) -> None:
    assert parse_percent(format_percent(hundredths / 10_000)) == pytest.approx(hundredths / 10_000)


@given(st.ip_addresses(), ports)
def test_addresses_survive_being_written(address: object, port: int) -> None:
    host_port = HostPort(str(address), port)
    if "%" not in host_port.host:  # a scoped IPv6 address is no address to listen on here
        assert parse_host_port(str(host_port)) == host_port


@given(st.text() | st.integers() | st.floats() | st.none() | st.lists(st.integers()))
def test_any_invalid_quantity_has_an_explanation(value: object) -> None:
    for parse in PARSERS:
        problem = sentence(parse, value)
        assert problem is None or re.match("expected a|a rate grants|a port is|a listening host", problem)


def sentence(parse: Callable[[object], object], value: object) -> str | None:
    try:
        parse(value)
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("value", [10, 1.5, True, None, "", "10", "ten", "-1s", "1e3s", "10 s s", "9" * 400 + "s"])
def test_a_bare_number_or_another_text_is_refused(parse: Callable[[object], object], value: object) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse(value)


def test_digits_without_end_overflow_nothing() -> None:
    assert math.isfinite(parse_duration("9" * 15 + "d"))
    with pytest.raises(ValueError, match="expected a size"):
        parse_size("9" * 400 + "TB")


def test_a_rate_that_would_never_grant_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"write 30/min for 0\.5/s"):
        parse_rate("0.5/s")


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1:65536", "at most 65535"),
        ("example.com:80", "an IP address"),
        ("999.1.1.1:80", "an IP address"),
        ("*:80", "an IP address"),
        ("::1:80", "expected an address"),
        (":8080", "expected an address"),
    ],
)
def test_refused_addresses(address: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_host_port(address)


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
    ],
)
def test_loopback(address: str, loopback: bool) -> None:
    assert parse_host_port(address).is_loopback is loopback


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ("127.0.0.1:80", "127.0.0.1:80", True),
        ("localhost:80", "127.0.0.1:80", True),
        ("0.0.0.0:80", "127.0.0.1:80", True),
        ("127.0.0.1:80", "[::]:80", True),
        ("127.0.0.1:80", "127.0.0.2:80", False),
        ("127.0.0.1:80", "127.0.0.1:81", False),
        ("127.0.0.1:0", "127.0.0.1:0", False),
    ],
)
def test_overlap(one: str, other: str, overlap: bool) -> None:
    assert parse_host_port(one).overlaps(parse_host_port(other)) is overlap
    assert parse_host_port(other).overlaps(parse_host_port(one)) is overlap


def test_only_a_delay_may_be_zero() -> None:
    assert TypeAdapter(Delay).validate_python("0s") == 0
    with pytest.raises(ValidationError):
        TypeAdapter(Duration).validate_python("0s")


def test_the_types_parse_and_write() -> None:
    listen, rate = TypeAdapter(Listen), TypeAdapter(Rate)
    assert listen.validate_python("[::1]:80", strict=True) == HostPort("::1", 80)
    assert listen.dump_json(HostPort("::1", 80)) == b'"[::1]:80"'
    assert rate.dump_json(rate.validate_python("1k/min", strict=True)) == b'"1000/min"'

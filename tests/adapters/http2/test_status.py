"""gRPC's words: messages, timeouts, metadata."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.http2.status import (
    MAX_MESSAGE,
    Code,
    GrpcError,
    binary_value,
    decode_message,
    decode_timeout,
    encode_message,
    encode_metadata,
    encode_timeout,
)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_a_message_arrives_as_it_was(text: str) -> None:
    encoded = encode_message(text)
    assert all(0x20 <= byte < 0x7F for byte in encoded)
    assert decode_message(encoded) == text.encode("utf-8", "replace").decode()


def test_a_message_has_a_bound() -> None:
    assert decode_message(encode_message("x" * 100_000)) == "x" * MAX_MESSAGE
    for before in ("", "x", "xx"):
        encoded = encode_message(before + "…" * 100_000)
        assert MAX_MESSAGE - 100 < len(encoded) <= MAX_MESSAGE
        assert set(decode_message(encoded)[len(before) :]) == {"…"}


def test_a_badly_encoded_message_is_decoded_as_far_as_possible() -> None:
    assert decode_message(b"100% \xffsure %4") == "100% �sure %4"


@settings(max_examples=200, deadline=None)
@given(st.floats(1e-6, 3e9))
def test_a_timeout_is_rounded_up_and_not_far(seconds: float) -> None:
    decoded = decode_timeout(encode_timeout(seconds))
    assert decoded is not None
    assert seconds * (1 - 1e-9) <= decoded <= seconds * 1.12 + 1e-6


@pytest.mark.parametrize("seconds", [-5, 0, 1e-9])
def test_a_timeout_that_is_over_is_the_shortest(seconds: float) -> None:
    assert encode_timeout(seconds) == b"1u"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(b"2H", 7200), (b"3M", 180), (b"4S", 4), (b"5m", 0.005), (b"6u", 6e-6), (b"7n", 7e-9), (b"99999999S", 99999999)],
)
def test_timeouts_of_each_unit(value: bytes, seconds: float) -> None:
    assert decode_timeout(value) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value", [b"", b"1", b"S", b"-1S", b"1.5S", b"1s", b"123456789S", b"1S ", b"1S\n", "１S".encode()]
)
def test_a_malformed_timeout_is_ignored(value: bytes) -> None:
    assert decode_timeout(value) is None


def test_metadata_there_and_back() -> None:
    fields = encode_metadata([("x-a", "one two"), ("x-bin", b"\0\xff"), ("x-bin", b"")])
    assert fields == [(b"x-a", b"one two"), (b"x-bin", b"AP8"), (b"x-bin", b"")]
    assert binary_value("AP8") == b"\0\xff"
    assert binary_value("AP8=") == b"\0\xff"


@pytest.mark.parametrize(
    "field", [("X-A", "x"), ("x a", "x"), ("", "x"), (":path", "x"), ("x-a", "a\nb"), ("x-a", "é"), ("x-a", b"x")]
)
def test_invalid_metadata_is_refused(field: tuple[str, str | bytes]) -> None:
    with pytest.raises(ValueError):
        encode_metadata([field])


def test_invalid_base64_is_refused() -> None:
    for value in ("?", "A", "AP8 AP8"):
        with pytest.raises(ValueError):
            binary_value(value)


def test_an_error_names_its_code() -> None:
    assert str(GrpcError(Code.ABORTED, "no")) == "ABORTED: no"
    assert str(GrpcError(99, "no")) == "99: no"

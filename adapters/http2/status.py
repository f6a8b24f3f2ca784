"""Encodes and decodes gRPC's own HTTP/2 fields: status, message, timeout, metadata."""

import base64
import binascii
import contextlib
import math
import re
from collections.abc import Mapping, Sequence
from enum import IntEnum
from urllib.parse import quote, unquote_to_bytes

Metadata = Sequence[tuple[str, str | bytes]]
"""Names in lower case; the value of a name with the suffix `-bin` is bytes, any other value is ASCII text."""
MAX_MESSAGE = 6 * 1024
PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
NAME = re.compile(r"[0-9a-z_.\-]+")
TEXT = re.compile(r"[\x20-\x7e]*")
TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
SECONDS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}


class GrpcError(Exception):
    """A call that ended with a status other than OK. If a handler raises the error, the call ends with it."""

    def __init__(self, code: int, message: str, trailers: Metadata = ()) -> None:
        super().__init__(f"{code_name(code)}: {message}")
        self.code = code
        self.message = message
        self.trailers = trailers


class Reported(GrpcError):
    """A status and a message that the server has sent."""


class Unreadable(GrpcError):
    """A response that the client cannot decode or accept, regardless of its status. `code` is gRPC's code for this."""


def code_name(code: int) -> str:
    try:
        return Code(code).name
    except ValueError:
        return str(code)


def encode_message(text: str) -> bytes:
    """Percent-encode a message (gRPC over HTTP2, "Status-Message"), cut to `MAX_MESSAGE` bytes.

    gRPC clients refuse trailers of 8 KiB and more.
    """
    text = text[:MAX_MESSAGE]
    while len(encoded := quote(text, PLAIN, errors="replace")) > MAX_MESSAGE:
        text = text[: len(text) * MAX_MESSAGE // len(encoded)]
    return encoded.encode()


def decode_message(value: bytes) -> str:
    return unquote_to_bytes(value).decode("utf-8", "replace")


def encode_timeout(seconds: float) -> bytes:
    """Encode a timeout, rounded up to two digits: equal heads decode faster, and the client enforces the exact time."""
    micros = max(1, math.ceil(seconds * 1e6))
    for unit, size in ((b"u", 1), (b"m", 10**3), (b"S", 10**6), (b"H", 3_600 * 10**6)):
        amount = math.ceil(micros / size)
        if amount < 10**5 or unit == b"H":
            step = 10 ** max(0, len(str(amount)) - 2)
            return b"%d%b" % (min(math.ceil(amount / step) * step, 99_999_999), unit)
    raise AssertionError


def decode_timeout(value: bytes) -> float | None:
    """Decode a timeout into seconds; None for an invalid timeout."""
    match = TIMEOUT.fullmatch(value)
    return int(match[1]) * SECONDS[match[2]] if match else None


def encode_metadata(metadata: Metadata) -> list[tuple[bytes, bytes]]:
    """Encode metadata as fields. Raises `ValueError` for metadata that no field can carry."""
    fields = []
    for name, value in metadata:
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a name of metadata")
        if name.endswith("-bin"):
            data = value if isinstance(value, bytes) else value.encode()
            fields.append((name.encode(), base64.b64encode(data).rstrip(b"=")))
        elif isinstance(value, str) and TEXT.fullmatch(value):
            fields.append((name.encode(), value.encode()))
        else:
            raise ValueError(f"the metadata {name!r} has a value that requires a name with -bin")
    return fields


def as_metadata(received: Mapping[str, str]) -> Metadata:
    """Convert received metadata for forwarding. Omits `-bin` values that are not valid Base64."""
    pairs: list[tuple[str, str | bytes]] = []
    for name, value in received.items():
        if not name.endswith("-bin"):
            pairs.append((name, value))
        else:
            with contextlib.suppress(ValueError):
                pairs.extend((name, binary_value(part)) for part in value.split(","))
    return pairs


def binary_value(value: str) -> bytes:
    """Decode a received `-bin` value. Raises `ValueError` if the value is not Base64."""
    try:
        return base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError("not Base64") from error


class Code(IntEnum):
    """The status of a call."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16

"""Checks a request's head by the rules of RFC 9110 and 9112 that llhttp does not check."""

import re
from collections.abc import Sequence

Fields = dict[bytes, bytes]

# Two parsers may interpret a repetition of these fields differently.
SINGLE_FIELDS = frozenset(
    {b"host", b"content-type", b"authorization", b"content-length", b"transfer-encoding", b"expect"}
)
HOST_CHARACTERS = b"".join(b"%c" % c for c in range(0x21, 0x7F) if c not in b'"#/<>?@\\^`{|}')
ABSOLUTE_FORM = re.compile(rb"https?://[^/?#]+", re.IGNORECASE)


class HeadRefused(Exception):
    """Rejects a request from within a parser callback: llhttp stops and reports this error as its context."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code
        self.message = message


def merged(received: Sequence[tuple[bytes, bytes]]) -> Fields:
    """Return the fields by name; repeated ones are joined with a comma. Raises `HeadRefused` if one is ambiguous."""
    fields = dict(received)
    if len(fields) == len(received):
        return fields
    fields = {}
    for name, value in received:
        if name not in fields:
            fields[name] = value
        elif name in SINGLE_FIELDS:
            raise HeadRefused(400, "duplicate_header", f"The header {name.decode('latin-1')} is given twice.")
        else:
            fields[name] += b", " + value
    return fields


def check(version: str, method: bytes, fields: Fields) -> bool:
    """Check a head. Returns whether the version is HTTP/1.1. Raises `HeadRefused` for a violation of the standard."""
    http11 = bool(version == "1.1")
    if not http11 and version != "1.0":
        raise HeadRefused(505, "http_version_not_supported", "Only HTTP/1.1 and HTTP/1.0 are served.")
    if http11 and b"host" not in fields:
        raise HeadRefused(400, "missing_host", "The Host header is missing.")
    if fields.get(b"host", b"").translate(None, HOST_CHARACTERS):
        raise HeadRefused(400, "bad_host", "The Host header is not a host.")
    encoding = fields.get(b"transfer-encoding")
    if encoding is not None and not (http11 and encoding.rstrip(b" \t").lower() == b"chunked"):
        raise HeadRefused(501, "unsupported_transfer_encoding", "The only transfer encoding is chunked, on HTTP/1.1.")
    if b"expect" in fields and fields[b"expect"].lower() != b"100-continue":
        raise HeadRefused(417, "expectation_failed", "The only expectation is 100-continue.")
    if method == b"CONNECT":
        raise HeadRefused(400, "bad_target", "This server is not a proxy.")
    return http11


def path_of(target: bytes) -> bytes:
    """Return the path and query of a target. A server must accept the absolute form, too (RFC 9112 3.2.2)."""
    if target.startswith(b"/"):
        return target
    absolute = ABSOLUTE_FORM.match(target)
    if absolute is None:
        raise HeadRefused(400, "bad_target", "The request target must be a path.")
    path = target[absolute.end() :]
    return path if path.startswith(b"/") else b"/" + path

"""AWS Signature Version 4. No I/O, and no clock of its own."""

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

ALGORITHM = "AWS4-HMAC-SHA256"
SINGLE = frozenset({"s3", "s3-outposts", "s3express"})
"""Services whose path is signed as it is sent: for every other it is normalised and encoded once more."""
STAMP = "%Y%m%dT%H%M%SZ"
"""The form of the time of a signature, in UTC."""
_SPACES = re.compile(r"\s+")


class AccessKey(NamedTuple):
    """An access key of AWS. The session token is that of a temporary key, else empty."""

    id: str
    secret: str
    session_token: str = ""

    def __repr__(self) -> str:
        return f"AccessKey({self.id[:4]}…)"


class SigningScope(NamedTuple):
    """Where a signature is valid."""

    region: str
    service: str


def encoded_query(pairs: Iterable[tuple[str, str]]) -> str:
    """The canonical form of a query."""
    encoded = [(quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in pairs]
    return "&".join(f"{name}={value}" for name, value in sorted(encoded))


def signed_fields(
    key: AccessKey,
    scope: SigningScope,
    method: str,
    target: str,
    fields: Iterable[tuple[str, str]],
    body: bytes,
    now: float,
    *,
    states_hash: bool = False,
    key_of: "SigningKeys | None" = None,
) -> list[tuple[str, str]]:
    """The header fields that sign a request: add them to its own.

    `target` is the path and the query as they are sent; `fields` are the header fields that are signed, Host among
    them. `now` are Unix seconds. `states_hash` adds the field with the hash of the body, which S3 requires. `key_of`
    replaces the cache of the gateway's own keys.
    """
    stamp = _stamp(int(now))
    digest = hashlib.sha256(body).hexdigest()
    added = [("x-amz-date", stamp)]
    if key.session_token:
        added.append(("x-amz-security-token", key.session_token))
    if states_hash:
        added.append(("x-amz-content-sha256", digest))
    lines, names = _canonical_fields([*fields, *added])
    path, _, query = target.partition("?")
    path = path or "/" if scope.service in SINGLE else _signed_path(path)
    canonical = "\n".join((method, path, _canonical_query(query), lines, names, digest))
    place = f"{stamp[:8]}/{scope.region}/{scope.service}/aws4_request"
    text = "\n".join((ALGORITHM, stamp, place, hashlib.sha256(canonical.encode("utf-8")).hexdigest()))
    signature = hmac.digest((key_of or _own_key)(key.secret, stamp[:8], *scope), text.encode(), "sha256").hex()
    authorization = f"{ALGORITHM} Credential={key.id}/{place}, SignedHeaders={names}, Signature={signature}"
    return [*added, ("authorization", authorization)]


@lru_cache(maxsize=8)
def _stamp(now: int) -> str:
    """The time in Unix seconds. Many requests are signed in one second."""
    return datetime.fromtimestamp(now, UTC).strftime(STAMP)


@lru_cache(maxsize=256)
def _signed_path(path: str) -> str:
    """The path as it is signed. A pool has few paths."""
    return quote(normal_path(path), safe="/~")


def normal_path(path: str) -> str:
    """A path without empty segments and without `.` and `..` (RFC 3986 6.2.2.3)."""
    segments = list[str]()
    for segment in path.split("/"):
        if segment == "..":
            if segments:
                segments.pop()
        elif segment not in ("", "."):
            segments.append(segment)
    ends = "/" if segments and path.endswith("/") else ""
    return f"/{'/'.join(segments)}{ends}"


def _canonical_fields(fields: Iterable[tuple[str, str]]) -> tuple[str, str]:
    """The lines of the signed fields, and their names."""
    values: dict[str, list[str]] = {}
    for name, value in fields:
        values.setdefault(name.lower(), []).append(_SPACES.sub(" ", value.strip()))
    names = sorted(values)
    return "".join(f"{name}:{','.join(values[name])}\n" for name in names), ";".join(names)


def _canonical_query(query: str) -> str:
    """A query that is sent. The verifier decodes it and encodes it by its own rules, so this does too."""
    pairs = [part.partition("=") for part in query.split("&") if part]
    encoded = [(_encoded(name), _encoded(value)) for name, _, value in pairs]
    return "&".join(f"{name}={value}" for name, value in sorted(encoded))


def _encoded(part: str) -> str:
    return quote(unquote_to_bytes(part), safe="-_.~")


def signing_key(secret: str, day: str, region: str, service: str) -> bytes:
    """The key of one day, region and service."""
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


SigningKeys = Callable[[str, str, str, str], bytes]
"""`signing_key`, or a cache of it."""
_own_key: SigningKeys = lru_cache(maxsize=64)(signing_key)
"""Of the gateway's own keys alone: clients choose the region of their signatures, and would evict them."""

"""Signatures of requests to S3 (AWS Signature Version 4)."""

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote

_ALGORITHM = "AWS4-HMAC-SHA256"


class S3Credentials(NamedTuple):
    """The access key, its secret and the region."""

    key_id: str
    secret: str
    region: str


def encoded_query(query: Mapping[str, str]) -> str:
    """The canonical form of a query."""
    return "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in sorted(query.items()))


def signed_headers(
    credentials: S3Credentials,
    method: str,
    host: str,
    path: str,
    query: Mapping[str, str],
    body: bytes,
    now: float,
) -> dict[str, str]:
    """The headers that sign a request. `path` is percent-encoded."""
    time = datetime.fromtimestamp(now, UTC)
    stamp, day = time.strftime("%Y%m%dT%H%M%SZ"), time.strftime("%Y%m%d")
    digest = hashlib.sha256(body).hexdigest()
    headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": stamp}
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    canonical = "\n".join((method, path, encoded_query(query), lines, names, digest))
    scope = f"{day}/{credentials.region}/s3/aws4_request"
    text = "\n".join((_ALGORITHM, stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{credentials.secret}".encode()
    for part in (day, credentials.region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"{credentials.key_id}/{scope}"
    headers["authorization"] = f"{_ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}"
    return headers

"""Requests signed with AWS Signature Version 4."""

import asyncio
import re
import time
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from adapters.credentials.renewed import Renewed
from adapters.credentials.sigv4 import STAMP, AccessKey, SigningScope, signed_fields
from adapters.http1.message import Headers, encode_fields
from adapters.http1.signing import OutgoingRequest

LARGE = 1024 * 1024
"""Bytes of a body from which it is hashed in a thread: hashing a megabyte takes a millisecond."""
SKEW = 240.0
"""Seconds by which clocks may differ: AWS accepts signatures of five minutes."""
EXPIRED = frozenset({"ExpiredTokenException", "ExpiredToken", "UnrecognizedClientException", "InvalidClientTokenId"})
"""The types of errors for a key that is not valid, or no longer."""
_STAMP = re.compile(rb"(?m)^x-amz-date: (\d{8}T\d{6}Z)")
_SIGNED = re.compile(r"content-type|x-amz-.*|anthropic-.*")
"""The fields that are signed besides Host: a proxy on the way may change any other."""
_HOST = re.compile(
    r"(?:[a-z0-9-]+\.)*?(?P<service>[a-z0-9-]+?)(?:-fips)?\.(?P<region>[a-z]{2}(?:-[a-z]+)+-\d)\."
    r"(?:vpce\.)?(?:amazonaws\.com(?:\.cn)?|api\.aws|amazonaws\.eu)"
)
_SERVICES = {
    "bedrock-runtime": "bedrock", "bedrock-agent-runtime": "bedrock", "bedrock-agent": "bedrock",
    "runtime.sagemaker": "sagemaker",
}  # fmt: skip
"""The services in signatures whose host has another name."""


def scope_of_host(host: str) -> tuple[str, str]:
    """The region and the service that the host name of an endpoint of AWS states; empty for another host."""
    match = _HOST.fullmatch(host.lower())
    return ("", "") if match is None else (match["region"], _SERVICES.get(match["service"], match["service"]))


class AwsCredential:
    """See `adapters.http1.signing.Credential`. Pools with the same source share its keys."""

    def __init__(self, pool: str, source: Renewed[AccessKey], scope: SigningScope) -> None:
        self._pool = pool
        self._source = source
        self._scope = scope
        self._ahead = 0.0
        """Seconds by which the server's clock is ahead of this machine's, if the server has reported that."""
        source.pools.add(pool)

    async def apply(self, request: OutgoingRequest) -> bytes:
        key = self._source.valid
        if key is None:
            key = await self._source.get(self._pool)
        fields = [("host", request.host), *_signable(request.fields)]
        sign = signed_fields
        arguments = (
            key, self._scope, request.method.decode(), request.target.decode("latin-1"), fields, request.body,
            time.time() + self._ahead,
        )  # fmt: skip
        added = sign(*arguments) if len(request.body) < LARGE else await asyncio.to_thread(sign, *arguments)
        return encode_fields(added)

    def corrects(self, applied: bytes, status: int, headers: Headers) -> bool:
        """A signature is refused for a wrong clock, and for a key that ended before its expiry.

        A request that was signed before another one corrected the clock is signed again, too. After a correction the
        times agree, so a second refusal has another cause. A key that has been replaced since the request was signed
        says nothing about its successor.
        """
        with suppress(KeyError, TypeError, ValueError, OverflowError):
            now_there = parsedate_to_datetime(headers["date"]).timestamp()
            if abs(now_there - _signed_at(applied)) > SKEW:
                self._ahead = now_there - time.time()
                return True
        error = (headers.get("x-amzn-errortype") or "").partition(":")[0]
        if error not in EXPIRED:
            return False
        key = self._source.valid
        return key is None or not _is_of(key, applied) or self._source.discards(key)


def _signed_at(applied: bytes) -> float:
    """The time of a signature in Unix seconds. Raises `ValueError`."""
    if (stamp := _STAMP.search(applied)) is None:
        raise ValueError("no time of a signature")
    return datetime.strptime(stamp[1].decode(), STAMP).replace(tzinfo=UTC).timestamp()


def _is_of(key: AccessKey, applied: bytes) -> bool:
    """Whether a key made these fields."""
    token = f"x-amz-security-token: {key.session_token}\r\n" if key.session_token else ""
    return f" Credential={key.id}/".encode() in applied and token.encode() in applied


def _signable(fields: bytes) -> list[tuple[str, str]]:
    pairs = (line.partition(":") for line in fields.decode("latin-1").split("\r\n") if line)
    return [(name, value) for name, _, value in pairs if _SIGNED.fullmatch(name.lower())]

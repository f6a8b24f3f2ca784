"""Requests signed with AWS Signature Version 4."""

import asyncio
import re
import time

from adapters.credentials.renewed import Renewed
from adapters.credentials.sigv4 import AccessKey, SigningScope, signed_fields
from adapters.http1.message import Headers, encode_fields
from adapters.http1.signing import OutgoingRequest

LARGE = 1024 * 1024
"""Bytes of a body from which it is hashed in a thread: hashing a megabyte takes a millisecond."""
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
        source.pools.add(pool)

    async def apply(self, request: OutgoingRequest) -> bytes:
        key = self._source.valid
        if key is None:
            key = await self._source.get(self._pool)
        fields = [("host", request.host), *_signable(request.fields)]
        sign = signed_fields
        arguments = (
            key, self._scope, request.method.decode(), request.target.decode("latin-1"), fields, request.body,
            time.time(),
        )  # fmt: skip
        added = sign(*arguments) if len(request.body) < LARGE else await asyncio.to_thread(sign, *arguments)
        return encode_fields(added)

    def corrects(self, applied: bytes, status: int, headers: Headers) -> bool:
        return False


def _signable(fields: bytes) -> list[tuple[str, str]]:
    pairs = (line.partition(":") for line in fields.decode("latin-1").split("\r\n") if line)
    return [(name, value) for name, _, value in pairs if _SIGNED.fullmatch(name.lower())]

"""Calls of a provider's batch API: JSON and lines, with bounded waits."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from adapters.errors import CallerError, InferenceError
from adapters.http1.client import Client, ClientResponse
from adapters.http1.message import encode_fields
from adapters.types import Deadline
from adapters.upstreams.failed_status import CALLER_STATUS, upstream_error
from adapters.wire import decoding
from adapters.wire.failure_text import Scrubber

MOST_JSON = 8 * 1024 * 1024
LONGEST_LINE = 64 * 1024 * 1024
CALL_SECONDS, UPLOAD_SECONDS, IDLE_SECONDS = 60.0, 600.0, 60.0


class _Failure(msgspec.Struct):
    error: Any = None


_failure = msgspec.json.Decoder(_Failure).decode


class Missing(InferenceError):
    """The provider has no such batch or file."""

    kind = "caller"


class Exchanges:
    """Sends the requests of one provider. `base` ends with the API's root. `scrubber` takes the provider's texts."""

    def __init__(self, client: Client, fields: list[tuple[str, str]], scrubber: Scrubber) -> None:
        self._client = client
        self.scrubber = scrubber
        self.base = client.base_path.removesuffix("/v1") + "/v1"
        self._fields = encode_fields([("user-agent", "headrace"), *fields])

    async def json(self, method: str, path: str, body: bytes = b"", kind: str = "application/json") -> Any:
        """The JSON of a response with status 200. Raises `InferenceError`."""
        response = await self._send(method, path, body, kind)
        with decoding.Checked():
            return msgspec.json.decode(await response.read(MOST_JSON))

    async def lines(self, path: str) -> AsyncIterator[bytes]:
        """The lines of a response, as they arrive."""
        response, rest = await self._send("GET", path), bytearray()
        try:
            while piece := await response.piece(IDLE_SECONDS):
                rest += piece
                *lines, last = rest.split(b"\n") if b"\n" in piece else [rest]
                rest = bytearray(last)
                for line in lines:
                    yield bytes(line)
                if len(rest) > LONGEST_LINE:
                    raise decoding.bad_response("A line of the provider's results is too long.")
            if rest.strip():
                yield bytes(rest)
        finally:
            response.close()

    async def _send(self, method: str, path: str, body: bytes = b"", kind: str = "") -> ClientResponse:
        fields = self._fields + (encode_fields([("content-type", kind)]) if body else b"")
        seconds = UPLOAD_SECONDS if body else CALL_SECONDS
        deadline = Deadline(self._client.now() + seconds, seconds, IDLE_SECONDS)
        # A request that creates something is never sent twice.
        response = await self._client.request(
            method.encode(), (self.base + path).encode(), fields, body, deadline, once=method == "POST"
        )
        if response.status not in (200, 201, 202, 204):
            raise self.scrubber.error(await _failure_of(response))
        return response


async def _failure_of(response: ClientResponse) -> InferenceError:
    """The typed error of a status, with the provider's message."""
    try:
        body = await response.read(MOST_JSON)
    finally:
        response.close()
    message = _message(body)
    if response.status == 404:
        return Missing(message or "The provider has no such batch.")
    if response.status in CALLER_STATUS:
        return CallerError(message or "The provider refused the batch.")
    return upstream_error(response.status, response.headers, message)


def _message(body: bytes) -> str:
    try:
        error = _failure(body).error
    except decoding.MALFORMED_JSON:
        return ""
    text = error.get("message") if isinstance(error, dict) else error
    return text[:2000] if isinstance(text, str) else ""

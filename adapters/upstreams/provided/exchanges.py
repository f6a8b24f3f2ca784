"""Calls of a provider's batch API: JSON and lines, with bounded waits."""

from collections.abc import AsyncIterator
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Meta

from adapters.cursors import Cursors
from adapters.errors import CallerError, InferenceError
from adapters.http1.client import Client, ClientResponse
from adapters.http1.message import encode_fields
from adapters.types import Deadline
from adapters.upstreams.failed_status import CALLER_STATUS, upstream_error
from adapters.wire import decoding
from adapters.wire.failure_text import Scrubber

MOST_JSON = 8 * 1024 * 1024
LONGEST_LINE = 64 * 1024 * 1024
MOST_PAGES = 1000
CALL_SECONDS, UPLOAD_SECONDS, IDLE_SECONDS = 60.0, 600.0, 60.0


Id = Annotated[str, Meta(min_length=1, max_length=512)]
Status = Annotated[int, Meta(ge=100, le=599)]
T = TypeVar("T")


class _Failure(msgspec.Struct):
    error: Any = None


class _Page(msgspec.Struct):
    data: list[Any]
    has_more: bool = False


class _Entry(msgspec.Struct):
    id: Id


_failure = msgspec.json.Decoder(_Failure).decode


class Missing(InferenceError):
    """The provider has no such batch or file."""

    kind = "caller"


class Exchanges:
    """Sends the requests of one provider. `base` is the path of the API's root.

    `scrubber` takes the provider's texts.
    """

    def __init__(self, client: Client, base: str, fields: list[tuple[str, str]], scrubber: Scrubber) -> None:
        self._client = client
        self.scrubber = scrubber
        self.base = base
        self._fields = encode_fields([("user-agent", "headrace"), *fields])

    async def json(self, method: str, path: str, body: bytes = b"", kind: str = "application/json") -> Any:
        """The JSON of a response with status 200. Raises `InferenceError`."""
        response = await self._send(method, path, body, kind)
        with decoding.Checked():
            return msgspec.json.decode(await response.read(MOST_JSON))

    async def pages(self, path: str, cursor: str, kind: type[T]) -> AsyncIterator[list[T]]:
        """The pages of a list, newest entries first. `cursor` is the parameter for the id of the page's last entry.

        An entry of another form is left out: it may be that of another client.
        """
        after, cursors = "", Cursors(MOST_PAGES)
        while cursors.take(after):
            page = read(await self.json("GET", f"{path}&{cursor}={segment(after)}" if after else path), _Page)
            yield [entry for each in page.data if (entry := _entry(each, kind)) is not None]
            if not page.has_more or not page.data:
                return
            after = read(page.data[-1], _Entry).id
        raise decoding.bad_response("The provider's list of batches does not end.")

    async def lines(self, path: str) -> AsyncIterator[bytes]:
        """The lines of a response, as they arrive, without blank ones. A line that is too long is cut."""
        response, rest = await self._send("GET", path), bytearray()
        try:
            while piece := await response.piece(IDLE_SECONDS):
                *lines, last = piece.split(b"\n")
                for line in lines:
                    rest += line
                    if rest.strip():
                        yield bytes(rest[: LONGEST_LINE + 1])
                    rest.clear()
                rest += last[: LONGEST_LINE + 1 - len(rest)]
            if rest.strip():
                yield bytes(rest)
        finally:
            response.close()

    async def _send(self, method: str, path: str, body: bytes = b"", kind: str = "") -> ClientResponse:
        fields = self._fields + (encode_fields([("content-type", kind)]) if body else b"")
        seconds = UPLOAD_SECONDS if body else CALL_SECONDS
        deadline = Deadline(self._client.now() + seconds, seconds, IDLE_SECONDS)
        # A request that creates something is never sent twice.
        response = await self._client.request(method.encode(), (self.base + path).encode(), fields, body, deadline)
        if response.status not in (200, 201, 202, 204):
            raise self.scrubber.error(await _failure_of(response))
        return response


def read(value: Any, kind: type[T]) -> T:
    """A part of the provider's JSON. Raises `BackendError`."""
    with decoding.Checked():
        return msgspec.convert(value, kind)


def segment(id_: str) -> str:
    """An id of the provider in a path."""
    return quote(id_, safe="")


def _entry(value: Any, kind: type[T]) -> T | None:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return None


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

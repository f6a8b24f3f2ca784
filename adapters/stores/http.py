"""Requests of every source that speaks HTTP."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp

from adapters.stores.source import Changed, Interrupted, StoreError, shown

CONNECT_SECONDS: Final = 30.0
SILENCE_SECONDS: Final = 60.0
"""Longest time between two pieces of a body."""
MAX_JSON: Final = 64 << 20
_CHUNK: Final = 1 << 20
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(?:\d{1,18}|\*)")

Fields = Callable[[], Awaitable[Mapping[str, str]]]
"""Makes the header fields with the credential of a request."""


async def no_fields() -> Mapping[str, str]:
    """No credential."""
    return {}


class Http:
    """A client. Redirects are followed; to another host they go without the credential."""

    def __init__(self, fields: Fields = no_fields) -> None:
        self._fields = fields
        self._session: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def request(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, *, allowed: tuple[int, ...] = ()
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A response below 300, or with one of the `allowed` status codes. Raises `StoreError`."""
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS)
            self._session = aiohttp.ClientSession(timeout=timeout, trust_env=True, auto_decompress=False)
        sent = {"accept-encoding": "identity", "user-agent": "headrace", **await self._fields(), **(headers or {})}
        try:
            async with self._session.request(method, url, headers=sent) as response:
                if response.status >= 300 and response.status not in allowed:
                    raise _refused(url, response)
                yield response
        except (aiohttp.ClientError, TimeoutError) as error:
            if isinstance(error, aiohttp.InvalidURL | aiohttp.TooManyRedirects):
                raise StoreError(f"{shown(url)}: {type(error).__name__}") from None
            raise Interrupted(f"{shown(url)}: {_reason(error)}") from None

    async def json(self, url: str, headers: Mapping[str, str] | None = None) -> tuple[Any, Mapping[str, str]]:
        """The JSON of a response, and its header fields in lower case. Raises `StoreError`."""
        async with self.request("GET", url, headers) as response:
            body, fields = await bounded(response, MAX_JSON), lower(response.headers)
        try:
            return json.loads(body), fields
        except ValueError:
            raise StoreError(f"{shown(url)}: the answer is no JSON") from None

    async def read(
        self, url: str, offset: int, headers: Mapping[str, str] | None = None, *, tag: str = ""
    ) -> AsyncIterator[bytes]:
        """The bytes of a body from `offset` on. With a `tag`, raises `Changed` if the body has another one."""
        fields = dict(headers or {})
        if offset:
            fields["range"] = f"bytes={offset}-"
            if tag and not tag.startswith("W/"):
                fields["if-range"] = tag
        async with self.request("GET", url, fields, allowed=(416,)) as response:
            if response.status == 416 or (tag and tag_of(lower(response.headers)) != tag):
                raise Changed(f"{shown(url)} has changed while it was pulled")
            skipped = offset - (_start(response) if response.status == 206 else 0)
            if skipped < 0:
                raise StoreError(f"{shown(url)}: the server sent another range")
            async for chunk in response.content.iter_chunked(_CHUNK):
                yield_from, skipped = chunk[skipped:], max(0, skipped - len(chunk))
                if yield_from:
                    yield yield_from

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            await asyncio.sleep(0)


async def bounded(response: aiohttp.ClientResponse, most: int) -> bytes:
    """A whole body. Raises `StoreError` if it is longer than `most` bytes."""
    body = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        body += chunk
        if len(body) > most:
            raise StoreError(f"{shown(str(response.url))}: the answer is longer than {most} bytes")
    return bytes(body)


def lower(headers: Mapping[str, str]) -> dict[str, str]:
    """Header fields with their names in lower case."""
    return {name.lower(): value for name, value in headers.items()}


def tag_of(fields: Mapping[str, str]) -> str:
    """What tells whether a body has changed: its ETag, or the time of its last change; empty without both."""
    return fields.get("etag") or fields.get("last-modified") or ""


def _start(response: aiohttp.ClientResponse) -> int:
    match = _RANGE.fullmatch(response.headers.get("content-range", ""))
    return int(match[1]) if match is not None else -1


class Unauthorized(StoreError):
    """A server demands a credential, or another one."""

    def __init__(self, message: str, challenge: str) -> None:
        super().__init__(message)
        self.challenge = challenge


def _refused(url: str, response: aiohttp.ClientResponse) -> StoreError:
    status = response.status
    hint = ": is the credential valid?" if status in (401, 403) else ""
    message = f"{shown(url)}: the server answers {status}{hint}"
    if status == 401:
        return Unauthorized(message, response.headers.get("www-authenticate", "")[:4096])
    return Interrupted(message) if status in _PASSING else StoreError(message)


def _reason(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the body ended early"
    if isinstance(error, TimeoutError):
        return "the server is silent"
    if isinstance(error, aiohttp.ClientResponseError):  # its text has the URL to which a redirect led
        return f"{type(error).__name__} {error.status}"
    return str(error)[:200] or type(error).__name__

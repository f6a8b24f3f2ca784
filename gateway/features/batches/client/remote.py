"""Files and batches of a gateway, over its API."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

PIECE = 256 * 1024
_PATIENCE = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=120.0)


class RemoteError(Exception):
    """The gateway cannot be reached, or refuses. The message is for the user."""


class RemoteBatches:
    """The batches of one key at one gateway. Methods raise `RemoteError`."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url.removesuffix("/").removesuffix("/v1")

    async def submit(self, path: Path, endpoint: str, window: str) -> dict[str, Any]:
        """Upload a file and create its batch."""
        with path.open("rb") as file:
            form = aiohttp.FormData({"purpose": "batch"})
            form.add_field("file", file, filename=path.name)
            uploaded = await self._call("POST", "/v1/files", data=form)
        body = {"input_file_id": uploaded["id"], "endpoint": endpoint, "completion_window": window}
        return await self._call("POST", "/v1/batches", json=body)

    async def status(self, id_: str) -> dict[str, Any]:
        """A batch."""
        return await self._call("GET", f"/v1/batches/{id_}")

    async def listed(self) -> list[dict[str, Any]]:
        """The newest batches."""
        return list((await self._call("GET", "/v1/batches?limit=100"))["data"])

    async def cancel(self, id_: str) -> dict[str, Any]:
        """Cancel a batch."""
        return await self._call("POST", f"/v1/batches/{id_}/cancel")

    async def fetch(self, file_id: str, to: Path) -> int:
        """Write a file's content. Returns its size."""
        size, new = 0, to.with_name(f"{to.name}.new")
        async with self._answer("GET", f"/v1/files/{file_id}/content") as response:
            with new.open("wb") as file:
                async for piece in response.content.iter_chunked(PIECE):
                    size += file.write(piece)
        new.replace(to)
        return size

    async def _call(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        async with self._answer(method, path, **arguments) as response:
            return dict(await response.json())

    @asynccontextmanager
    async def _answer(self, method: str, path: str, **arguments: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with self._http.request(method, f"{self._url}{path}", timeout=_PATIENCE, **arguments) as response:
                if response.status >= 400:
                    raise RemoteError(f"{self._url}: {response.status}: {await _message(response)}")
                yield response
        except (aiohttp.ClientError, TimeoutError, ValueError, TypeError, RecursionError) as error:
            raise RemoteError(f"{self._url}: {error or type(error).__name__}") from None


async def _message(response: aiohttp.ClientResponse) -> str:
    try:
        return str((await response.json(content_type=None))["error"]["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return response.reason or ""

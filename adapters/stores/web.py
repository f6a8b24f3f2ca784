"""An archive at an HTTP server."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator

from adapters.stores.http import Http, lower, tag_of
from adapters.stores.source import StoredObject, shown
from config.stores import StoreAddress

log = logging.getLogger(__name__)


class WebArchive:
    """The archive at a URL. `#sha256=HEX` in its address is the digest that it must have."""

    def __init__(self, address: StoreAddress, http: Http) -> None:
        self._address = address
        self._http = http
        self._nonce = ""

    async def items(self) -> list[StoredObject]:
        url = self._address.url
        async with self._http.request("HEAD", url, allowed=(405, 501)) as response:
            status, fields = response.status, lower(response.headers)
        if status >= 300:
            async with self._http.request("GET", url) as response:  # the body is not read
                fields = lower(response.headers)
        length = fields.get("content-length", "")
        size = int(length) if length.isascii() and length.isdigit() and 0 < len(length) < 19 else None
        digest = self._address.digest
        return [StoredObject("", url, tag_of(fields) or self._untagged(), size or None, digest, self._address.archive)]

    def _untagged(self) -> str:
        """A version of its own for each process."""
        if not self._nonce:
            self._nonce = f"untagged {os.urandom(8).hex()}"
            message = "%s has no ETag and no time of its last change: it is pulled again at each start, and only then"
            log.warning(message, shown(self._address.url))
        return self._nonce

    def read(self, item: StoredObject, offset: int) -> AsyncIterator[bytes]:
        return self._http.read(item.key, offset, tag="" if item.version == self._nonce else item.version)

    async def aclose(self) -> None:
        await self._http.aclose()

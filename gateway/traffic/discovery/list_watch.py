"""A resource of the Kubernetes API: listed in pages, then watched."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Generic, TypeVar

import aiohttp
import msgspec

from adapters.cursors import Cursors
from adapters.whole_body import whole_body
from adapters.wire import decoding
from gateway.traffic.discovery.cluster_api import ANSWER_SECONDS, ClusterApi, check
from gateway.traffic.discovery.target import DiscoveryError

MAX_LINE = 8 * 1024**2
"""Bytes of a page or of an event."""
MAX_ITEMS = 5_000
MOST_GONE = 5
"""Versions that may be too old before a list and its watch have lasted for `resync`."""
PAUSE_SECONDS = 0.2
"""Seconds between two requests, for a server that ends each watch at once."""
LATE_SECONDS = 5.0
"""Seconds that a watch may exceed its requested duration: after that its connection is considered half open."""

T = TypeVar("T")


class _GoneError(Exception):
    """The version of the watch, or the rest of the list, is too old: a new list is required."""


class ListWatch(Generic[T]):
    """Lists a resource, then watches for changes from the list's version, repeatedly.

    Every `resync` seconds the list is read again, independent of the watch, so that a lost event cannot preserve a
    removed item. A watch that the server ends earlier continues from the last version received (bookmarks count); after
    410 Gone the list is read again. A list counts when its last page has arrived. `items` has a part of each item, by
    name.
    """

    def __init__(
        self,
        api: ClusterApi,
        path: str,
        selector: Mapping[str, str],
        part: Callable[[Mapping[str, Any]], T],
        *,
        resync: float,
        page: int = 500,
    ) -> None:
        self.items: dict[str, T] = {}
        self._api = api
        self._path = path
        self._resource = path.rpartition("/")[2]
        self._selector = selector
        self._part = part
        self._resync = resync
        self._page = str(page)
        self._version = ""

    async def follow(self, http: aiohttp.ClientSession, changed: Callable[[], None]) -> None:
        """Call `changed` after each list and each change, until cancelled. Raises `DiscoveryError`."""
        gone = 0
        try:
            while gone < MOST_GONE:
                try:
                    await self._list(http)
                    changed()
                    await self._watch_until_resync(http, changed)
                    gone = 0
                except _GoneError:
                    gone += 1
                await asyncio.sleep(PAUSE_SECONDS)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise DiscoveryError(f"the Kubernetes API cannot be reached: {error or type(error).__name__}") from None
        except (*decoding.MALFORMED_JSON, AttributeError, TypeError, KeyError, ValueError):
            raise DiscoveryError(f"the Kubernetes API's response is not a list of {self._resource}") from None
        raise DiscoveryError("the Kubernetes API answers each version with 410 Gone")

    async def _watch_until_resync(self, http: aiohttp.ClientSession, changed: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._resync
        while (seconds := until - loop.time()) > 0:
            await self._watch(http, seconds, changed)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _list(self, http: aiohttp.ClientSession) -> None:
        items, cursors = dict[str, T](), Cursors(MAX_ITEMS)
        params = {**self._selector, "limit": self._page}
        while True:
            async with asyncio.timeout(ANSWER_SECONDS), self._api.get(http, self._path, params) as response:
                if response.status == 410:
                    raise _GoneError
                check(response, self._resource)
                page = msgspec.json.decode(await _bounded(response))
            items |= {item["metadata"]["name"]: self._part(item) for item in page.get("items") or ()}
            if len(items) > MAX_ITEMS:
                raise DiscoveryError(f"the selector matches more than {MAX_ITEMS} {self._resource}")
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                break
            params["continue"] = str(metadata["continue"])
            if not cursors.take(params["continue"]):
                raise DiscoveryError(f"the Kubernetes API's list of {self._resource} does not end")
        self.items, self._version = items, str(metadata.get("resourceVersion") or "")

    async def _watch(self, http: aiohttp.ClientSession, seconds: float, changed: Callable[[], None]) -> None:
        params = {
            **self._selector,
            "watch": "1",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, round(seconds))),
        }
        try:
            async with asyncio.timeout(seconds + LATE_SECONDS), self._api.get(http, self._path, params) as response:
                if response.status == 410:
                    raise _GoneError
                check(response, self._resource)
                async for line in _lines(response):
                    if self._take(msgspec.json.decode(line)):
                        changed()
        except TimeoutError:
            return

    def _take(self, event: Mapping[str, Any]) -> bool:
        """Apply an event. Returns whether it changed the items."""
        kind, item = event.get("type"), event["object"]
        if kind == "ERROR":
            if item.get("code") == 410:
                raise _GoneError
            raise DiscoveryError(f"the Kubernetes API ended the watch: {str(item.get('message'))[:200]}")
        metadata = item["metadata"]
        self._version = str(metadata.get("resourceVersion") or self._version)
        if kind in ("ADDED", "MODIFIED"):
            if len(self.items) >= MAX_ITEMS and metadata["name"] not in self.items:
                raise DiscoveryError(f"the selector matches more than {MAX_ITEMS} {self._resource}")
            self.items[metadata["name"]] = self._part(item)
        elif kind == "DELETED":
            self.items.pop(metadata["name"], None)
        return kind in ("ADDED", "MODIFIED", "DELETED")


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    body = await whole_body(response, MAX_LINE)
    if body is None:
        raise DiscoveryError(f"the Kubernetes API's answer is larger than {MAX_LINE // 1024**2} MiB")
    return body


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in response.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                yield line
        if len(rest) > MAX_LINE:
            raise DiscoveryError(f"an event of the Kubernetes API is larger than {MAX_LINE // 1024**2} MiB")

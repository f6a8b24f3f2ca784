"""The process that pulls. Its server writes orders to its stdin, one JSON object a line, and reads the results.

    {"cache": PATH, "most": BYTES}                      first
    {"pull": ADDRESS}                                   any number of times
    {"address", "view", "files", "size", "transferred", "seconds", "error"}   the result of each

An error leaves the view before in service, which `view` then names. The process ends when stdin closes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import IO, Any

from adapters.stores.cache import StoreCache, use
from adapters.stores.places import source_of
from adapters.stores.pull import Puller
from adapters.stores.source import StoreError
from config.stores import address_of

_LINE = 1 << 20
log = logging.getLogger("adapters.stores")


class Service:
    """The places of one server, each with its puller. It holds the views that it names until their next pull."""

    def __init__(self, cache: StoreCache) -> None:
        self._cache = cache
        self._pullers: dict[str, Puller] = {}
        self._held: dict[str, IO[str] | None] = {}

    async def pull(self, text: str) -> dict[str, Any]:
        """The result of a pull."""
        address = address_of(text)
        started = time.monotonic()
        result: dict[str, Any] = {"address": text, "view": None, "files": 0, "size": 0, "transferred": 0, "error": ""}
        try:
            if text not in self._pullers:
                self._pullers[text] = Puller(text, source_of(address), self._cache)
            pulled = await self._pullers[text].pull()
            result |= {"files": pulled.files, "size": pulled.size, "transferred": pulled.transferred}
        except StoreError as error:
            result["error"] = str(error)
        except Exception as error:
            log.exception("%s cannot be pulled", address.label)
            result["error"] = type(error).__name__
        view = self._cache.current(text)
        try:
            self._hold(text, view)
        except OSError as error:
            result["error"] = result["error"] or f"the cache fails: {error.strerror or error}"
        return result | {"view": view and str(view), "seconds": time.monotonic() - started}

    def _hold(self, text: str, view: Path | None) -> None:
        before = self._held.get(text)
        self._held[text] = None if view is None else use(view)
        if before is not None:
            before.close()


async def serve(orders: asyncio.StreamReader, results: IO[bytes]) -> None:
    """Carry out orders until there are no more."""
    first = json.loads(await orders.readline())
    service = Service(StoreCache(Path(first["cache"]), first["most"]))
    running: set[asyncio.Task[None]] = set()

    async def carry_out(order: dict[str, Any]) -> None:
        result = await service.pull(order["pull"])
        results.write(json.dumps(result).encode() + b"\n")
        results.flush()

    while line := await orders.readline():
        task = asyncio.create_task(carry_out(json.loads(line)))
        running.add(task)
        task.add_done_callback(running.discard)


async def main() -> None:
    """Serve until stdin closes."""
    orders = asyncio.StreamReader(_LINE)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    await serve(orders, sys.stdout.buffer)
    os._exit(0)  # threads that hash or unpack have nobody left to work for


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    asyncio.run(main())

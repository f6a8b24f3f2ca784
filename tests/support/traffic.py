"""Clients that keep a gateway busy, and notice every request that is not answered."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from typing import Any
from urllib.parse import urlsplit


class Traffic:
    """Each client sends requests continuously, and reuses a connection for `renew` requests."""

    def __init__(
        self, url: str, key: str, *, renew: int = 20, pause: float = 0.0, total: float = inf, **fields: Any
    ) -> None:
        """`total` is how many requests are sent at most."""
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 0
        body = json.dumps({"model": "chat", "messages": [{"role": "user", "content": "hi"}], **fields}).encode()
        self._request = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {key}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        ).encode() + body
        self._renew = renew
        self._pause = pause
        self._total = total
        self.sent = 0
        self.statuses: Counter[int] = Counter()
        self.texts: Counter[str] = Counter()
        self.dropped: list[str] = []
        """The errors of requests that were sent and not answered."""
        self.refused = 0
        """Connections that could not be made."""
        self.stopping = False

    @property
    def answered(self) -> int:
        return self.statuses.total()

    async def client(self) -> None:
        """Send requests until `stopping`, or until the server no longer listens."""
        while not self.stopping:
            try:
                reader, writer = await asyncio.open_connection(self._host, self._port)
            except ConnectionRefusedError:
                self.refused += 1
                return
            except OSError:
                self.refused += 1
                await asyncio.sleep(0.05)
                continue
            try:
                await self._converse(reader, writer)
            except (OSError, EOFError) as error:
                self.dropped.append(repr(error))
            finally:
                writer.transport.abort()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(self._renew):
            if self.stopping or self.sent >= self._total:
                self.stopping = True
                return
            self.sent += 1
            writer.write(self._request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            answer = json.loads(await reader.readexactly(length))
            status = int(head[9:12])
            self.statuses[status] += 1
            if status == 200:
                self.texts[answer["choices"][0]["message"]["content"]] += 1
            if b"connection: close" in head:
                return
            await asyncio.sleep(self._pause)

    async def until_answered(self, more: int, seconds: float = 60) -> None:
        """Wait until that many more have been answered."""
        goal = self.answered + more
        async with asyncio.timeout(seconds):
            while self.answered < goal:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def traffic(url: str, key: str, clients: int, **options: Any) -> AsyncIterator[Traffic]:
    """Run `clients` clients until the end of the block; after it, every request is answered."""
    made = Traffic(url, key, **options)
    tasks = [asyncio.create_task(made.client()) for _ in range(clients)]
    try:
        yield made
    finally:
        made.stopping = True
        async with asyncio.timeout(300):
            await asyncio.gather(*tasks)

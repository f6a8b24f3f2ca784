"""Clients that send requests to a model all the time and check every answer, while servers are killed."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import aiohttp

LONGEST_S = 60.0


@dataclass(slots=True)
class Seen:
    """The answers. `wrong` are incorrect answers."""

    right: int = 0
    refused: Counter[int] = field(default_factory=Counter)
    broken: int = 0
    """Connections that ended without an answer."""
    wrong: list[str] = field(default_factory=list)
    slowest_s: float = 0.0

    @property
    def failed(self) -> int:
        return self.refused.total() + self.broken


class Clients:
    """So many at a time, one request after another, to an `add_sub` model at a URL."""

    def __init__(self, url: str, model: str = "add_sub", key: str = "") -> None:
        self._url = f"{url}/v2/models/{model}/infer"
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self._rng = random.Random(7)
        self.seen = Seen()

    async def run(self, count: int, ended: asyncio.Event) -> None:
        """Until `ended`, and then wait for the last answers."""
        timeout = aiohttp.ClientTimeout(total=LONGEST_S)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http, asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(self._one(http, ended))

    async def _one(self, http: aiohttp.ClientSession, ended: asyncio.Event) -> None:
        while not ended.is_set():
            if not await self.request(http):
                await asyncio.sleep(0.01)  # bounds the rate of a client that is refused at once

    async def request(self, http: aiohttp.ClientSession) -> bool:
        """Once; whether the answer was right."""
        one, other = ([self._rng.randrange(1000) for _ in range(16)] for _ in range(2))
        rows = {"INPUT0": one, "INPUT1": other}
        inputs = [{"name": name, "datatype": "INT32", "shape": [1, 16], "data": row} for name, row in rows.items()]
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with http.post(self._url, json={"inputs": inputs}, headers=self._headers) as response:
                document = await response.json(content_type=None)
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError):
            self.seen.broken += 1
            return False
        except TimeoutError:
            self.seen.wrong.append(f"no answer within {LONGEST_S:.0f} s")
            return False
        finally:
            self.seen.slowest_s = max(self.seen.slowest_s, loop.time() - began)
        return self._judge(response.status, document, [x + y for x, y in zip(one, other, strict=True)])

    def _judge(self, status: int, document: Any, total: list[int]) -> bool:
        if status != 200:
            self.seen.refused[status] += 1
            if not isinstance(document, dict) or not isinstance(document.get("error"), str):
                self.seen.wrong.append(f"{status} without an error: {document}")
            return False
        sums = [output["data"] for output in document["outputs"] if output["name"] == "OUTPUT0"]
        if sums != [total]:
            self.seen.wrong.append(f"{sums} instead of {total}")
            return False
        self.seen.right += 1
        return True

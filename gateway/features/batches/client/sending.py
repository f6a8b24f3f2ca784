"""Sends lines to a server, a bounded number at a time, and writes each answer once."""

import asyncio
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import aiohttp

from adapters.wire.decoding import whole_number
from gateway.features.batches.client.progress import RunProgress
from gateway.features.batches.client.sources import InputLine
from gateway.traffic.queue import PRIORITY_HEADER

ATTEMPTS = 8
LONGEST_PAUSE = 30.0
_AGAIN = frozenset({408, 409, 429, 500, 502, 503, 504, 529})


class ResultWriter(Protocol):
    """Receives results. `answered` are the ids that have an answer already."""

    answered: set[str]

    def write(self, result: dict[str, Any]) -> None:
        """Write a result."""
        ...


class LineSender:
    """`send` every line of a run."""

    def __init__(self, http: aiohttp.ClientSession, url: str, output: ResultWriter, progress: RunProgress) -> None:
        self._http = http
        self._url = url.removesuffix("/").removesuffix("/v1")
        self._output = output
        self._progress = progress

    async def send(self, lines: Iterator[InputLine], concurrency: int, ended: Callable[[], None]) -> None:
        """Send the lines that have no answer yet. `ended` is called after each result."""
        slots = asyncio.Semaphore(concurrency)

        async def one(line: InputLine) -> None:
            try:
                status, request_id, body = await self._answer(line)
                self._write(line, status, request_id, body)
                ended()
            finally:
                slots.release()

        async with asyncio.TaskGroup() as group:
            for line in lines:
                if line.custom_id not in self._output.answered:
                    await slots.acquire()
                    group.create_task(one(line))

    async def _answer(self, line: InputLine) -> tuple[int, str, Any]:
        """The last answer to a line; a failure that may pass is repeated."""
        pause = 0.5
        for attempt in range(ATTEMPTS):
            try:
                async with self._http.post(
                    f"{self._url}{line.url}", json=line.body, headers={PRIORITY_HEADER: "batch"}
                ) as response:
                    body = await response.json(content_type=None)
                    status, wait = response.status, _seconds(response.headers.get("retry-after"))
                    request_id = response.headers.get("x-request-id", "")
            except (aiohttp.ClientError, TimeoutError, ValueError, RecursionError) as error:
                status, wait, request_id = 502, None, ""
                body = {"error": {"message": f"{type(error).__name__}: {error}", "code": "connection_failed"}}
            if status not in _AGAIN or attempt + 1 == ATTEMPTS:
                break
            await asyncio.sleep(min(LONGEST_PAUSE, pause if wait is None else max(pause, wait)))
            pause *= 2
        return status, request_id, body

    def _write(self, line: InputLine, status: int, request_id: str, body: Any) -> None:
        response = {"status_code": status, "request_id": request_id, "body": body}
        id_ = f"batch_req_{uuid.uuid4().hex}"
        self._output.write({"id": id_, "custom_id": line.custom_id, "response": response, "error": None})
        self._progress.add(line.body.get("model"), status, body)


def _seconds(text: str | None) -> float | None:
    seconds = whole_number(text or "")
    return None if seconds is None else float(seconds)

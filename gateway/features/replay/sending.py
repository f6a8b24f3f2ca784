"""The open loop: sends each request at its time, without regard to the answers of others.

A request whose time has come while `most` requests are in flight waits for one of them, and is late. Latencies begin at
the time at which a request is due, so that a slow server cannot hide the time in which it prevented requests
("coordinated omission"; the README of wrk2). At the highest speed every request is due when it is sent.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import NamedTuple
from urllib.parse import urlsplit

from config.schema.config import CompareConfig
from gateway.features.replay.exchanging import ReplayTarget, ResentRequest, judged
from gateway.features.replay.sent_report import SentReport

BATCH = 64
"""Requests that are read ahead, while earlier ones are sent."""
INTERRUPTED = 130
"""Exit status after SIGINT or SIGTERM, as of a shell."""


class _Batches:
    """Reads requests ahead in a thread."""

    def __init__(self, requests: Iterable[ResentRequest]) -> None:
        self._iterator = iter(requests)
        self._next = self._read()

    def _read(self) -> asyncio.Task[list[ResentRequest]]:
        return asyncio.create_task(asyncio.to_thread(lambda: list(islice(self._iterator, BATCH))))

    async def first(self) -> None:
        """Wait until the first requests are read."""
        await asyncio.wait([self._next])

    async def __aiter__(self) -> AsyncIterator[ResentRequest]:
        while batch := await asyncio.shield(self._next):
            self._next = self._read()
            for request in batch:
                yield request

    async def aclose(self) -> None:
        """Wait for the thread, whose results are not used."""
        await asyncio.gather(self._next, return_exceptions=True)


class OpenLoop:
    """Sends requests at `speed` times their recorded rate; None is as fast as `most` permits."""

    def __init__(
        self, target: ReplayTarget, report: SentReport, speed: float | None, most: int, compare: CompareConfig
    ) -> None:
        self._target = target
        self._report = report
        self._speed = speed
        self._compare = compare
        self._free = asyncio.Semaphore(most)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, requests: Iterable[ResentRequest]) -> None:
        """Send all requests and wait for their answers. A cancellation cancels those in flight, which count as such."""
        batches = _Batches(requests)
        await batches.first()
        start = time.monotonic()
        try:
            async for request in batches:
                due = None
                if self._speed is not None:
                    due = start + request.due / self._speed
                    await asyncio.sleep(due - time.monotonic())
                await self._free.acquire()
                sent = time.monotonic()
                task = asyncio.create_task(self._send(request, sent if due is None else due, sent))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            if self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            await batches.aclose()
            self._report.cancelled += len(self._tasks)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._report.seconds = time.monotonic() - start

    async def _send(self, request: ResentRequest, due: float, sent: float) -> None:
        try:
            received = await self._target.send(request)
        finally:
            self._free.release()
        judgement = await asyncio.to_thread(judged, request, received, self._compare)
        self._report.add(request, received, judgement, due=due, sent=sent)


class SendSettings(NamedTuple):
    """How requests are sent."""

    url: str
    key: str | None
    speed: float | None
    """Times the recorded rate; None for no waits."""
    most: int
    """Requests in flight."""
    seconds: float
    """The timeout of one request."""
    compare: CompareConfig


def speed_of(written: str) -> float | None:
    """The speed in `10`, `10x` or `max`. Raises `ValueError`."""
    if written == "max":
        return None
    try:
        speed = float(written.removesuffix("x"))
    except ValueError:
        speed = 0.0
    if not 0.001 <= speed <= 1e6:
        raise ValueError(f"--speed is a number such as 1 or 10x, or max; got {written!r}")
    return speed


def address_of(written: str) -> str:
    """The checked URL of a target. Raises `ValueError`."""
    parts = urlsplit(written)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"--against is http://HOST:PORT or https://HOST:PORT, got {written!r}")
    if parts.username or parts.password:
        raise ValueError("--against has a credential: pass it by --key or its environment variable")
    return written.rstrip("/")


async def send_all(requests: Iterable[ResentRequest], settings: SendSettings) -> SentReport:
    """Send all requests. SIGINT and SIGTERM end the replay early, with the report of the requests so far."""
    report = SentReport()
    target = ReplayTarget(settings.url, settings.key, settings.seconds)
    loop = asyncio.get_running_loop()
    sending = asyncio.ensure_future(
        OpenLoop(target, report, settings.speed, settings.most, settings.compare).run(requests)
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, sending.cancel)
    try:
        await sending
    except asyncio.CancelledError:
        report.interrupted = True
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        await target.aclose()
    return report

"""Fetches the spans of bundled runtimes for the traces that are exported."""

import asyncio
import logging
from contextlib import suppress

from adapters.errors import InferenceError
from adapters.http1 import client as http1
from adapters.http1.message import encode_fields
from adapters.types import Deadline
from adapters.wire import spans as wire
from gateway.telemetry.traces.encoding import EndedTrace

PAUSE = 0.2
"""Seconds in which attempts are collected for one fetch; a request that was cancelled ends at its runtime meanwhile."""
TIMEOUT = 2.0
MOST_WAITING = 4096
MAX_ANSWER = 16 << 20
_FIELDS = encode_fields([("content-type", "application/octet-stream")])
_TARGET = wire.PATH.encode()

log = logging.getLogger(__name__)


class RuntimeSpans:
    """Adds the spans of runtimes to traces, soon after their end: a runtime's memory for spans is bounded.

    A runtime that has ended, or does not respond, costs its own spans only.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, dict[bytes, EndedTrace]] = {}
        """Traces by the ids of their attempts, by the runtime's address."""
        self._size = 0
        self._some = asyncio.Event()
        self._fetching = asyncio.Lock()
        self.missed = 0
        """Attempts whose runtime has not reported its spans."""

    def add(self, trace: EndedTrace) -> None:
        """Queue the attempts of a trace at runtimes."""
        for span in trace.log.spans:
            if not span.runtime:
                continue
            if self._size >= MOST_WAITING:
                self.missed += 1
                continue
            self._waiting.setdefault(span.runtime, {})[span.id] = trace
            self._size += 1
            self._some.set()

    async def run(self) -> None:
        """Fetch until cancelled."""
        while True:
            await self._some.wait()
            await asyncio.sleep(PAUSE)
            await self.settle()

    async def settle(self) -> None:
        """Fetch the spans of all queued attempts. Fails never, and ends within some `TIMEOUT`."""
        async with self._fetching:
            waiting, self._waiting, self._size = self._waiting, {}, 0
            self._some.clear()
            await asyncio.gather(*[self._fetch_all(address, traces) for address, traces in waiting.items()])

    async def _fetch_all(self, address: str, traces: dict[bytes, EndedTrace]) -> None:
        """Fetch from one runtime. After the first failure the rest is missed."""
        client = http1.Client(address, connect_timeout=TIMEOUT, max_connections=1)
        ids, reported = list(traces), set[bytes]()
        try:
            with suppress(InferenceError, ValueError):
                for start in range(0, len(ids), wire.MOST_IDS):
                    reported |= await self._fetch(client, b"".join(ids[start : start + wire.MOST_IDS]), traces)
        finally:
            await client.aclose()
        self.missed += len(ids) - len(reported)

    async def _fetch(self, client: http1.Client, ids: bytes, traces: dict[bytes, EndedTrace]) -> set[bytes]:
        deadline = Deadline(client.now() + TIMEOUT, TIMEOUT, TIMEOUT)
        response = await client.request(b"POST", _TARGET, _FIELDS, ids, deadline)
        body = await response.read(MAX_ANSWER)
        if response.status != 200:
            raise ValueError(f"HTTP status {response.status}")
        reported = set[bytes]()
        for span in wire.decode(body):
            trace = traces.get(span.attempt)
            if trace is not None and len(trace.log.reported) < wire.MOST_REPORTED:
                wire.add(span, trace.log, _pool(trace, span.attempt), trace.offset)
                reported.add(span.attempt)
        return reported


def _pool(trace: EndedTrace, attempt: bytes) -> str:
    """The pool of an attempt."""
    return next((str(span.attributes["headrace.pool"]) for span in trace.log.spans if span.id == attempt), "")

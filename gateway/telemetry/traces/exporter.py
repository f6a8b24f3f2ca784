"""The queue in front of the collector: batches, retries, and bounds on both."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random

from adapters.spans import SpanContent, SpanLog
from gateway.telemetry.traces.collector import Collector, ExportError
from gateway.telemetry.traces.encoding import EndedTrace, encode
from gateway.telemetry.traces.runtime_spans import RuntimeSpans

BATCH = 256
"""Traces in one export."""
SLICE = 64
"""Spans that are encoded in one turn of the event loop: one to two milliseconds."""
INTERVAL = 1.0
"""Longest time in which traces are collected for one export."""
MOST_CONTENT = 64 << 20
"""Bytes of texts that wait for their export."""
TRIES = 5
FIRST_WAIT, LONGEST_WAIT = 1.0, 30.0
"""Seconds before the second and before a late try."""
LONGEST_PAUSE = 300.0
"""Longest pause before another try that a collector may require."""
LAST_SECONDS = 5.0
"""Time for the traces that are queued when the gateway stops."""

log = logging.getLogger(__name__)


class Exporter:
    """Sends traces to a collector in the background. A slow or dead collector costs traces, never requests."""

    def __init__(
        self,
        collector: Collector,
        resource: Mapping[str, str],
        max_queued: int,
        rng: Random,
        runtimes: RuntimeSpans | None = None,
        ended: Callable[[SpanLog], None] = lambda _: None,
    ) -> None:
        """`runtimes` completes the traces before they are encoded; `ended` receives each that is exported or lost."""
        self.runtimes = runtimes or RuntimeSpans()
        self._collector = collector
        self._resource = resource
        self._max_queued = max_queued
        self._rng = rng
        self._ended = ended
        self._queue: deque[EndedTrace] = deque()
        self._full = asyncio.Event()
        self._some = asyncio.Event()
        self._failing = False
        self._held = 0
        self.exported = 0
        """Traces that the collector has accepted."""
        self.dropped = 0
        """Traces lost: the queue was full, or the collector did not accept them."""
        self.rejected = 0
        """Spans that the collector has rejected in exports that it accepted."""

    @property
    def queued(self) -> int:
        """Traces that wait."""
        return len(self._queue)

    def add(self, trace: EndedTrace) -> bool:
        """Queue a trace. With a full queue it is dropped, and False is returned."""
        if len(self._queue) >= self._max_queued:
            self.dropped += 1
            return False
        for _, content in trace.log.contents:
            self._hold(content)
        self._queue.append(trace)
        self.runtimes.add(trace)
        self._some.set()
        if len(self._queue) >= BATCH:
            self._full.set()
        return True

    async def run(self) -> None:
        """Export batches until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.runtimes.run(), name="spans of runtimes")
            while True:
                await self._some.wait()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._full.wait(), INTERVAL)
                await self._export(TRIES)

    async def aclose(self) -> None:
        """Export the queued spans within `LAST_SECONDS`, and close the connection."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                while self._queue:
                    await self._export(1)
        self.dropped += len(self._queue)
        for trace in self._queue:
            self._ended(trace.log)
        self._queue.clear()
        self._held = 0
        await self._collector.aclose()

    async def _export(self, tries: int) -> None:
        """Send one batch. A batch that is cancelled during its export returns to the queue."""
        batch = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
        if len(self._queue) < BATCH:
            self._full.clear()
        if not self._queue:
            self._some.clear()
        try:
            await self.runtimes.settle()
            await self._add_contents(batch)
            await self._send(batch, tries)
            for trace in batch:
                self._ended(trace.log)
        except asyncio.CancelledError:
            self._queue.extendleft(reversed(batch))
            raise

    def _hold(self, content: SpanContent) -> None:
        """Count the bytes of a content. Beyond `MOST_CONTENT` it is left out."""
        if self._held + content.size > MOST_CONTENT:
            content.omit()
        self._held += content.size

    async def _add_contents(self, batch: list[EndedTrace]) -> None:
        """Add the redacted texts of requests to their spans."""
        for trace in batch:
            while trace.log.contents:
                (span, content), *rest = trace.log.contents
                try:
                    span.attributes |= await content.attributes()
                except Exception as error:  # the span goes without this text
                    self._failed(error)
                self._held -= content.size
                trace.log.contents = tuple(rest)

    async def _send(self, batch: list[EndedTrace], tries: int) -> None:
        (message, count), wait = await self._encoded(batch), FIRST_WAIT
        if not count:
            return
        for left in range(tries - 1, -1, -1):
            try:
                self.rejected += await self._collector.export(message)
            except ExportError as error:
                if not left or not error.again:
                    self.dropped += count
                    self._failed(error)
                    return
                # The jitter spreads the tries of many workers.
                pause = min(error.retry_after or 0.0, LONGEST_PAUSE)
                await asyncio.sleep(max(pause, wait * self._rng.uniform(0.5, 1.0)))
                wait = min(2 * wait, LONGEST_WAIT)
            else:
                self.exported += count
                self._failing = False
                return

    async def _encoded(self, batch: list[EndedTrace]) -> tuple[bytes, int]:
        """One message, and the number of its traces.

        Messages of protobuf that are joined are one message with the lists of all.
        """
        parts: list[bytes] = []
        some: list[EndedTrace] = []
        spans = count = 0
        for number, trace in enumerate(batch, 1):
            some.append(trace)
            spans += len(trace.log.spans) + len(trace.log.reported)
            if spans >= SLICE or number == len(batch):
                part, encoded = self._part(some)
                parts.append(part)
                count += encoded
                some, spans = [], 0
                await asyncio.sleep(0)
        return b"".join(parts), count

    def _part(self, traces: list[EndedTrace]) -> tuple[bytes, int]:
        """Some encoded traces and their number. One that cannot be encoded is lost, and no other."""
        try:
            return encode(self._resource, traces), len(traces)
        except Exception as error:
            if len(traces) > 1:
                parts, counts = zip(*map(self._part, ([trace] for trace in traces)), strict=True)
                return b"".join(parts), sum(counts)
            self.dropped += 1
            self._failed(error)
            return b"", 0

    def _failed(self, error: Exception) -> None:
        """Log the first failure after a success."""
        if not self._failing:
            self._failing = True
            why = "the collector does not accept them" if isinstance(error, ExportError) else type(error).__name__
            log.warning("traces are lost: %s: %s", why, error)

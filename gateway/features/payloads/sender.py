"""The queue of one model's events behind its requests, and the task that redacts and sends them.

A full queue and a receiver that is away lose events, which are counted; requests never wait.
"""

import asyncio
import logging
import time
from collections import Counter, deque
from contextlib import suppress
from random import Random
from typing import NamedTuple

from adapters.wire.cloudevents import CloudEvent
from config.schema.telemetry import PayloadEventsConfig
from gateway.features.payloads.drafts import PayloadDraft
from gateway.features.payloads.events import EventFacts, request_event, response_event
from gateway.features.payloads.sinks import EventSink
from gateway.features.recording.contents import Settings, redacted_draft
from gateway.request.client_exchange import ClientExchange

MOST_WAITING = 1000
MOST_WAITING_BYTES = 64 * 1024 * 1024
BATCH = 32
RETRY_SECONDS = 1.0
"""Seconds without another attempt after a receiver stored none of some events."""
LAST_SECONDS = 5.0
"""Seconds for the events that wait when the sender is closed."""
_log = logging.getLogger(__name__)


class _Waiting(NamedTuple):
    draft: PayloadDraft
    is_whole: bool
    ended: float
    size: int


class PayloadSender:
    """The events of one model. `run` sends until cancelled; then `aclose`."""

    def __init__(self, model: str, config: PayloadEventsConfig, sink: EventSink, rng: Random) -> None:
        self.model = model
        self.config = config
        self.sent: Counter[str] = Counter()
        """Events that were stored, by kind: `request` or `response`."""
        self.lost: Counter[str] = Counter()
        """Events that were lost, by reason: `queue`, `content` or `receiver`."""
        self._sink = sink
        self._rng = rng
        self._settings = Settings(config.redact, b"", digest_only=False)
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._noted = asyncio.Event()
        self._retry_at = 0.0
        self._is_failing = False

    @property
    def waiting(self) -> int:
        """Requests whose events wait."""
        return len(self._waiting)

    def watch(self, exchange: ClientExchange) -> PayloadDraft | None:
        """The draft of a sampled request, which observes it; None for any other request."""
        if self._rng.random() >= self.config.share:
            return None
        return PayloadDraft(exchange, self._put, answers=self.config.mode != "request")

    def _put(self, draft: PayloadDraft, is_whole: bool) -> None:
        size = draft.size
        if not draft.is_decided:
            return
        if len(self._waiting) >= MOST_WAITING or self._bytes + size > MOST_WAITING_BYTES:
            self.lost["queue"] += 1 if self.config.mode != "all" else 2
            return
        self._bytes += size
        self._waiting.append(_Waiting(draft, is_whole, time.time(), size))
        self._noted.set()

    async def run(self) -> None:
        """Send until cancelled. May be called again after an error."""
        while True:
            await self._noted.wait()
            self._noted.clear()
            await self._send_waiting()

    async def aclose(self) -> None:
        """Send what waits, within a few seconds, and leave the receiver."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                await self._send_waiting()
        self.lost["queue"] += len(self._waiting)
        self._waiting.clear()
        await self._sink.aclose()

    async def _send_waiting(self) -> None:
        while self._waiting:
            events: list[CloudEvent] = []
            while self._waiting and len(events) < BATCH:
                waiting = self._waiting.popleft()
                self._bytes -= waiting.size
                events += await self._events(waiting)
            if events:
                await self._send(events)

    async def _events(self, waiting: _Waiting) -> list[CloudEvent]:
        """The events of a request, of the kinds that the configuration has."""
        draft, mode = waiting.draft, self.config.mode
        try:
            content = await redacted_draft(draft, "", self._settings, whole=waiting.is_whole)
        except Exception:
            _log.exception("the payload of a request for %s could not be read", self.model)
            content = None
        if content is None:
            self.lost["content"] += 1
            return []
        if not content.path:
            return []  # no inference: a query about a model
        record = draft.exchange.record
        facts = EventFacts(
            record.request_id, self.model, self.config.namespace, record.arm or "default", draft.arrived, waiting.ended
        )
        events = [request_event(content, facts)] if mode != "response" else []
        if mode != "request" and draft.answer is not None:
            answer = response_event(content, facts)
            if answer is None:
                self.lost["content"] += 1
            else:
                events.append(answer)
        return events

    async def _send(self, events: list[CloudEvent]) -> None:
        if time.monotonic() < self._retry_at:
            self.lost["receiver"] += len(events)
            return
        ends = await self._sink.send(events)
        for event, why in zip(events, ends, strict=True):
            if why:
                self.lost["receiver"] += 1
            else:
                self.sent[event.type.rpartition(".")[2]] += 1
        failed = [why for why in ends if why]
        if len(failed) == len(ends):
            self._retry_at = time.monotonic() + RETRY_SECONDS
        if failed and not self._is_failing:
            _log.warning("payload events of %s are lost: %s", self.model, failed[0])
        elif not failed and self._is_failing:
            _log.warning("payload events of %s are sent again; %d were lost", self.model, self.lost["receiver"])
        self._is_failing = bool(failed)

"""Receivers of events. Each returns which events it has stored, and never raises for a receiver that is away."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import aiohttp

from adapters.brokers.base import BrokerClient, BrokerMessage, BrokerUnavailable, make
from adapters.wire.cloudevents import CloudEvent, headers_of
from config.schema.telemetry import PayloadEventsConfig
from gateway.features.payloads.events import http_headers

AT_ONCE = 8
"""POSTs at the same time."""


class EventSink(Protocol):
    """A receiver."""

    async def send(self, events: Sequence[CloudEvent]) -> list[str]:
        """Send events. For each: why it was not stored, empty if it was."""
        ...

    async def aclose(self) -> None: ...


def make_sink(config: PayloadEventsConfig) -> EventSink:
    """The receiver of a configuration, not connected. The library of its broker is installed."""
    if config.broker is not None:
        return BrokerSink(make(config.broker), config.topic or "")
    return _HttpSink(config)


class _HttpSink:
    """POSTs each event. Redirects are not followed, and proxies of the environment are not used."""

    def __init__(self, config: PayloadEventsConfig) -> None:
        self._url = config.to or ""
        self._seconds = config.timeout
        self._fields = {} if config.key is None else {"authorization": f"Bearer {config.key.get_secret_value()}"}
        self._session: aiohttp.ClientSession | None = None
        self._room = asyncio.Semaphore(AT_ONCE)

    async def send(self, events: Sequence[CloudEvent]) -> list[str]:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=AT_ONCE)
            self._session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        return list(await asyncio.gather(*(self._post(self._session, event) for event in events)))

    async def _post(self, session: aiohttp.ClientSession, event: CloudEvent) -> str:
        headers = {**http_headers(event), **self._fields}
        async with self._room:
            try:
                async with (
                    asyncio.timeout(self._seconds),
                    session.post(self._url, data=event.data, headers=headers, allow_redirects=False) as response,
                ):
                    response.close()  # the body is not read: it may be endless
                    return "" if 200 <= response.status < 300 else f"status {response.status}"
            except TimeoutError:
                return f"no response within {self._seconds:g} s"
            except (aiohttp.ClientError, OSError, ValueError) as error:
                return f"{type(error).__name__}: {error}"[:300]

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()


class BrokerSink:
    """Publishes events to a topic, those of one request in order."""

    def __init__(self, client: BrokerClient, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._is_open = False

    async def send(self, events: Sequence[CloudEvent]) -> list[str]:
        messages = [
            BrokerMessage(self._topic, event.data, headers_of(event), event.id.encode(errors="replace"), _id_of(event))
            for event in events
        ]
        try:
            if not self._is_open:
                await self._client.open()
                self._is_open = True
            ends = await self._client.publish(messages)
        except BrokerUnavailable as error:
            self._is_open = False
            return [str(error)] * len(events)
        return ["" if end is None else str(end) for end in ends]

    async def aclose(self) -> None:
        await self._client.aclose()


def _id_of(event: CloudEvent) -> str:
    return f"{event.id}.{event.type.rpartition('.')[2]}"

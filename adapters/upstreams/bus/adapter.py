"""Adapter of workers behind a message broker: any protocol over HTTP, with messages in the place of connections."""

from __future__ import annotations

from adapters.base import Adapter, Answer
from adapters.brokers.base import BrokerLibraryMissing
from adapters.brokers.base import make as make_broker
from adapters.call import Call
from adapters.registry import Address
from adapters.requests import ModelRequest
from adapters.upstreams.bus.client import BusClient
from adapters.upstreams.dial import names
from adapters.upstreams.oip.http_client import OipHttpAdapter
from adapters.upstreams.openai.client import OpenAIAdapter
from adapters.upstreams.scrubbing import scrubber
from config.schema.bus import BrokerConfig
from config.schema.config import PoolConfig
from config.schema.protocols.bus import BusProtocol


def make(pool: PoolConfig, address: Address) -> BusAdapter:
    """Return the adapter of one broker. Raises `MissingExtra`."""
    from adapters.registry import MissingExtra

    section = pool.protocol
    assert isinstance(section, BusProtocol)
    config = BrokerConfig(
        url=address.url,
        username=section.username,
        password=section.password,
        mechanism=section.mechanism,
        tls=pool.tls,
    )
    try:
        broker = make_broker(config)
    except BrokerLibraryMissing as error:
        raise MissingExtra(str(error)) from None
    client = BusClient(broker, section, pool.max_connections, pool.connect_timeout)
    inner: Adapter = OpenAIAdapter(client, scrubber=scrubber(pool, address.url), **names(pool))
    if section.speaks == "oip-http":
        inner = OipHttpAdapter(client, **names(pool))
    return BusAdapter(client, inner)


class BusAdapter:
    """Adapter of one broker. `inner` encodes the requests."""

    def __init__(self, client: BusClient, inner: Adapter) -> None:
        self._client = client
        self._inner = inner

    @property
    def late(self) -> int:
        """Answers that came after their requests had ended."""
        return self._client.late

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        return await self._inner.call(request, call)

    async def probe(self, timeout: float) -> None:
        """Check that the broker can be reached. The workers behind it are not checked."""
        await self._client.listening(timeout)

    async def aclose(self) -> None:
        await self._client.aclose()

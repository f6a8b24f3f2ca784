"""`protocol: auto`: detects the protocol of an endpoint in the background, then uses its adapter."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from pydantic import TypeAdapter

from adapters.base import Adapter, Answer
from adapters.call import Call
from adapters.detection.detect import detect
from adapters.detection.look import Detection
from adapters.errors import BackendError, InferenceError, Unavailable
from adapters.registry import Address, Unmakeable
from adapters.registry import make as make_adapter
from adapters.requests import ModelRequest
from adapters.upstreams import dial
from config.schema.config import PoolConfig
from config.schema.protocols import AnyProtocol
from config.schema.protocols.base import ProtocolConfig
from config.schema.protocols.catalogue import BUILT_IN

_section: TypeAdapter[ProtocolConfig] = TypeAdapter(AnyProtocol)


class AutoAdapter:
    """The adapter of one endpoint whose protocol is detected.

    The first health check detects the protocol. After a failed health check the next one detects it again, because
    another server may have replaced the former one.
    """

    def __init__(self, pool: PoolConfig, address: Address) -> None:
        self.detection: Detection | None = None
        self.protocol: ProtocolConfig | None = None
        """The detected protocol; None before the detection."""
        self.on_detection: Callable[[], None] = lambda: None
        self._pool = pool
        self._address = address
        self._adapter: Adapter | None = None
        self._doubtful = True
        self._looking: asyncio.Task[None] | None = None

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        if self._adapter is None:
            raise Unavailable("The endpoint's protocol is not detected yet.").because("detecting")
        return await self._adapter.call(request, call)

    async def probe(self, timeout: float) -> None:
        """Detect the protocol if necessary, then probe the endpoint.

        A detection that exceeds `timeout` continues in the background, and a later health check uses its result.
        """
        if self._doubtful:
            if self._looking is None:
                self._looking = asyncio.create_task(self._look())
                self._looking.add_done_callback(lambda look: look.cancelled() or look.exception())
            async with asyncio.timeout(timeout):
                await asyncio.shield(self._looking)
        assert self._adapter is not None
        try:
            await self._adapter.probe(timeout)
        except InferenceError:
            self._doubtful = True
            raise

    async def aclose(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})
        if self._adapter is not None:
            await self._adapter.aclose()

    async def _look(self) -> None:
        try:
            detection = await detect(self._pool, self._address)
            if detection is None:
                raise BackendError("The endpoint's protocol cannot be detected: set `protocol`.")
            await self._speak(detection)
        finally:
            self._looking = None

    async def _speak(self, detection: Detection) -> None:
        """Use the adapter of the detected protocol. An adapter of the same protocol stays, with its connections."""
        way = detection.pools[0]
        if way.protocol["name"] not in BUILT_IN:
            raise BackendError(f"The endpoint is {detection.system}, whose protocol no adapter supports.")
        section = _section.validate_python(dict(way.protocol))
        if self._adapter is None or section != self.protocol:
            former, self._adapter = self._adapter, self._made(section)
            self.protocol = section
            if former is not None:
                await former.aclose()
        self.detection, self._doubtful = detection, False
        self.on_detection()

    def _made(self, section: ProtocolConfig) -> Adapter:
        pool = self._pool.model_copy(update={"protocol": section})
        address = self._address
        if address.tls is not None:
            address = replace(address, tls=dial.tls_context(pool, section.name))
        try:
            return make_adapter(pool, address)
        except Unmakeable as error:
            raise BackendError(str(error)) from None


def make(pool: PoolConfig, address: Address) -> AutoAdapter:
    """Create the adapter of an endpoint; see `adapters.registry`."""
    return AutoAdapter(pool, address)

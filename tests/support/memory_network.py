"""Connections in memory for a loop with virtual time: no system's buffers or timing decide what a test sees."""

import asyncio
from itertools import count
from typing import Any, cast

import pytest

from tests.simulation.virtual import Address, Listener, Network, Protocols, Wire

FIRST_PORT = 40_000


class _Wire(Wire):
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The limit is the network's own."""


class MemoryNetwork(Network):
    """Takes the place of a loop's sockets: what is sent arrives in the loop's next turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(cast(Any, loop))
        self._ports = count(FIRST_PORT)
        monkeypatch.setattr(loop, "create_connection", self._create_connection)
        monkeypatch.setattr(loop, "create_server", self._create_server)

    async def _create_connection(self, factory: Protocols, host: Any = None, port: Any = None, **_: Any) -> Any:
        return await self.connect(factory, (host, port))

    async def _create_server(self, factory: Protocols, host: Any = None, port: Any = None, **_: Any) -> Listener:
        return self.listen(factory, (host, port or next(self._ports)))

    async def connect(self, factory: Protocols, address: Address) -> tuple[Wire, asyncio.Protocol]:
        await asyncio.sleep(0)
        listener = self.listeners.get(address)
        if listener is None:
            raise ConnectionRefusedError(address)
        near, far = _Wire(self._loop, factory()), _Wire(self._loop, listener.factory())
        near.peer, far.peer = far, near
        far.protocol.connection_made(far)
        near.protocol.connection_made(near)
        return near, near.protocol

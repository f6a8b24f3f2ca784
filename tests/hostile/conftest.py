"""The network of hostile servers."""

import asyncio

import pytest

from tests.support.memory_network import MemoryNetwork
from tests.support.shelves import PLAIN, item_shelf


@pytest.fixture
async def network(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections in memory for the plain shelf, and real sockets on the other ones."""
    if item_shelf(request.node) == PLAIN:
        MemoryNetwork(asyncio.get_running_loop(), monkeypatch)

"""An empty fleet, closed after the test."""

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest

from gateway.traffic.fleet.fleet import Fleet


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    made = Fleet(Random(1), asyncio.get_running_loop().time)
    yield made
    await made.aclose()

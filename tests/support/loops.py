"""Tests on both event loops, none of which may leave an error behind unseen: the fixtures of a folder's conftest."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.support.tls import make_certificate

Reports = list[dict[str, Any]]


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture(autouse=True)
def frequent_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines of hundredths of a second, accurate to the hundredth."""
    monkeypatch.setattr("adapters.http1.sweeper.INTERVAL", 0.01)
    monkeypatch.setattr("adapters.http1.sweeper.CALM", 0.01)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls") / "own")


@pytest.fixture(autouse=True)
async def reports() -> AsyncIterator[Reports]:
    """The contexts that reached the loop's exception handler. A test that provokes a report removes it."""
    contexts: Reports = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: contexts.append(context))
    yield contexts
    assert contexts == []

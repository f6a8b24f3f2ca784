"""Calls that are repeated until they succeed, and outages that are logged once."""

import asyncio
import logging

import pytest

from adapters.brokers.base import BrokerUnavailable
from gateway.features.bus.done.table import DoneTableUnavailable
from gateway.state.errors import StoreUnavailable
from gateway.state.insist import LONGEST_PAUSE, Insistence, Outages


@pytest.mark.parametrize(
    ("error", "traceback"),
    [(BrokerUnavailable("gone"), False), (DoneTableUnavailable("gone"), False), (KeyError("QueueUrl"), True)],
)
async def test_a_call_is_repeated_after_any_error(
    error: Exception, traceback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0

    async def call() -> int:
        nonlocal calls
        calls += 1
        if calls < 9:
            assert insist.available is (calls == 1)
            raise error
        return calls

    insist, begun = Insistence("bus work", BrokerUnavailable, DoneTableUnavailable), asyncio.get_running_loop().time()
    with caplog.at_level(logging.WARNING):
        assert await insist("receiving", call) == 9
    assert insist.available
    assert 8 * 0.1 < asyncio.get_running_loop().time() - begun <= 8 * LONGEST_PAUSE
    begin, end = caplog.records
    assert (begin.message.startswith("bus work: receiving waits: "), bool(begin.exc_info)) == (True, traceback)
    assert end.message == "bus work: receiving continues"


async def test_an_error_that_ends_a_call_is_raised() -> None:
    insist = Insistence("batches", OSError, ends=lambda error: isinstance(error, FileNotFoundError))

    async def call() -> None:
        raise FileNotFoundError

    with pytest.raises(FileNotFoundError):
        await insist("reading", call)
    assert insist.available


def test_an_outage_is_logged_at_its_begin_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    outages = Outages("usage")

    def write(error: Exception | None) -> None:
        with outages.noting("writing"):
            if error is not None:
                raise error

    for error in (StoreUnavailable("gone"), StoreUnavailable("slow"), OSError("full"), None, None):
        write(error)
        assert outages.available is (error is None)
    with pytest.raises(KeyError):
        write(KeyError("a defect"))
    assert [record.message for record in caplog.records] == ["usage: writing waits: gone", "usage: writing continues"]

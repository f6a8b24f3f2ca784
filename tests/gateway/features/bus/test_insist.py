"""Calls of a binding that are repeated until they succeed."""

import asyncio
import logging

import pytest

from adapters.brokers.base import BrokerUnavailable
from gateway.features.bus.done.table import DoneTableUnavailable
from gateway.features.bus.insist import LONGEST_PAUSE, Insistence

pytestmark = pytest.mark.plain


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

    insist, begun = Insistence("work"), asyncio.get_running_loop().time()
    with caplog.at_level(logging.WARNING):
        assert await insist("receiving", call) == 9
    assert insist.available
    assert 8 * 0.1 < asyncio.get_running_loop().time() - begun <= 8 * LONGEST_PAUSE
    begin, end = caplog.records
    assert (begin.message.startswith("bus work: receiving waits: "), bool(begin.exc_info)) == (True, traceback)
    assert end.message == "bus work: receiving continues"

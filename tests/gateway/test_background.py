"""A background task that fails begins again, is counted and is logged, on virtual time."""

import asyncio
import logging

import pytest
from prometheus_client import generate_latest
from prometheus_client.registry import CollectorRegistry

from adapters.lasting import LONGEST_PAUSE, failures, lasting
from gateway.background import Background
from gateway.telemetry.background import BackgroundMetrics


class Work:
    """Work that fails at the begin, or after some time."""

    def __init__(self, *errors: BaseException, lasts: float = 0.0) -> None:
        self.errors = list(errors)
        self.lasts = lasts
        self.begun: list[float] = []

    async def run(self) -> None:
        self.begun.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.lasts)
        if self.errors:
            raise self.errors.pop(0)


@pytest.mark.parametrize(
    "error", [RecursionError(), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), ExceptionGroup("a", [KeyError()])]
)
async def test_a_failed_task_begins_again_ever_later_and_is_counted(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    work, before, background = Work(*[error] * 9), failures["feedback"], Background()
    began = asyncio.get_running_loop().time()
    with caplog.at_level(logging.CRITICAL):
        await background.run(work.run, "feedback")
    pauses = [later - earlier for earlier, later in zip(work.begun, work.begun[1:], strict=False)]
    assert pauses == pytest.approx([1, 2, 4, 8, 16, 32, *[LONGEST_PAUSE] * 3])
    assert work.begun[0] - began < 1
    assert failures["feedback"] - before == 9
    assert caplog.messages[0] == "the background task feedback failed and begins again in 1 s"
    assert caplog.records[0].exc_info is not None
    registry = CollectorRegistry()
    registry.register(BackgroundMetrics())
    assert f'headrace_background_failures_total{{task="feedback"}} {failures["feedback"]}' in str(
        generate_latest(registry)
    )
    assert not background.tasks


async def test_a_task_that_ran_for_long_begins_again_soon() -> None:
    work = Work(*[ValueError()] * 5, lasts=2 * LONGEST_PAUSE)
    await lasting("long", work.run)
    pauses = [later - earlier for earlier, later in zip(work.begun, work.begun[1:], strict=False)]
    assert pauses == pytest.approx([2 * LONGEST_PAUSE + 1] * 5)


async def test_a_cancelled_task_ends_and_one_that_a_library_cancels_begins_again() -> None:
    work, background = Work(asyncio.CancelledError(), lasts=1.0), Background()
    task = background.run(work.run, "work")
    await asyncio.sleep(2.5)
    assert len(work.begun) == 2
    await background.cancel()
    assert task.cancelled()
    assert len(work.begun) == 2


async def test_a_task_that_ends_is_not_repeated(caplog: pytest.LogCaptureFixture) -> None:
    work, background = Work(ValueError()), Background()
    background.once(work.run(), "stop of runtime r")
    await asyncio.sleep(100)
    assert len(work.begun) == 1
    assert caplog.messages == ["the background task stop of runtime r failed and is not repeated"]


async def test_endpoints_are_no_values_of_a_label() -> None:
    before = failures["probes"]
    await lasting("probes of endpoint pool/127.0.0.1:9", Work(ValueError()).run)
    assert failures["probes"] - before == 1

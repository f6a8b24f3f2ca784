"""The open loop: requests at their times, within a bound, with a count of late ones. Only lower bounds of times."""

import asyncio
import time
from typing import Any

import pytest

from config.schema.config import CompareConfig
from gateway.features.replay.exchanging import ReceivedAnswer, ReplayTarget, ResentRequest
from gateway.features.replay.sending import OpenLoop
from gateway.features.replay.sent_report import SentReport
from gateway.features.shadow.answers import WholeAnswer
from tests.support.waiting import until


class SlowTarget(ReplayTarget):
    """Answers each request after some seconds, and counts those in flight."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.sent: list[float] = []
        self.busy = self.most = 0

    async def send(self, request: ResentRequest) -> ReceivedAnswer:
        self.sent.append(time.monotonic())
        self.busy += 1
        self.most = max(self.most, self.busy)
        await asyncio.sleep(self.seconds)
        self.busy -= 1
        now = time.monotonic()
        return ReceivedAnswer(200, now, now, WholeAnswer(200, data=b"{}"))


def requests(*due: float) -> list[ResentRequest]:
    return [ResentRequest(at, "/v1/chat/completions", b"{}", {}) for at in due]


async def sent(target: SlowTarget, *due: float, speed: float | None, most: int) -> dict[str, Any]:
    report = SentReport()
    await OpenLoop(target, report, speed, most, CompareConfig()).run(requests(*due))
    return report.as_json()


@pytest.mark.processes
@pytest.mark.parametrize("speed", [1.0, 2.0])
async def test_no_request_is_sent_before_its_time(speed: float) -> None:
    target, began = SlowTarget(0.0), time.monotonic()
    report = await sent(target, 0.0, 0.1, 0.2, speed=speed, most=10)
    assert report["sent"] == 3
    for at, due in zip(target.sent, (0.0, 0.1, 0.2), strict=True):
        assert at - began >= due / speed - 0.001


@pytest.mark.processes
async def test_a_request_that_waits_for_another_is_late_and_its_latency_has_the_wait() -> None:
    target = SlowTarget(0.06)
    report = await sent(target, 0.0, 0.0, 0.0, speed=1.0, most=1)
    assert (target.most, report["sent"]) == (1, 3)
    assert report["late"] >= 2
    assert report["lateness"]["max"] >= 0.1
    assert report["end"]["now"]["max"] >= 0.16


async def test_at_the_highest_speed_no_request_is_late() -> None:
    target = SlowTarget(0.02)
    report = await sent(target, *range(0, 2000, 100), speed=None, most=4)
    assert (target.most, report["sent"], report["late"]) == (4, 20, 0)


async def test_a_cancelled_loop_counts_the_requests_in_flight() -> None:
    target, report = SlowTarget(3600.0), SentReport()
    running = asyncio.create_task(OpenLoop(target, report, 1.0, 2, CompareConfig()).run(requests(0.0, 0.0, 0.0)))
    await until(lambda: target.busy == 2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (report.sent, report.cancelled) == (0, 2)

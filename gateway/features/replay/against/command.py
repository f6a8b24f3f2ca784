"""Runs a replay until its end or a signal."""

import asyncio
import signal
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

from config.schema.config import CompareConfig
from gateway.features.replay.against.exchanging import ReplayTarget
from gateway.features.replay.against.planned import ResentRequest
from gateway.features.replay.against.sending import OpenLoop
from gateway.features.replay.against.sent_report import SentReport

INTERRUPTED = 130
"""Exit status after SIGINT or SIGTERM, as of a shell."""


class SendSettings(NamedTuple):
    """How requests are sent."""

    url: str
    key: str | None
    speed: float | None
    """Times the recorded rate; None for no waits."""
    most: int
    """Requests in flight."""
    seconds: float
    """The timeout of one request."""
    compare: CompareConfig


def speed_of(written: str) -> float | None:
    """The speed in `10`, `10x` or `max`. Raises `ValueError`."""
    if written == "max":
        return None
    try:
        speed = float(written.removesuffix("x"))
    except ValueError:
        speed = 0.0
    if not 0.001 <= speed <= 1e6:
        raise ValueError(f"--speed is a number such as 1 or 10x, or max; got {written!r}")
    return speed


def address_of(written: str) -> str:
    """The checked URL of a target. Raises `ValueError`."""
    parts = urlsplit(written)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"--against is http://HOST:PORT or https://HOST:PORT, got {written!r}")
    if parts.username or parts.password:
        raise ValueError("--against has a credential: pass it by --key or its environment variable")
    return written.rstrip("/")


async def send_all(requests: Iterable[ResentRequest], settings: SendSettings) -> SentReport:
    """Send all requests. SIGINT and SIGTERM end the replay early, with the report of the requests so far."""
    report = SentReport()
    target = ReplayTarget(settings.url, settings.key, settings.seconds)
    loop = asyncio.get_running_loop()
    sending = asyncio.ensure_future(
        OpenLoop(target, report, settings.speed, settings.most, settings.compare).run(requests)
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, sending.cancel)
    try:
        await sending
    except asyncio.CancelledError:
        report.interrupted = True
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        await target.aclose()
    return report

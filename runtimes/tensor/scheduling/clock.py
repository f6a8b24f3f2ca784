"""The clock that orders queues and measures latency."""

import asyncio
import time
from collections.abc import Callable


def clock(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """The loop's time, in a finer resolution if available: uvloop counts milliseconds of the same clock as
    `monotonic`."""
    return time.monotonic if type(loop).__module__.startswith("uvloop") else loop.time

"""Where a codec's function runs: here, or in a worker process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from adapters.offload.density import has_many_values
from adapters.offload.jobs import CodecCall
from adapters.offload.worker_queue import WorkerQueue

LARGE: Final = 64 * 1024
"""Bytes from which a codec that looks at each element leaves the process. They take about 5 ms."""
SCANNED: Final = 4 * 1024 * 1024
"""The same for a codec that only skips over values. They take about 5 ms."""
_MiB: Final = 1024 * 1024
_MEDIUM: Final = 2 * _MiB
P = ParamSpec("P")
T = TypeVar("T")

_medium = WorkerQueue(512 * _MiB)
_large = WorkerQueue(2048 * _MiB)
"""Bodies of usual sizes do not wait behind a huge one."""


async def run(size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What the function returns. `size` is the number of bytes that it reads or writes element by element.

    The function belongs to a module, works on plain data, has no side effects and raises `InferenceError` only.
    Raises `CapacityError` where too many large bodies wait, and `TooLarge` where one takes too much memory.
    """
    if size < LARGE:
        return function(*args, **kwargs)
    lane = _medium if size < _MEDIUM else _large
    future = lane.submit(CodecCall(function, args, dict(kwargs)))
    try:
        value: T = await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        lane.abandon(future)
        raise
    return value


async def scan(size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The same for a function that skips over values: a size from which that takes long is larger."""
    return await run(size if size >= SCANNED else 0, function, *args, **kwargs)


async def parse(body: bytes | memoryview, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The same for a function that decodes `body`, a JSON text whose strings are long as a rule: its values count."""
    size = len(body)
    leaves = size >= SCANNED or (size >= LARGE and has_many_values(body))
    return await run(size if leaves else 0, function, *args, **kwargs)

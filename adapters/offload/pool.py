"""Runs a codec's function in this process or in a worker process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from adapters.offload.density import has_many_values
from adapters.offload.jobs import CodecCall
from adapters.offload.worker_queue import WorkerQueue

LARGE: Final = 64 * 1024
"""Bytes that take a codec about 5 ms if it processes each element. Larger bodies go to a worker."""
SCANNED: Final = 4 * 1024 * 1024
"""The bound for a codec that only skips values."""
_MiB: Final = 1024 * 1024
_MEDIUM: Final = 2 * _MiB
P = ParamSpec("P")
T = TypeVar("T")

_medium = WorkerQueue(512 * _MiB)
_large = WorkerQueue(2048 * _MiB)
"""A separate lane for huge bodies, so that usual bodies do not wait behind them."""


async def run(size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call the function. `size` is the number of bytes that it reads or writes element by element.

    The function belongs to a module, works on plain data, has no side effects and raises `InferenceError` only.
    Raises `CapacityError` if too many large bodies wait, and `TooLarge` if one takes too much memory.
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
    """Like `run`, for a function that only skips values, which is fast up to a larger size."""
    return await run(size if size >= SCANNED else 0, function, *args, **kwargs)


async def parse(body: bytes | memoryview, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Like `run`, for a function that decodes `body`, a JSON text. The number of its values also decides."""
    size = len(body)
    leaves = size >= SCANNED or (size >= LARGE and has_many_values(body))
    return await run(size if leaves else 0, function, *args, **kwargs)

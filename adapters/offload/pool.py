"""Runs a codec's function in this process or in a worker process."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, ParamSpec, TypeVar

from adapters.offload.density import has_many_values
from adapters.offload.jobs import BODY, CodecCall, CodecJob, Cost
from adapters.offload.worker_queue import WorkerQueue

LARGE: Final = 64 * 1024
"""Bytes that take a codec about 5 ms if it processes each element. Larger bodies go to a worker."""
SCANNED: Final = 4 * 1024 * 1024
"""The bound for a codec that only skips values."""
_MiB: Final = 1024 * 1024
_MEDIUM: Final = 2 * _MiB
P = ParamSpec("P")
T = TypeVar("T")

_large = WorkerQueue(2048 * _MiB)
_medium = WorkerQueue(512 * _MiB, beyond=_large)
"""A separate lane for usual bodies, so that they do not wait behind huge ones."""

TENANT: Final = ContextVar("tenant", default="")
"""The tenant whose request this task serves. The tenants' jobs take turns; "" is the server itself.

Whoever establishes a tenant sets it: the record of a request, a batch, a binding of a bus. Tasks inherit it.
"""


async def run(size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call the function. `size` is the number of bytes that it reads or writes element by element.

    The function belongs to a module, works on plain data, has no side effects and raises `InferenceError` only.
    Raises `CapacityError` if too many large bodies of the tenant wait, and `TooLarge` if one takes too much memory or
    processor time.
    """
    if size < LARGE:
        return function(*args, **kwargs)
    return await decode_file(BODY, size, function, *args, **kwargs)


async def decode_file(cost: Cost, size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Like `run`, for a file that a native library decodes: never in this process."""
    job = CodecJob(CodecCall(function, args, dict(kwargs)), TENANT.get(), cost, size)
    value: T = await (_medium if size < _MEDIUM else _large).run(job)
    return value


async def scan(size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Like `run`, for a function that only skips values, which is fast up to a larger size."""
    return await run(size if size >= SCANNED else 0, function, *args, **kwargs)


async def parse(body: bytes | memoryview, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Like `run`, for a function that decodes `body`, a JSON text. The number of its values also decides."""
    size = len(body)
    leaves = size >= SCANNED or (size >= LARGE and has_many_values(body))
    return await run(size if leaves else 0, function, *args, **kwargs)

"""`Upstream`, the interface of everything that answers a call.

An adapter, a pool of adapters, a retry around a pool and a chain of fallbacks all implement it: policies nest
without special cases, and a test puts `adapters.fake` at the bottom.
"""

import asyncio
from typing import Protocol

from adapters.answer import Answer
from adapters.call import Call
from adapters.cut import cancellation
from adapters.errors import InferenceError
from adapters.requests import ModelRequest

__all__ = ["Adapter", "Answer", "Upstream", "as_inference_error"]


class Upstream(Protocol):
    """An object that answers calls."""

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        """Return the answer when it begins. Raises `InferenceError` for an earlier failure."""
        ...


class Adapter(Upstream, Protocol):
    """An upstream that speaks one protocol to one endpoint."""

    async def probe(self, timeout: float) -> None:
        """Check the endpoint's health. Raises `InferenceError` unless it is ready."""
        ...

    async def aclose(self) -> None:
        """Close the connections to the endpoint."""
        ...


def as_inference_error(error: BaseException | None) -> InferenceError | None:
    """The typed error of an end, or None for a defect of the gateway."""
    if isinstance(error, InferenceError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return cancellation()
    return None

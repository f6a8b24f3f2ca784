"""Triton's own asynchronous clients, HTTP and gRPC, unchanged, against a runtime process."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc.aio as grpc_client
import tritonclient.http.aio as http_client

from tests.support.tensor_runtime import TensorRuntime

pytestmark = pytest.mark.processes
ONES = np.ones((1, 16), np.int32)
RAMP = np.arange(16, dtype=np.int32).reshape(1, 16)
CLIENTS = {"http": http_client, "grpc": grpc_client}


@pytest.fixture(params=CLIENTS)
async def connected(request: pytest.FixtureRequest, runtime: TensorRuntime) -> AsyncIterator[tuple[Any, Any]]:
    """A client, and the module it is from."""
    module = CLIENTS[request.param]
    async with module.InferenceServerClient(getattr(runtime, request.param)) as client:
        yield client, module


async def test_many_requests_at_once_are_batched_and_separated(connected: tuple[Any, Any]) -> None:
    client, module = connected

    async def one(number: int) -> None:
        first, second = (module.InferInput(f"INPUT{at}", [1, 16], "INT32") for at in (0, 1))
        first.set_data_from_numpy(RAMP + number)
        second.set_data_from_numpy(ONES)
        result = await client.infer("add_sub", [first, second], request_id=str(number))
        assert (result.as_numpy("OUTPUT0") == RAMP + number + 1).all()

    await asyncio.gather(*(one(number) for number in range(64)))

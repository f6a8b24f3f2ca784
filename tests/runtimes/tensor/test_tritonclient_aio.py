"""Triton's own asynchronous clients, HTTP and gRPC, unchanged, against a runtime process."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc.aio as grpc_client
import tritonclient.http.aio as http_client

from tests.support.tensor_runtime import TensorRuntime

ONES = np.ones((1, 16), np.int32)
RAMP = np.arange(16, dtype=np.int32).reshape(1, 16)
CLIENTS = {"http": http_client, "grpc": grpc_client}


@pytest.fixture(params=CLIENTS)
async def connected(request: pytest.FixtureRequest, runtime: TensorRuntime) -> AsyncIterator[tuple[Any, Any]]:
    """A client, and the module it is from."""
    module = CLIENTS[request.param]
    async with module.InferenceServerClient(getattr(runtime, request.param)) as client:
        yield client, module


def add_sub(module: Any) -> list[Any]:
    inputs = []
    for name, array in (("INPUT0", RAMP), ("INPUT1", ONES)):
        inputs.append(module.InferInput(name, [1, 16], "INT32"))
        inputs[-1].set_data_from_numpy(array)
    return inputs


async def test_many_requests_at_once_are_batched_and_separated(connected: tuple[Any, Any]) -> None:
    client, module = connected

    async def one(number: int) -> None:
        first, second = (module.InferInput(f"INPUT{at}", [1, 16], "INT32") for at in (0, 1))
        first.set_data_from_numpy(RAMP + number)
        second.set_data_from_numpy(ONES)
        result = await client.infer("add_sub", [first, second], request_id=str(number))
        assert (result.as_numpy("OUTPUT0") == RAMP + number + 1).all()

    await asyncio.gather(*(one(number) for number in range(64)))


async def test_reports_of_the_server(connected: tuple[Any, Any]) -> None:
    client, _ = connected
    assert await client.is_server_ready()
    assert await client.is_model_ready("add_sub")
    assert (
        not await client.is_model_ready("add_sub", "9")
        if isinstance(client, http_client.InferenceServerClient)
        else True
    )
    assert await client.get_model_metadata("add_sub")
    assert await client.get_inference_statistics("add_sub")
    assert await client.get_model_repository_index()


async def test_a_stream_of_responses(runtime: TensorRuntime) -> None:
    async def requests() -> AsyncIterator[dict[str, Any]]:
        made = grpc_client.InferInput("IN", [3], "INT32")
        made.set_data_from_numpy(np.array([7, 8, 9], np.int32))
        yield {"model_name": "repeat", "inputs": [made]}

    async with grpc_client.InferenceServerClient(runtime.grpc) as client:
        got = [result.as_numpy("OUT").item() async for result, error in client.stream_infer(requests()) if not error]
    assert got == [7, 8, 9]

"""The gRPC door of tensors, before scripted upstreams, and a client of Triton's stubs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc as stubs

from adapters.fake import Script
from adapters.tensors import Inferred, Tensor
from adapters.types import OIP_GRPC, Usage
from adapters.wire.oip.proto_responses import encode_infer_response
from tests.gateway.fronts.oip import TensorDoor, TensorFake, tensor_door

DATA = np.array([4, 6], dtype=np.int32).tobytes()


def response(id_: str = "", **parameters: Any) -> bytes:
    return encode_infer_response(Inferred("chat", "1", id_, parameters, [Tensor("SUM", "INT32", (1, 2), DATA)]))


def message(**fields: Any) -> pb.ModelInferRequest:
    inputs = [pb.ModelInferRequest.InferInputTensor(name=name, datatype="INT32", shape=[1, 2]) for name in "AB"]
    raw = [np.array(values, dtype=np.int32).tobytes() for values in ([1, 2], [3, 4])]
    parameters = {name: _parameter(value) for name, value in fields.pop("parameters", {}).items()}
    return pb.ModelInferRequest(
        **{"model_name": "chat", "inputs": inputs, "raw_input_contents": raw, "parameters": parameters, **fields}
    )


def _parameter(value: Any) -> pb.InferParameter:
    kind = {bool: "bool_param", int: "int64_param", str: "string_param"}[type(value)]
    return pb.InferParameter(**{kind: value})


SUM = Script(chunks=(response(),), form=OIP_GRPC, usage=Usage(rows=1, device_ms=2.5))


class Grpc:
    """A client that holds the tenant's key."""

    def __init__(self, door: TensorDoor, channel: grpc.aio.Channel) -> None:
        self.door = door
        self.rig = door.rig
        self.stub = stubs.GRPCInferenceServiceStub(channel)
        self.metadata: list[tuple[str, str]] = list(door.keyed.items())

    async def infer(self, request_body: pb.ModelInferRequest | None = None, **kwargs: Any) -> pb.ModelInferResponse:
        call = self.stub.ModelInfer(request_body or message(), metadata=self.metadata, **kwargs)
        return await call

    async def stream(self, *message: pb.ModelInferRequest, **metadata: str) -> list[Any]:
        async def requests() -> AsyncIterator[pb.ModelInferRequest]:
            for one in message:
                yield one

        call = self.stub.ModelStreamInfer(requests(), metadata=[*self.metadata, *metadata.items()])
        return [answer async for answer in call]


@asynccontextmanager
async def grpc_door(*fakes: TensorFake, **changes: Any) -> AsyncIterator[Grpc]:
    opened = tensor_door(*(fakes or (TensorFake(SUM),)), **changes)
    async with opened as d, grpc.aio.insecure_channel(d.grpc) as channel:
        yield Grpc(d, channel)


async def failing(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value

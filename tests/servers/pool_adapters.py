"""Adapters of real servers, created from the configuration of a pool, and requests for them."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from adapters import registry
from adapters.base import Adapter, Answer
from adapters.call import Call
from adapters.registry import Address
from adapters.requests import InferRequest
from adapters.tensors import Inference, Inferred, Tensor, join_bytes, split_bytes
from adapters.types import Deadline
from adapters.upstreams.inferred import inferred
from adapters.wire import sse
from adapters.wire.oip import (
    proto_requests as oip_proto,
)
from adapters.wire.oip import (
    proto_responses as oip_proto_answers,
)
from adapters.wire.oip import (
    requests as oip,
)
from adapters.wire.oip import (
    responses as oip_responses,
)
from adapters.wire.oip.bodies import HttpPayload
from adapters.wire.oip.proto_requests import request_of as grpc_request_of
from adapters.wire.oip.request_view import request_of
from config.schema.config import PoolConfig
from tests.support.gateways import config

PATIENCE = 300.0


@asynccontextmanager
async def adapting(url: str, protocol: str | Mapping[str, Any], **fields: Any) -> AsyncIterator[Adapter]:
    """An adapter for the endpoint of a pool with this configuration."""
    pool: PoolConfig
    (pool,) = config(pools=[{"name": "main", "protocol": protocol, "endpoints": [url], **fields}]).pools
    adapter = registry.make(pool, Address(url))
    try:
        yield adapter
    finally:
        await adapter.aclose()


def within(seconds: float = PATIENCE) -> Call:
    return Call(Deadline(asyncio.get_running_loop().time() + seconds, PATIENCE, PATIENCE))


def infer_request(inference: Inference, sent: str = "json", kind: Any = "infer") -> InferRequest:
    """The request of a client: in `json`, in `binary` form, or over `grpc`."""
    model, version = inference.model_name, inference.model_version
    if sent == "grpc":
        message = oip_proto.encode_infer_request(inference)
        return grpc_request_of(inference, message, model=model, version=version, kind=kind)
    body, length = oip.encode_request(inference, binary=sent == "binary")
    return request_of(body, model=model, version=version, kind=kind, header_length=length)


def with_body(request: InferRequest, body: bytes) -> InferRequest:
    """The request with another JSON body."""
    return replace(request, payload=HttpPayload(body=body))


def prompted(model: str, body: Any, kind: Any = "generate") -> InferRequest:
    """A request of Triton's generate extension."""
    return request_of(json.dumps(body).encode(), model=model, version="", kind=kind)


def outputs(answer: Answer) -> dict[str, Tensor]:
    """The outputs of a whole answer, by name."""
    return {tensor.name: tensor for tensor in inferred(answer).outputs}


def texts(*values: str) -> bytes:
    """The data of a BYTES tensor."""
    return join_bytes([value.encode() for value in values])


def text_of(tensor: Tensor) -> str:
    """The only element of a BYTES tensor."""
    (element,) = split_bytes(tensor.data, 1, tensor.name)
    return element.decode()


async def streamed(answer: Answer) -> list[Inferred]:
    """The responses of a stream."""
    if answer.form.wire == "oip-grpc":
        parts = [oip_proto_answers.split_stream_response(message) async for message in answer]
        assert [error for error, _ in parts] == [""] * len(parts)
        return [oip_proto_answers.decode_infer_response(message) for _, message in parts]
    events = b"".join([piece async for piece in answer]).split(b"\n\n")
    return [oip_responses.decode_response(sse.data_of(event), None) for event in events if event]

"""The door of apps over gRPC, before scripted servers."""

from typing import Any

import grpc
import pytest

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import TransportError
from adapters.fake import FakeAdapter, Script
from adapters.requests import AppRequest, ModelRequest
from adapters.types import APP
from adapters.wire import torchserve
from gateway.fronts.grpc.apps import PROTOBUF
from tests.gateway.fronts.oip import TensorDoor, tensor_door

pytestmark = pytest.mark.realtime  # gRPC has threads

METHOD = "/any.Service/Method"


class Messages(FakeAdapter):
    """Its answers are messages."""

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        answer = await super().call(request, call)
        answer.content_type = PROTOBUF
        return answer


def script(*chunks: bytes, **more: Any) -> Script:
    return Script(chunks=chunks, form=APP, **more)


async def messages(d: TensorDoor, path: str, message: bytes, **metadata: str) -> list[bytes]:
    async with grpc.aio.insecure_channel(d.grpc) as channel:
        fields = tuple({**d.keyed, **metadata}.items())
        return [each async for each in channel.unary_stream(path)(message, metadata=fields)]


async def test_messages_go_on_unread() -> None:
    fake = Messages(script(b"one", b"two"))
    async with tensor_door(fake) as d:
        assert b"".join(await messages(d, METHOD, b"\x00\xff", application="chat")) == b"onetwo"
    request = fake.calls[0].request
    assert isinstance(request, AppRequest)
    assert (request.path, request.body, request.stream, request.repeatable) == (METHOD, b"\x00\xff", True, False)
    [record] = d.rig.log.records
    assert (record.operation, record.model) == ("app", "chat")


async def test_a_break_is_the_calls_status_after_the_sent_messages() -> None:
    broken = script(b"one", fault=TransportError("broken"), fault_after=1)
    async with tensor_door(Messages(broken)) as d, grpc.aio.insecure_channel(d.grpc) as channel:
        fields = tuple({**d.keyed, "application": "chat"}.items())
        call = channel.unary_stream(METHOD)(b"", metadata=fields)
        assert await call.read() == b"one"
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call.read()
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
    [record] = d.rig.log.records
    assert record.error is not None


@pytest.mark.parametrize(
    ("metadata", "code"), [({}, grpc.StatusCode.UNIMPLEMENTED), ({"application": "nobody"}, grpc.StatusCode.NOT_FOUND)]
)
async def test_a_call_that_names_no_model(metadata: dict[str, str], code: grpc.StatusCode) -> None:
    async with tensor_door(Messages(script(b"one"))) as d:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await messages(d, METHOD, b"", **metadata)
        assert refused.value.code() == code


WHOLE = torchserve.encode_request("chat", "", "a", b"1")


@pytest.mark.parametrize("message", [b"\xff", b"\x0a\x04ch", WHOLE[:-1], b"\x0a\x04chat"])
async def test_a_malformed_request_to_torchserve_is_refused(message: bytes) -> None:
    async with tensor_door(Messages(script(b"one"))) as d:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await messages(d, torchserve.PREDICTIONS.decode(), message)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_torchserves_messages_are_read_as_they_are_written() -> None:
    assert torchserve.decode_request(torchserve.encode_request("m", "2.0", "data", b"\x00" * 300)) == (
        "m",
        "2.0",
        b"\x00" * 300,
    )
    assert torchserve.decode_response(torchserve.encode_response(b"x" * 200)) == b"x" * 200

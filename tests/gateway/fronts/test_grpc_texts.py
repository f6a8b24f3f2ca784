"""Texts that are no UTF-8, and tensors in shared memory, at the gRPC doors and at their HTTP sibling."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from adapters.tensors import SHARED_MEMORY
from adapters.wire.protos import METHODS, RpcMethod, inference
from adapters.wire.protos.tfserving import MODEL, PREDICTION
from tests.gateway.fronts.oip import INFER_BODY, TensorFake, tensor_door
from tests.support.grpc_doors import Grpc, failing, grpc_door, message

pytestmark = pytest.mark.realtime  # gRPC has threads

MARK, DEPTH = "mark", 3
ADMITTED = {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND,
            grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.PERMISSION_DENIED}  # fmt: skip


def marked(kind: Any, depth: int = DEPTH) -> Iterator[Message]:
    """The messages of a kind with one text each, for every field and every key and value of a map."""
    for field in kind.DESCRIPTOR.fields:
        made = kind()
        if field.type == field.TYPE_STRING:
            if field.is_repeated:
                getattr(made, field.name).append(MARK)
            else:
                setattr(made, field.name, MARK)
            yield made
        elif field.message_type is not None and field.message_type.GetOptions().map_entry:
            values = field.message_type.fields_by_name["value"]
            if values.type == values.TYPE_STRING:
                getattr(made, field.name)["a"] = MARK
            elif values.message_type is not None:
                getattr(made, field.name)[MARK].SetInParent()
            yield made
        elif field.message_type is not None and depth:
            for inner in marked(field.message_type._concrete_class, depth - 1):
                other = kind()
                holder = getattr(other, field.name)
                (holder.add() if field.is_repeated else holder).CopyFrom(inner)
                yield other


async def code_of(d: Grpc, channel: grpc.aio.Channel, method: RpcMethod, data: bytes) -> grpc.StatusCode:
    """The status of a call with these bytes as its message."""
    try:
        if not method.streams:
            await channel.unary_unary(method.path)(data, metadata=d.metadata)
        else:
            call = channel.stream_stream(method.path)(iter([data]), metadata=d.metadata)
            assert [answer async for answer in call]  # an error of a request is a message
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_no_text_of_a_message_is_an_outage() -> None:
    fake = TensorFake()
    fake.plain = True
    async with grpc_door(fake) as d, grpc.aio.insecure_channel(d.door.grpc) as channel:
        for method in (*METHODS.values(), *PREDICTION.values(), *MODEL.values()):
            for made in marked(method.request):
                data = made.SerializeToString()
                for text in (b"\xff\xff\xff\xff", b"\xed\xa0\x80a", b"a\0\0b"):
                    code = await code_of(d, channel, method, data.replace(b"mark", text))
                    assert code in ADMITTED, (method.path, text, str(made)[:100])
        for sent in fake.received:
            if sent.wire == "oip-grpc":
                inference.ModelInferRequest.FromString(sent.payload.body)  # as the server would
    assert not {"backend", "transport"} & {each.error.kind for each in d.rig.log.records if each.error is not None}


@pytest.mark.parametrize("side", ["inputs", "outputs"])
async def test_a_tensor_in_shared_memory_is_refused_before_a_server_sees_it(side: str) -> None:
    async with tensor_door() as d:
        for name in (SHARED_MEMORY, "shared_memory\\u005fregion"):
            region = b'{"name": "A", "datatype": "INT32", "shape": [1, 2], "parameters": {"%b": "r"}}' % name.encode()
            body = b'{"inputs": [], "%b": [%b]}' % (side.encode(), region)
            body = body.replace(b'"inputs": [], "inputs"', b'"inputs"')
            response = await d.post("/v2/models/chat/infer", body)
            assert (response.status, "send the data" in (await response.json())["error"]) == (400, True)
        assert (await d.post("/v2/models/chat/infer", INFER_BODY)).status == 200
        assert len(d.fake.received) == 1
    async with grpc_door() as g:
        sent = message()
        tensor = sent.outputs.add(name="SUM") if side == "outputs" else sent.inputs[0]
        tensor.parameters[SHARED_MEMORY].string_param = "r"
        if side == "inputs":
            del sent.raw_input_contents[0]
        error = await failing(g.infer(sent))
        assert "send the data" in (error.details() or "")
        (answer,) = await g.stream(sent)
        assert "send the data" in answer.error_message
        assert not g.door.fake.received

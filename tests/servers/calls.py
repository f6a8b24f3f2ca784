"""gRPC calls, message for message, and a server's responses. `exchange.py` is the same for HTTP."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from tritonclient.grpc import service_pb2

from tests.servers.exchange import PATIENCE, Reply, steady

SERVICE = "inference.GRPCInferenceService"


@dataclass(frozen=True, slots=True)
class Call:
    """One call: a message, which may be no message at all, or several for a stream."""

    method: str
    messages: Sequence[bytes]
    answer: str
    """The type of the result."""


def call(method: str, message: Any = b"") -> Call:
    """A unary one."""
    data = message if isinstance(message, bytes) else message.SerializeToString()
    return Call(method, [data], f"{method}Response")


def stream(*messages: Any) -> Call:
    """A call of ModelStreamInfer."""
    return Call("ModelStreamInfer", [one.SerializeToString() for one in messages], "ModelStreamInferResponse")


def called(address: str, one: Call, metadata: Mapping[str, str]) -> Reply:
    """Make it on a channel of its own. `kind` is the status; a failed call's words are each server's own."""
    answers: list[Any] = []
    kind = "OK"
    with grpc.insecure_channel(address) as channel:
        method = channel.stream_stream if one.method == "ModelStreamInfer" else channel.unary_stream
        try:
            messages: Any = iter(one.messages) if one.method == "ModelStreamInfer" else one.messages[0]
            responses = method(f"/{SERVICE}/{one.method}")(messages, timeout=PATIENCE, metadata=list(metadata.items()))
            answers.extend(_document(one.answer, data) for data in responses)  # keeps what came before a failure
        except grpc.RpcError as error:
            kind = error.code().name
    return Reply(0, kind, answers)


def _document(name: str, data: bytes) -> Any:
    message = getattr(service_pb2, name).FromString(data)
    document = MessageToDict(message, preserving_proto_field_name=True)
    if "error_message" in document:
        return {"error_message": True, "id": document.get("infer_response", {}).get("id", "")}
    return steady(document)

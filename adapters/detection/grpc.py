"""Detects gRPC servers: a server that has a service answers its methods, if only with an error."""

from typing import Any

from google.protobuf.message import DecodeError

from adapters.detection.look import DetectedModel, Detection, pool, text
from adapters.detection.oip import KINDS, MOST_MODELS, OTHER, pools
from adapters.errors import InferenceError
from adapters.http2.channel import Channel
from adapters.http2.status import Code, GrpcError
from adapters.types import Deadline
from adapters.wire import proto_json
from adapters.wire.oip import bodies as oip_bodies
from adapters.wire.protos import METHODS

_UNSUPPORTED = frozenset({Code.UNIMPLEMENTED, Code.UNAVAILABLE, Code.UNKNOWN, Code.INTERNAL})
SERVICES = {
    "/tensorflow.serving.ModelService/GetModelStatus": ("TensorFlow Serving", "tfserving", "tfserving-grpc"),
    "/org.pytorch.serve.grpc.inference.InferenceAPIsService/Ping": ("TorchServe", "torchserve", "torchserve-grpc"),
    "/ray.serve.RayServeAPIService/Healthz": ("Ray Serve", "ray-serve", "ray-serve-grpc"),
}
"""The system, and the names of its pool and protocol, by a method that needs neither a credential nor a message."""


async def over_grpc(channel: Channel, deadline: Deadline, names: tuple[str, ...]) -> Detection | None:
    """Detect a gRPC server. Raises `TransportError` if no server responds, or if it responds in HTTP/1.1."""
    server = await _call(channel, deadline, "ServerMetadata")
    if server is not None and text(server.get("name")):
        return await _oip(channel, deadline, server, names)
    for path, (system, name, protocol) in SERVICES.items():
        try:
            await channel.request(path.encode(), b"", b"", deadline)
        except GrpcError as error:
            if error.code in _UNSUPPORTED:
                continue
        return Detection(system, "", (pool(name, protocol, *(DetectedModel(one, "tensors") for one in names)),))
    return None


async def _oip(channel: Channel, deadline: Deadline, server: dict[str, Any], names: tuple[str, ...]) -> Detection:
    kind = KINDS.get(text(server["name"]).lower(), OTHER)
    if not names:
        index = await _call(channel, deadline, "RepositoryIndex", ready=True) or {}
        names = tuple(dict.fromkeys(text(one.get("name")) for one in index.get("models", ())))
    models = {name: _read(await _call(channel, deadline, "ModelMetadata", name=name)) for name in names[:MOST_MODELS]}
    notes = () if models else ("It lists no loaded model. Name your models with --model.",)
    return Detection(
        kind.system,
        text(server.get("version")),
        tuple(pools(kind._replace(generates=False), "oip-grpc", models)),
        notes,
    )


def _read(metadata: dict[str, Any] | None) -> oip_bodies.ModelMetadata | None:
    try:
        return oip_bodies.decode_metadata(oip_bodies.encode(metadata)) if metadata else None
    except InferenceError:
        return None


async def _call(channel: Channel, deadline: Deadline, method_name: str, **fields: Any) -> dict[str, Any] | None:
    """Call a method of the Open Inference Protocol. Returns None for an error or an unreadable response."""
    method = METHODS[method_name]
    try:
        answer, _ = await channel.request(
            method.path.encode(), method.request(**fields).SerializeToString(), b"", deadline
        )
        return proto_json.plain(method.response.FromString(answer))
    except (GrpcError, DecodeError):
        return None

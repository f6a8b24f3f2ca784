"""The gateway's gRPC server, with all gRPC fronts."""

from collections.abc import Callable

from adapters.http2.accepted import Limits, Server
from config.schema.config import HttpConfig
from gateway.fronts.door import Door
from gateway.fronts.grpc.apps import APPLICATION, GrpcAppsFront
from gateway.fronts.grpc.oip import OipGrpcFront
from gateway.fronts.grpc.rpcs import Rpcs
from gateway.fronts.grpc.tfserving import TfServingFront
from gateway.fronts.metadata import Metadata


def grpc_server(door: Door, ready: Callable[[], bool], http: HttpConfig) -> Server:
    """The server, with the limits of the HTTP listener. `ready` reports whether this gateway is ready."""
    oip, tfserving, apps = OipGrpcFront(door, ready), TfServingFront(door, Metadata(door.core)), GrpcAppsFront(door)
    limits = Limits(
        max_head=http.max_head,
        max_message=http.max_body,
        max_connections=http.max_connections,
        greeting_timeout=http.head_timeout,
        message_timeout=http.body_timeout,
        send_timeout=http.send_timeout,
    )
    methods = {**oip.methods, **tfserving.methods, **apps.methods}
    return Server(Rpcs(door, methods, oip.probes, {APPLICATION: apps.named}), limits, door.core.memory.process)

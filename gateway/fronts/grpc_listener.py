"""The gateway's gRPC server: all fronts that speak it."""

from collections.abc import Callable

from adapters.http2.server import Limits, Server
from config.schema import HttpConfig
from gateway.fronts.door import Door
from gateway.fronts.metadata import Metadata
from gateway.fronts.oip_grpc import OipGrpcFront
from gateway.fronts.rpcs import Rpcs
from gateway.fronts.tfserving_grpc import TfServingFront


def grpc_server(door: Door, ready: Callable[[], bool], http: HttpConfig) -> Server:
    """Within the bounds that clients of HTTP have too. `ready` tells whether this gateway is."""
    oip, tfserving = OipGrpcFront(door, ready), TfServingFront(door, Metadata(door.core))
    limits = Limits(
        max_head=http.max_head,
        max_message=http.max_body,
        max_connections=http.max_connections,
        greeting_timeout=http.head_timeout,
        message_timeout=http.body_timeout,
        send_timeout=http.send_timeout,
    )
    return Server(Rpcs(door, {**oip.methods, **tfserving.methods}, oip.probes), limits)

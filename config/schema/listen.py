"""The ``listen`` of the file: the addresses of the listeners, and their TLS."""

from typing import Annotated, Literal

from pydantic import Field

from config.schema.bus.binding import BindingConfig
from config.schema.section import Section
from config.schema.text import PemFile
from config.schema.units import HostPort, Listen

ListenerKind = Literal["http", "grpc", "endpoint_picker"]
"""The listeners for clients, by the names of their fields."""


class ListenTls(Section):
    """Certificate chain and private key of the listeners, as PEM files."""

    cert: PemFile
    """Certificate chain, the server's own certificate first."""
    key: PemFile
    """Private key of the certificate."""
    client_ca: PemFile | None = None
    """Root certificates that client certificates are verified against. A changed file needs a restart."""
    client_auth: Literal["optional", "required"] = "optional"
    """``required`` refuses every connection without a client certificate, even if the client has another credential."""


class ListenConfig(Section):
    """Addresses of the listeners. The admin listener is separate, so that clients cannot reach it."""

    http: Listen = HostPort("127.0.0.1", 8080)
    """HTTP listener for clients."""
    grpc: Listen | None = None
    """gRPC listener for clients of the Open Inference Protocol and TensorFlow Serving; no such listener when absent.
    Uses TLS when ``tls`` is set."""
    endpoint_picker: Listen | None = None
    """gRPC listener for Envoy-based gateways (docs/endpoint-picker.md); no such listener when absent. They send each
    request here by external processing, and forward it to the endpoint that a pool picks. Uses TLS when ``tls`` is set.
    Keep it out of reach of clients."""
    endpoint_picker_alternatives: Annotated[int, Field(ge=0, le=7)] = 2
    """The most endpoints that Envoy receives besides the picked one, for its own retries. 0 for a cluster of the type
    ``ORIGINAL_DST``, which accepts one endpoint."""
    admin: Listen = HostPort("127.0.0.1", 8082)
    """Listener for operators: metrics, health, administration. Keep it out of reach of clients."""
    bus: tuple[BindingConfig, ...] = ()
    """Topics of message brokers whose messages are requests. A change needs a restart."""
    keda: Listen | None = None
    """gRPC listener for KEDA's external scaler; no such listener when absent. It reports the number of replicas that
    pools need, to every client, without TLS: let only KEDA reach it."""
    tls: ListenTls | None = None
    """Enables TLS on the listeners for clients."""
    admin_tls: bool = False
    """Enables TLS on the admin listener with the same files. Client certificates then count there too."""

"""The ``listen`` and ``http`` of the file: the addresses of the listeners, and bounds on connections and requests."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from config.schema.bus import BindingConfig
from config.schema.section import Section
from config.schema.text import PemFile, Shape
from config.schema.units import HELD_COPIES, Delay, Duration, HostPort, Listen, Network, Size, format_size

Origin = Annotated[
    str,
    Shape(
        r"https?://(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:]+\])(?::[0-9]{1,5})?",
        "an origin as browsers send it, such as https://app.example.com or http://localhost:3000, in lower case and "
        "without a path",
    ),
]


class CorsConfig(Section):
    """Cross-origin requests of browsers to the HTTP listener. Origins are compared exactly."""

    origins: tuple[Origin, ...] = Field(min_length=1, max_length=1000)
    """Origins whose pages may send requests and read responses."""
    max_age: Delay = 600.0
    """How long a browser may cache the response to a preflight request."""


class HttpConfig(Section):
    """Bounds on client connections and requests."""

    max_head: Size = 32 * 1024
    """Largest request line and headers together."""
    max_body: Size = 32 * 1024**2
    """Largest request body; a larger one is refused with 413."""
    head_timeout: Duration = 10.0
    """Longest time from the first byte of a request to the end of its headers."""
    body_timeout: Duration = 30.0
    """Longest time until the body is complete."""
    keepalive_timeout: Duration = 75.0
    """How long an idle connection stays open."""
    send_timeout: Duration = 60.0
    """How long a client may read nothing of its response before its connection is closed."""
    max_connections: int = Field(10_000, ge=1)
    """Open client connections of each listener. At the bound, idle connections are closed for new ones. The effective
    bound is lower, and logged at start-up, when the limit of open files is too low."""
    cors: CorsConfig | None = None
    """Origins whose web pages may use the HTTP listener; none when absent."""
    stream_comments: Duration | None = None
    """After this time without a first event, a stream begins with a comment, and sends another one at the same
    interval. So no proxy closes the silent connection. The status is then 200: a later failure is sent as an event,
    which client libraries do not retry. Disabled when absent."""
    http2: bool = True
    """Whether HTTP/2 is served, with or without TLS. Each stream counts as a connection. A client that supports both
    versions is served over HTTP/1.1, which costs less."""
    trusted_proxies: tuple[Network, ...] = Field((), max_length=256)
    """Addresses and networks of proxies whose ``x-forwarded-for`` is read, such as ``10.0.0.0/8``. The client is then
    the last address there that is not of a trusted proxy: in the access log, records, traces and the audit log.
    When empty, the client is the one that has opened the connection."""
    max_held: Size | None = None
    """Bytes that all requests of one process may hold at once; more are refused with 503. A body counts three times
    (received, decoded, sent). Response bytes count until the client has read them. When absent: 2 GiB, or eight of the
    largest bodies if that is more."""
    max_held_by_tenant: Size | None = None
    """The same bound for each tenant; more are refused with 429. Half of ``max_held`` when absent."""

    @property
    def held_by_all(self) -> int:
        """Maximum of bytes that a process holds."""
        return max(2 * 1024**3, 8 * HELD_COPIES * self.max_body) if self.max_held is None else self.max_held

    @property
    def held_by_tenant(self) -> int:
        """Maximum of bytes that a tenant holds."""
        return self.held_by_all // 2 if self.max_held_by_tenant is None else self.max_held_by_tenant

    @model_validator(mode="after")
    def _largest_body_fits(self) -> Self:
        largest = HELD_COPIES * self.max_body
        if self.held_by_tenant < largest:
            raise ValueError(
                f"a tenant may hold {format_size(self.held_by_tenant)}, and the largest body takes "
                f"{format_size(largest)}: raise `max_held`, or lower `max_body`"
            )
        if self.held_by_tenant > self.held_by_all:
            raise ValueError("`max_held_by_tenant` is more than `max_held`, which all tenants share")
        return self


ListenerKind = Literal["http", "grpc", "endpoint_picker"]
"""The listeners for clients, by the names of their fields."""


class ListenTls(Section):
    """Certificate chain and private key of the listeners, as PEM files."""

    cert: PemFile
    """Certificate chain, the server's own certificate first."""
    key: PemFile
    """Private key of the certificate."""
    client_ca: PemFile | None = None
    """Root certificates that client certificates are verified against. A changed file counts for new connections."""
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

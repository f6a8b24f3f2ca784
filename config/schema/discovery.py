"""Where a pool's endpoints are found while it runs: ``discover`` of a pool."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, WithJsonSchema, model_validator

from config.schema.section import Section
from config.schema.text import LocalFile, PemFile, Shape, Url
from config.schema.units import Duration

DnsName = Annotated[
    str, Shape(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}:[1-9]\d{0,4}", "HOST:PORT, such as models.example.org:8000")
]
SrvName = Annotated[
    str, Shape(r"_[A-Za-z0-9-]{1,62}\._(tcp|udp)(\.[A-Za-z0-9_-]{1,63})+\.?", "a name such as _http._tcp.example.org")
]
Nameserver = Annotated[
    str, Shape(r"(\[[0-9A-Fa-f:.]+\]|[0-9.]+)(:[1-9]\d{0,4})?", "an address such as 10.0.0.2 or 10.0.0.2:8600")
]
ServiceName = Annotated[str, Shape(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", "a Kubernetes name such as vllm")]
PORT = r"[1-9]\d{0,4}|[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?"
PortName = Annotated[
    str,
    Shape(PORT, "a port's number or its name"),
    BeforeValidator(lambda port: str(port) if type(port) is int else port),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": f"^({PORT})$"}]}),
]


class KubernetesConfig(Section):
    """The EndpointSlices of a service. Inside a cluster only the service need be given."""

    service: ServiceName
    """The service's name. It may be headless; its own address is not used."""
    namespace: ServiceName | None = None
    """The gateway's own when absent."""
    port: PortName | None = None
    """Of the service's target ports, by number or name; may be absent when there is only one."""
    server: Url | None = None
    """The API server, where the gateway runs outside."""
    ca: PemFile | None = None
    """Roots for the API server's certificate; the service account's when absent."""
    token_file: LocalFile | None = None
    """A bearer token, read again before each request; the service account's when absent."""
    resync: Duration = 60.0
    """How often the whole list is read beside the watch, so that no missed event counts for longer."""


class DiscoverConfig(Section):
    """One source of endpoints. They come and go without a reload; those that go end their requests first."""

    dns: DnsName | None = None
    """``HOST:PORT``: every A and AAAA record of the host is an endpoint."""
    srv: SrvName | None = None
    """A name such as ``_http._tcp.models.example.org``: the targets of its SRV records, of the first priority,
    with their ports and weights."""
    file: LocalFile | None = None
    """A YAML or JSON file with ``endpoints:``, a list as in a pool. It is followed, and taken whole or not at all."""
    kubernetes: KubernetesConfig | None = None
    """The endpoints of a Kubernetes service that are ready."""
    scheme: Literal["http", "https"] = "http"
    """How the endpoints found are spoken to. Certificates are checked against the name that was looked up, or
    ``tls.server_name`` of the pool. Not for ``file``, which has whole URLs."""
    nameserver: Nameserver | None = None
    """For ``dns`` and ``srv``: whom to ask, instead of the system's."""
    ttl_min: Duration = 5.0
    """For ``dns`` and ``srv``: records are kept for at least this long, whatever their TTL."""
    ttl_max: Duration = 300.0
    """For ``dns`` and ``srv``: and for at most this long."""
    grace: Duration = 300.0
    """How long the last endpoints are kept when the source says that there are none. While it cannot be asked
    at all they are kept without an end. Health checks and breakers go on in both cases."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if sum(source is not None for source in (self.dns, self.srv, self.file, self.kubernetes)) != 1:
            raise ValueError("has one source: give dns, srv, file or kubernetes")
        if self.ttl_min > self.ttl_max:
            raise ValueError("ttl_min is at most ttl_max")
        return self

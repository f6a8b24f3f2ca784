"""The ``discover`` of a pool: sources of endpoints at runtime."""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, WithJsonSchema, model_validator

from config.schema.section import Conflict, Section
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
PoolName = Annotated[
    str, Shape(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", "the name of an InferencePool such as vllm-qwen")
]
PORT = r"[1-9]\d{0,4}|[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?"
PortName = Annotated[
    str,
    Shape(PORT, "a port's number or its name"),
    BeforeValidator(lambda port: str(port) if type(port) is int else port),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": f"^({PORT})$"}]}),
]


class ClusterConfig(Section):
    """Access to the API server of a cluster. Inside the cluster no field is needed."""

    namespace: ServiceName | None = None
    """Namespace of the resource; the gateway's own when absent."""
    server: Url | None = None
    """URL of the API server, for a gateway outside the cluster."""
    ca: PemFile | None = None
    """Root certificates of the API server; the service account's when absent."""
    token_file: LocalFile | None = None
    """File with a bearer token, read again before each request; the service account's when absent."""
    resync: Duration = 60.0
    """How often the whole list is read beside the watch, which bounds the effect of a missed event."""


class KubernetesConfig(ClusterConfig):
    """The EndpointSlices of a Service. Inside a cluster only ``service`` is needed."""

    service: ServiceName
    """Name of the Service, which may be headless. Its cluster address is not used."""
    port: PortName | None = None
    """Target port of the Service, by number or name. Optional when there is only one."""


class InferencePoolConfig(ClusterConfig):
    """The pods of an InferencePool of Kubernetes' Gateway API Inference Extension. A name alone is a short form, for a
    pool in the gateway's own namespace and cluster."""

    name: PoolName
    """Name of the InferencePool, of ``inference.networking.k8s.io/v1`` or of the alpha versions. Every ready pod of its
    selector is an endpoint at each of its target ports."""


def _named(value: object) -> object:
    """A section from its short form."""
    return {"name": value} if isinstance(value, str) else value


class DiscoverConfig(Section):
    """One source of endpoints, which appear and disappear without a reload. A removed endpoint finishes its requests
    first."""

    dns: DnsName | None = None
    """``HOST:PORT``. Every A and AAAA record of the host is an endpoint."""
    srv: SrvName | None = None
    """Name of SRV records, such as ``_http._tcp.models.example.org``. The targets of the first priority are endpoints,
    with their ports and weights."""
    file: LocalFile | None = None
    """YAML or JSON file with ``endpoints:``, a list as in a pool. The gateway follows the file and applies it whole or
    not at all."""
    kubernetes: KubernetesConfig | None = None
    """Ready endpoints of a Kubernetes Service."""
    inference_pool: Annotated[InferencePoolConfig | None, BeforeValidator(_named, PoolName | InferencePoolConfig)] = (
        None
    )
    """Pods of an InferencePool: its name, or a section."""
    scheme: Literal["http", "https"] = "http"
    """Scheme of the discovered endpoints. Certificates are verified against the looked-up name or the pool's
    ``tls.server_name``. Not for ``file``, which has whole URLs."""
    nameserver: Nameserver | None = None
    """With ``dns`` and ``srv``: name server to query instead of the system's."""
    ttl_min: Duration = 5.0
    """With ``dns`` and ``srv``: shortest time that records are used, even if their TTL is shorter."""
    ttl_max: Duration = 300.0
    """With ``dns`` and ``srv``: longest time that records are used."""
    grace: Duration = 300.0
    """How long the last endpoints are used after the source reports none. While the source is unavailable they are used
    without a bound. Health checks and breakers apply in both cases."""

    def _sources(self) -> tuple[object, ...]:
        return self.dns, self.srv, self.file, self.kubernetes, self.inference_pool

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if sum(source is not None for source in self._sources()) != 1:
            raise ValueError("has one source: give dns, srv, file, kubernetes or inference_pool")
        if self.ttl_min > self.ttl_max:
            raise ValueError("ttl_min is at most ttl_max")
        return self

    def conflicts(self) -> Iterator[Conflict]:
        if self.file is not None:
            yield from self.inert("has no effect: the file has whole URLs", "scheme")
        if self.dns is None and self.srv is None:
            message = "has no effect: only dns and srv query a nameserver"
            yield from self.inert(message, "nameserver", "ttl_min", "ttl_max")

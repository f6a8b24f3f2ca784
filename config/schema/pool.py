"""The ``pools`` of the file: servers, with their balancing, probes and protection."""

from typing import Literal, Self

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from config.protocols import AnyProtocol, Serves
from config.protocols.openai import OpenAIProtocol
from config.runtimes import AnyRuntime, LlmRuntime, VllmRuntime
from config.schema.balance import BalanceConfig, OutliersConfig
from config.schema.discovery import DiscoverConfig
from config.schema.queue import QueueConfig
from config.schema.section import Section
from config.schema.text import KeyHeader, Name, PemFile, ProbePath, Secret, Url
from config.schema.units import Duration


class EndpointConfig(Section):
    """One server address. A URL alone is short for ``{url: URL}``."""

    url: Url
    """``http://HOST:PORT``, ``https://HOST:PORT`` or ``unix:/PATH``."""
    weight: float = Field(1.0, gt=0)
    """Share of the requests, relative to the pool's other endpoints."""
    zone: Name | None = None
    """Zone of the endpoint. Endpoints in the gateway's own ``zone`` are preferred."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: object) -> object:
        return {"url": data} if isinstance(data, str) else data

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        reference = handler(schema)
        url = handler.resolve_ref_schema(reference)["properties"]["url"]
        return {"anyOf": [url, reference]}


class ProbeConfig(Section):
    """Active health check. The breaker is the passive one."""

    path: ProbePath | None = None
    """Path that a healthy endpoint answers with 200. When absent: ``/health``, ``/v2/health/ready`` of the Open
    Inference Protocol, or the protocol's readiness call over gRPC."""
    interval: Duration = 5.0
    """Time between two probes, with a jitter of a tenth."""
    timeout: Duration = 2.0
    """Time after which an unanswered probe has failed."""
    unhealthy_after: int = Field(2, ge=1)
    """Consecutive failures after which an endpoint is unhealthy."""
    healthy_after: int = Field(1, ge=1)
    """Consecutive successes after which it is healthy again."""
    ask: str | None = Field(None, min_length=1)
    """Name of a model. After the path check, the probe requests one token of this model, which shows that the server
    computes. The response "overloaded" counts as healthy. Each probe costs one token."""


class BreakerConfig(Section):
    """Circuit breaker: stops requests to an endpoint that fails repeatedly, then tries one request."""

    failures: int = Field(5, ge=1)
    """Consecutive failures that open the breaker. Errors of the client do not count."""
    open_for: Duration = 10.0
    """How long the breaker stays open before one trial request."""


class UpstreamTls(Section):
    """TLS to ``https://`` endpoints."""

    ca: PemFile | None = None
    """Root certificates to trust instead of the system's."""
    cert: PemFile | None = None
    """Client certificate chain, for servers that require one."""
    key: PemFile | None = None
    """Private key of the client certificate."""
    server_name: str | None = Field(None, min_length=1, max_length=253)
    """Name that the server's certificate must have, if it differs from the host of the URL."""

    @model_validator(mode="after")
    def _pair(self) -> Self:
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key go together: give both or neither")
        return self


class PoolConfig(Section):
    """A set of endpoints that serve the same models, or one server that the gateway starts."""

    name: Name
    """Name of the pool, for routes."""
    protocol: AnyProtocol = OpenAIProtocol()
    """Protocol of the endpoints: a name, or a name with options."""
    endpoints: tuple[EndpointConfig, ...] = ()
    """Addresses of servers that already run."""
    discover: DiscoverConfig | None = None
    """Source of endpoints while the gateway runs, alone or beside ``endpoints``."""
    runtime: AnyRuntime | None = None
    """A server that the gateway starts: a bundled runtime, vLLM, or any command."""
    model: str | None = Field(None, min_length=1)
    """Name of the model at the endpoints, if it differs from the name that clients use."""
    key: Secret | None = None
    """Credential that the gateway sends to the endpoints. A ``file:`` is read again when it changes."""
    key_header: KeyHeader | None = None
    """Header that carries ``key``: ``authorization`` as a Bearer token, any other (``api-key``, ``x-api-key``) as the
    bare key. The protocol's own header when absent."""
    tls: UpstreamTls | None = None
    """TLS to ``https://`` endpoints; verified against the system's root certificates when absent."""
    balance: BalanceConfig = BalanceConfig()
    """Selection of an endpoint."""
    probe: ProbeConfig | None = ProbeConfig()
    """Active health check; ``null`` disables it."""
    breaker: BreakerConfig = BreakerConfig()
    """Circuit breaker of each endpoint."""
    outliers: OutliersConfig | None = None
    """Ejection of endpoints that fail more often than the others; disabled when absent."""
    connect_timeout: Duration = 5.0
    """Longest time to open a connection."""
    max_connections: int = Field(256, ge=1)
    """Connections to one endpoint. Beyond the bound, requests wait in the ``queue`` or are refused with 503."""
    queue: QueueConfig | None = None
    """Queue for requests that find every endpoint full. Without one they are refused at once."""
    resume: Literal["text", "tokens"] | None = None
    """Continue a broken stream on another endpoint. ``text`` uses vLLM's ``continue_final_message``, which SGLang
    supports too. ``tokens`` continues exactly, on Headrace's own runtime only."""

    @property
    def model_name(self) -> str | None:
        """The servers' name of the model; None for the client's name or the route's rewrite."""
        return self.name if isinstance(self.runtime, LlmRuntime | VllmRuntime) else self.model

    @property
    def serves(self) -> frozenset[Serves]:
        """The operations of the endpoints."""
        bundled = self.runtime.serves if self.runtime is not None else None
        return self.protocol.offers if bundled is None else bundled

    @property
    def takes_tensors(self) -> bool:
        """Whether the endpoints accept inferences of tensors."""
        return "tensors" in self.serves

    @property
    def max_in_flight(self) -> int:
        """Maximum of concurrent requests at one endpoint."""
        cap = self.queue.max_in_flight if self.queue is not None else self.max_connections
        if cap is None:
            cap = self.runtime.max_num_seqs if isinstance(self.runtime, LlmRuntime) else self.max_connections
        return min(cap, self.max_connections)

    @model_validator(mode="after")
    def _auto_needs_probe(self) -> Self:
        if self.probe is None and self.protocol.name == "auto":
            raise ValueError("protocol auto needs the probe: health checks detect the protocol of an endpoint")
        return self

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.runtime is None) == (not self.endpoints and self.discover is None):
            raise ValueError("a pool has either endpoints, written or to discover, or a runtime: give one of the two")
        return self

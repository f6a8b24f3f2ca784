"""The ``pools`` part of the file: servers that answer, and how each is balanced, probed and protected."""

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
    """One server address. Its URL alone is short for ``{url: URL}``."""

    url: Url
    """``http://HOST:PORT``, ``https://HOST:PORT`` or ``unix:/PATH``."""
    weight: float = Field(1.0, gt=0)
    """Share of the requests, relative to the pool's other endpoints."""
    zone: Name | None = None
    """Where it stands. Endpoints of the gateway's own `zone` are preferred."""

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
    """Active health check. Passive ones (the breaker) watch real traffic."""

    path: ProbePath | None = None
    """A GET of this path that is answered with 200 is healthy. When absent ``/health``, or ``/v2/health/ready`` of the
    Open Inference Protocol; over gRPC the server is asked for its readiness."""
    interval: Duration = 5.0
    """Between two probes, spread by a tenth so that many gateways do not ask in step."""
    timeout: Duration = 2.0
    """A probe with no answer by then has failed."""
    unhealthy_after: int = Field(2, ge=1)
    """Failures in a row that take an endpoint out."""
    healthy_after: int = Field(1, ge=1)
    """Successes in a row that bring it back."""
    ask: str | None = Field(None, min_length=1)
    """A model's name: after the path, one token of it is asked for, which shows that the server computes and not
    only that it listens. Being answered "overloaded" counts as healthy. It costs that token, each time."""


class BreakerConfig(Section):
    """Stops sending to an endpoint that keeps failing, then tries one request."""

    failures: int = Field(5, ge=1)
    """Failures in a row that open it. A client's own errors are not failures."""
    open_for: Duration = 10.0
    """How long it stays open before the one trial."""


class UpstreamTls(Section):
    """How an ``https://`` endpoint is checked."""

    ca: PemFile | None = None
    """Roots to trust, instead of the system's."""
    cert: PemFile | None = None
    """Client certificate chain, for servers that ask for one."""
    key: PemFile | None = None
    """The client certificate's private key."""
    server_name: str | None = Field(None, min_length=1, max_length=253)
    """The name that the server's certificate must have, where it is another than the URL's host."""

    @model_validator(mode="after")
    def _pair(self) -> Self:
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key go together: give both or neither")
        return self


class PoolConfig(Section):
    """A set of endpoints that serve the same thing, or one server that the gateway starts itself."""

    name: Name
    """What routes call it."""
    protocol: AnyProtocol = OpenAIProtocol()
    """What the endpoints speak, with options where it has any. ``oip``: the Open Inference Protocol, as Triton, KServe
    and MLServer do."""
    endpoints: tuple[EndpointConfig, ...] = ()
    """Servers that run already."""
    discover: DiscoverConfig | None = None
    """Or servers that are found while the gateway runs, instead of those or beside them."""
    runtime: AnyRuntime | None = None
    """Or a server that the gateway starts itself: a bundled one, vLLM, or any other."""
    model: str | None = Field(None, min_length=1)
    """The model's name at the endpoints, where it differs from the one that clients ask for."""
    key: Secret | None = None
    """What the endpoints know the gateway by. A ``file:`` is read again when it changes."""
    key_header: KeyHeader | None = None
    """The header that carries the ``key``: ``authorization`` as a Bearer token, any other (``api-key``,
    ``x-api-key``) as it is. When absent, the one of the protocol."""
    tls: UpstreamTls | None = None
    """How ``https://`` endpoints are checked; against the system's roots when absent."""
    balance: BalanceConfig = BalanceConfig()
    """How a request's endpoint is picked."""
    probe: ProbeConfig | None = ProbeConfig()
    """Active health check; ``null`` turns it off."""
    breaker: BreakerConfig = BreakerConfig()
    """When an endpoint that fails real requests is left alone."""
    outliers: OutliersConfig | None = None
    """When one that fails more of them than the others do is left alone too; never when absent."""
    connect_timeout: Duration = 5.0
    """How long opening a connection may take."""
    max_connections: int = Field(256, ge=1)
    """Per endpoint; beyond it requests wait in the ``queue``, or are refused with 503."""
    queue: QueueConfig | None = None
    """Who may wait while every endpoint is full; when absent nobody does, and requests are refused at once."""
    resume: Literal["text", "tokens"] | None = None
    """Carry a stream on at another endpoint when its own breaks, and how that is asked for. ``text``: vLLM's
    ``continue_final_message``, which SGLang has too. ``tokens``: exactly, and Headrace's own runtime only."""

    @property
    def model_name(self) -> str | None:
        """What its servers call the model; None for as the client does, or the route writes."""
        return self.name if isinstance(self.runtime, LlmRuntime | VllmRuntime) else self.model

    @property
    def serves(self) -> frozenset[Serves]:
        """What its endpoints do."""
        bundled = self.runtime.serves if self.runtime is not None else None
        return self.protocol.offers if bundled is None else bundled

    @property
    def takes_tensors(self) -> bool:
        """Whether its endpoints can be asked for an inference."""
        return "tensors" in self.serves

    @property
    def takes_text(self) -> bool:
        """Whether its endpoints can be asked for a text."""
        return "text" in self.serves

    @property
    def max_in_flight(self) -> int:
        """Requests that one endpoint has at a time."""
        cap = self.queue.max_in_flight if self.queue is not None else self.max_connections
        if cap is None:
            cap = self.runtime.max_num_seqs if isinstance(self.runtime, LlmRuntime) else self.max_connections
        return min(cap, self.max_connections)

    @model_validator(mode="after")
    def _found_out(self) -> Self:
        if self.probe is None and self.protocol.name == "auto":
            raise ValueError("protocol auto needs the probe: health checks find out what an endpoint speaks")
        return self

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.runtime is None) == (not self.endpoints and self.discover is None):
            raise ValueError("a pool has either endpoints, written or to discover, or a runtime: give one of the two")
        return self

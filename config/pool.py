"""The ``pools`` part of the file: servers that answer, and how each is balanced, probed and protected."""

from typing import Annotated, Literal, Self

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from config.queue import QueueConfig
from config.section import Section
from config.text import Name, PemFile, Secret, Shape, Url
from config.units import Delay, Duration, Percent, Size

HashKey = Annotated[
    str, Shape(r"user|key|tenant|header:[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}", "user, key, tenant or header:NAME")
]
ProbePath = Annotated[str, Shape(r"/\S{0,512}", "a path such as /health")]


class RuntimeConfig(Section):
    """A bundled server that the gateway starts and watches."""

    kind: Literal["llm"]
    """Which bundled server."""
    model: str = Field(min_length=1)
    """``bundled:NAME``, ``hf:ORG/NAME``, or a path to a GGUF file or a safetensors folder, relative to the
    working directory."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Number format of the weights. ``auto``: bfloat16 where the device has it in hardware, else float32."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute. ``auto``: a GPU if there is one."""
    threads: int | None = Field(None, ge=1)
    """CPU threads; PyTorch's own choice when absent."""
    max_model_len: int | None = Field(None, ge=16)
    """Longest prompt plus answer, in tokens; the model's own limit when absent."""
    max_num_seqs: int = Field(32, ge=1)
    """Requests computed together in one step."""
    max_num_batched_tokens: int = Field(512, ge=16)
    """Tokens computed in one step. More: faster prompts, and slower answers beside a long prompt."""
    kv_cache: Size = 512 * 1024**2
    """Memory for the key-value cache, which bounds how many tokens are in flight."""
    max_queue: int = Field(256, ge=1)
    """Requests that may wait; beyond it they are refused with 503."""
    start_timeout: Duration = 300.0
    """How long loading the model may take."""


class EndpointConfig(Section):
    """One server address. Its URL alone is short for ``{url: URL}``."""

    url: Url
    """``http://HOST:PORT``, ``https://HOST:PORT`` or ``unix:/PATH``."""
    weight: float = Field(1.0, gt=0)
    """Share of the requests, relative to the pool's other endpoints."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: object) -> object:
        return {"url": data} if isinstance(data, str) else data

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        reference = handler(schema)
        url = handler.resolve_ref_schema(reference)["properties"]["url"]
        return {"anyOf": [url, reference]}


class BalanceConfig(Section):
    """How a pool picks an endpoint."""

    by: Literal["round_robin", "least_request", "peak_ewma", "hash", "prefix_affinity"] = "least_request"
    """``least_request``: the less loaded of two drawn at random. ``round_robin``: in turn, by weight.
    ``peak_ewma``: the quicker of two, by their latency and load. ``hash``: the same one for the same `key`.
    ``prefix_affinity``: the one that computed the prompt's beginning before."""
    key: HashKey | None = None
    """For ``hash``: ``user`` (the request's user field), ``key``, ``tenant`` or ``header:NAME``. Requests
    without it go by ``least_request``."""
    bound: Percent = 1.5
    """For ``hash`` and ``prefix_affinity``: how loaded an endpoint may be, against its fair share or against
    the least loaded one, before its requests go elsewhere."""
    slow_start: Delay = 0.0
    """How long an endpoint that is new or came back takes to climb from a tenth of its weight to all of it."""
    panic: Percent = 0.0
    """When fewer than this share of the endpoints is healthy, health is ignored; ``0%``: never."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.by == "hash" and self.key is None:
            raise ValueError("hash needs a key: user, key, tenant or header:NAME")
        if self.bound <= 1:
            raise ValueError("a bound is above 100%, which is an even load")
        if self.panic > 1:
            raise ValueError("a panic threshold is at most 100%")
        return self


class ProbeConfig(Section):
    """Active health check. Passive ones (the breaker) watch real traffic."""

    path: ProbePath = "/health"
    """A GET of this path that is answered with 200 is healthy."""
    interval: Duration = 5.0
    """Between two probes, spread by a tenth so that many gateways do not ask in step."""
    timeout: Duration = 2.0
    """A probe with no answer by then has failed."""
    unhealthy_after: int = Field(2, ge=1)
    """Failures in a row that take an endpoint out."""
    healthy_after: int = Field(1, ge=1)
    """Successes in a row that bring it back."""


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

    @model_validator(mode="after")
    def _pair(self) -> Self:
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key go together: give both or neither")
        return self


class PoolConfig(Section):
    """A set of endpoints that serve the same thing, or one bundled runtime."""

    name: Name
    """What routes call it."""
    protocol: Literal["openai"] = "openai"
    """What the endpoints speak."""
    endpoints: tuple[EndpointConfig, ...] = ()
    """Servers that run already."""
    runtime: RuntimeConfig | None = None
    """Or a bundled server, which the gateway starts itself."""
    model: str | None = Field(None, min_length=1)
    """The model's name at the endpoints, where it differs from the one that clients ask for."""
    key: Secret | None = None
    """Bearer token sent to the endpoints."""
    tls: UpstreamTls | None = None
    """How ``https://`` endpoints are checked; against the system's roots when absent."""
    balance: BalanceConfig = BalanceConfig()
    """How a request's endpoint is picked."""
    probe: ProbeConfig | None = ProbeConfig()
    """Active health check; ``null`` turns it off."""
    breaker: BreakerConfig = BreakerConfig()
    """When an endpoint that fails real requests is left alone."""
    connect_timeout: Duration = 5.0
    """How long opening a connection may take."""
    max_connections: int = Field(256, ge=1)
    """Per endpoint; beyond it requests wait in the ``queue``, or are refused with 503."""
    queue: QueueConfig | None = None
    """Who may wait while every endpoint is full; when absent nobody does, and requests are refused at once."""

    @property
    def max_in_flight(self) -> int:
        """Requests that one endpoint has at a time."""
        cap = self.queue.max_in_flight if self.queue is not None else self.max_connections
        if cap is None:
            cap = self.runtime.max_num_seqs if self.runtime is not None else self.max_connections
        return min(cap, self.max_connections)

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.runtime is None) == (not self.endpoints):
            raise ValueError("a pool has either endpoints or a runtime: give one of the two")
        return self

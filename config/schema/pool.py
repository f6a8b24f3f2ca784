"""The ``pools`` of the file: servers, with their balancing, probes and protection."""

from typing import Literal, Self

from pydantic import Field, model_validator

from config.schema.balance import BalanceConfig, OutliersConfig, QueueConfig
from config.schema.batches import ProviderBatchesConfig
from config.schema.bus import EndpointUrl, UpstreamTls, is_broker
from config.schema.discovery import DiscoverConfig
from config.schema.protocols import AnyProtocol, Serves
from config.schema.protocols.credentials import CredentialsConfig
from config.schema.protocols.egress import HeaderConfig, ProxyConfig
from config.schema.protocols.language import AnthropicProtocol, OpenAIProtocol
from config.schema.runtimes import AnyRuntime, EndpointScaleConfig, LlmRuntime, ScaleConfig, VllmRuntime
from config.schema.section import Section, ShortSection
from config.schema.text import KeyHeader, Name, ProbePath, Secret
from config.schema.units import Duration, Rate, Size

_OF_TEXT = ("openai", "anthropic", "gemini", "vertex", "bedrock", "tgi", "triton-generate", "auto")
PLACES = 8
"""Requests at the same time of a replica of a runtime that states no number."""


class AccountLimitsConfig(Section):
    """The amounts that the workers of this host together send to each model of an endpoint."""

    requests: Rate | None = None
    """Requests per period."""
    tokens: Rate | None = None
    """Prompt and completion tokens per period. A request reserves its prompt and its ``max_tokens``, or 256, until its
    answer reports the exact number."""

    @model_validator(mode="after")
    def _of_something(self) -> Self:
        if self.requests is None and self.tokens is None:
            raise ValueError("limits nothing: give requests, tokens or both")
        return self


class PromptCacheConfig(Section):
    """Marks the beginnings of prompts that the provider keeps in its cache: at most four. A request with marks of its
    own is left as it is."""

    system: bool = True
    """Mark the end of the system prompt."""
    tools: bool = True
    """Mark the end of the tools."""
    turns: int = Field(1, ge=0, le=4)
    """Mark so many of the user's last turns, as far as four marks suffice."""
    ttl: Literal["5m", "1h"] = "5m"
    """How long the provider keeps a beginning after its last use."""
    min_tokens: int = Field(1024, ge=1)
    """Estimated tokens of the shortest beginning that is marked. Providers keep none below 1024, some none below 4096.
    """

    @model_validator(mode="after")
    def _of_something(self) -> Self:
        if not (self.system or self.tools or self.turns):
            raise ValueError("marks nothing: give system, tools or turns")
        return self


ACCOUNT_FIELDS = ("name", "key", "credentials", "key_header", "headers", "model", "region", "limits")
"""The fields of an endpoint by which it has an account, a model or limits of its own."""
_REGIONS = ("region", "location")
"""The fields of protocols that name a region of the provider."""


class EndpointConfig(ShortSection):
    """One server address, with an account of its own if it has a ``key``. A URL alone is short for ``{url: URL}``."""

    short = "url"

    url: EndpointUrl
    """``http://HOST:PORT``, ``https://HOST:PORT`` or ``unix:/PATH``; with ``protocol: bus`` a message broker."""
    weight: float = Field(1.0, gt=0)
    """Share of the requests, relative to the pool's other endpoints."""
    zone: Name | None = None
    """Zone of the endpoint. Endpoints in the gateway's own ``zone`` are preferred."""
    name: Name | None = None
    """Name of the endpoint in metrics, logs and the console. Endpoints with the same URL are numbered without it."""
    key: Secret | None = None
    """Credential for this endpoint alone; the pool's when absent."""
    credentials: CredentialsConfig | None = None
    """Credentials that are made for this endpoint alone, instead of ``key``; the pool's when absent."""
    key_header: KeyHeader | None = None
    """Header that carries ``key``; the pool's when absent."""
    headers: tuple[HeaderConfig, ...] = Field((), max_length=32)
    """Header fields of every request to this endpoint, beside the pool's. One of the same name replaces the pool's."""
    model: str | None = Field(None, min_length=1)
    """Name of the model at this endpoint; the pool's when absent."""
    region: str | None = Field(None, min_length=1, max_length=64)
    """Region of the provider for this endpoint, in place of the ``region`` or ``location`` of the protocol."""
    limits: AccountLimitsConfig | None = None
    """What the gateway may send to each model of this endpoint. What the provider reports in its headers applies in any
    case."""

    @property
    def is_account(self) -> bool:
        """Whether it has an account, a model or limits of its own."""
        return any(self.has(field) for field in ACCOUNT_FIELDS)


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


class PoolConfig(Section):
    """A set of endpoints that serve the same models, or one server that the gateway starts."""

    name: Name
    """Name of the pool, for routes."""
    protocol: AnyProtocol = OpenAIProtocol()
    """Protocol of the endpoints: a name, or a name with options."""
    endpoints: tuple[EndpointConfig, ...] = ()
    """Addresses of servers that already run. A protocol of one provider has the provider's address when absent."""
    discover: DiscoverConfig | None = None
    """Source of endpoints while the gateway runs, alone or beside ``endpoints``."""
    runtime: AnyRuntime | None = None
    """A server that the gateway starts: a bundled runtime, vLLM, or any command."""
    scale: EndpointScaleConfig | None = None
    """Number of endpoints that serve. With ``discover`` an autoscaler runs them, by ``listen.keda`` or the metrics;
    with ``endpoints`` and ``sleep`` the gateway wakes them. A runtime has ``replicas``."""
    model: str | None = Field(None, min_length=1)
    """Name of the model at the endpoints, if it differs from the name that clients use."""
    key: Secret | None = None
    """Credential that the gateway sends to the endpoints. A ``file:`` is read again when it changes."""
    credentials: CredentialsConfig | None = None
    """Credentials that the gateway makes and renews, in place of ``key``: see ``docs/credentials.md``."""
    key_header: KeyHeader | None = None
    """Header that carries ``key``: ``authorization`` as a Bearer token, any other (``api-key``, ``x-api-key``) as the
    bare key. The protocol's own header when absent."""
    headers: tuple[HeaderConfig, ...] = Field((), max_length=32)
    """Further header fields of every request to the endpoints. A value that is a credential is a ``secret``."""
    proxy: ProxyConfig | None = None
    """Proxy to the endpoints, over HTTP. When absent, ``HTTPS_PROXY`` and ``HTTP_PROXY`` of the environment apply to
    public hosts that ``NO_PROXY`` does not list."""
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
    connection_age: Duration = 300.0
    """Age at which a connection to a host name is replaced, once it is free. So another address of the name takes
    effect. Each connection is replaced up to a fifth of this time earlier."""
    max_connections: int = Field(256, ge=1)
    """Connections to one endpoint. Beyond the bound, requests wait in the ``queue`` or are refused with 503."""
    max_answer: Size = 64 * 1024**2
    """Bytes of the longest answer of text, and of the longest event of a stream: a streamed image is one event. An
    endpoint that sends more has failed. Each open stream may hold that much. For the protocols ``openai``,
    ``anthropic``, ``gemini``, ``vertex``, ``bedrock``, ``tgi``, ``triton-generate`` and ``auto``."""
    queue: QueueConfig | None = None
    """Queue for requests that find every endpoint full. Without one they are refused at once."""
    prompt_cache: PromptCacheConfig | None = None
    """Marks prompts for the cache of the provider, for the protocols ``anthropic``, ``bedrock``, ``gemini`` and
    ``vertex``."""
    resume: Literal["text", "tokens"] | None = None
    """Continue a broken stream on another endpoint. ``text`` uses vLLM's ``continue_final_message``, which SGLang
    supports too. ``tokens`` continues exactly, on Headrace's own runtime only."""
    runtime_spans: bool = False
    """The endpoints are Headrace's own runtimes, started elsewhere (``headrace runtime``). The gateway fetches their
    spans for the ``traces`` that it exports, and sends them a client's ``baggage``."""

    provider_batches: ProviderBatchesConfig | None = None
    """Submits lines of batches to the provider's batch API instead of sending each as a request."""

    @property
    def model_name(self) -> str | None:
        """The servers' name of the model; None for the client's name or the route's rewrite."""
        return self.name if isinstance(self.runtime, LlmRuntime | VllmRuntime) else self.model

    @property
    def has_credential(self) -> bool:
        """Whether requests to the endpoints carry a credential of the gateway."""
        return self.key is not None or self.credentials is not None

    @property
    def has_accounts(self) -> bool:
        """Whether the pauses and the quota of each endpoint and model are observed."""
        return self.balance.by == "quota" or any(endpoint.is_account for endpoint in self.endpoints)

    def at(self, endpoint: EndpointConfig | None) -> Self:
        """The pool as it applies to one endpoint: the endpoint's own fields replace the pool's."""
        if endpoint is None or not endpoint.is_account:
            return self
        names = ("key", "credentials", "key_header", "model")
        own: dict[str, object] = {name: getattr(endpoint, name) for name in names if endpoint.has(name)}
        if "key" in own or "credentials" in own:
            own = {"key": None, "credentials": None, **own}
        if endpoint.headers:
            replaced = {header.name.lower() for header in endpoint.headers}
            others = (header for header in self.headers if header.name.lower() not in replaced)
            own["headers"] = (*others, *endpoint.headers)
        if endpoint.region is not None:
            named = {name: endpoint.region for name in _REGIONS if name in type(self.protocol).model_fields}
            own["protocol"] = self.protocol.model_copy(update=named)
        return self.model_copy(update=own)

    @property
    def serves(self) -> frozenset[Serves]:
        """The operations of the endpoints."""
        bundled = self.runtime.serves if self.runtime is not None else None
        return self.protocol.offers if bundled is None else bundled

    @property
    def takes_tensors(self) -> bool:
        """Whether the endpoints accept inferences of tensors."""
        return "tensors" in self.serves

    def forwards(self, operation: str) -> bool:
        """Whether the endpoints receive requests of this operation."""
        if isinstance(self.runtime, LlmRuntime):
            return True
        if isinstance(self.protocol, OpenAIProtocol):
            return operation in self.protocol.passes
        return "app" in self.serves

    @property
    def max_in_flight(self) -> int:
        """Maximum of concurrent requests at one endpoint."""
        cap = self.line.max_in_flight if self.line is not None else self.max_connections
        if cap is None and self.scaling is not None and self.scaling.scales and not self.in_ray_serve:
            cap = self.places
        if cap is None:
            cap = self.runtime.max_num_seqs if isinstance(self.runtime, LlmRuntime) else self.max_connections
        return min(cap, self.max_connections)

    @property
    def scaling(self) -> ScaleConfig | None:
        """The rules of the number of endpoints; None if the gateway does not decide it."""
        return self.scale if self.runtime is None else self.runtime.replicas

    @property
    def sleeps(self) -> bool:
        """Whether the gateway puts endpoints to sleep that are not needed."""
        return self.scale is not None and self.scale.sleep is not None

    @property
    def in_ray_serve(self) -> bool:
        """Whether the gateway decides the number of a Ray Serve deployment's replicas, which share one endpoint."""
        return self.scale is not None and self.scale.deployment is not None

    @property
    def line(self) -> QueueConfig | None:
        """The queue in force. A pool whose replicas follow the demand has one: the wait in it is the objective."""
        if self.queue is None and self.scaling is not None and self.scaling.scales:
            return QueueConfig()
        return self.queue

    @property
    def places(self) -> int:
        """Requests that one replica serves at the same time."""
        if self.scaling is not None and self.scaling.places is not None:
            return self.scaling.places
        if self.queue is not None and self.queue.max_in_flight is not None:
            return self.queue.max_in_flight
        return self.runtime.max_num_seqs if isinstance(self.runtime, LlmRuntime) else PLACES

    @model_validator(mode="after")
    def _at_its_provider(self) -> Self:
        if self.runtime is None and not self.endpoints and self.discover is None and self.protocol.url is not None:
            # The field stays unset: the file has no address.
            self.__dict__["endpoints"] = (EndpointConfig(url=self.protocol.url),)
        return self

    @model_validator(mode="after")
    def _auto_needs_probe(self) -> Self:
        if self.probe is None and self.protocol.name == "auto":
            raise ValueError("protocol auto needs the probe: health checks detect the protocol of an endpoint")
        return self

    @model_validator(mode="after")
    def _text_over_http(self) -> Self:
        if "max_answer" in self.model_fields_set and self.protocol.name not in _OF_TEXT:
            raise ValueError(
                f"max_answer has no effect on the protocol {self.protocol.name}: it is for {', '.join(_OF_TEXT)}"
            )
        return self

    @model_validator(mode="after")
    def _one_provider(self) -> Self:
        if self.provider_batches is None:
            return self
        protocol = self.protocol
        is_openai = isinstance(protocol, OpenAIProtocol) and protocol.dialect != "azure" and protocol.only is None
        if not is_openai and not (isinstance(protocol, AnthropicProtocol) and protocol.at in (None, "aws")):
            raise ValueError(
                "provider_batches needs the protocol openai (not Azure's, without `only`) or anthropic, of Anthropic "
                "itself or `at: aws`"
            )
        if len(self.endpoints) != 1 or self.discover is not None:
            raise ValueError("provider_batches needs one endpoint: a batch and its results are at one address")
        return self

    @model_validator(mode="after")
    def _made_credentials(self) -> Self:
        if self.credentials is None:
            return self
        if self.key is not None:
            raise ValueError("a pool has one credential: give `key` or `credentials`")
        if self.key_header is not None and self.credentials.kind not in ("oauth", "command"):
            raise ValueError(f"key_header has no effect on credentials of the kind {self.credentials.kind}")
        if self.runtime is not None or self.protocol.name == "bus" or self.protocol.name.endswith("-grpc"):
            raise ValueError("credentials are for endpoints over HTTP, not for gRPC, brokers and runtimes")
        return self

    @model_validator(mode="after")
    def _own_headers(self) -> Self:
        for pool in (self, *(self.at(endpoint) for endpoint in self.endpoints if endpoint.is_account)):
            names = [header.name.lower() for header in pool.headers]
            if pool.key is not None:
                names += pool.protocol.key_headers if pool.key_header is None else [pool.key_header.lower()]
            if pool.credentials is not None:
                names.append((pool.key_header or "authorization").lower())
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(f"the header {twice[0]} is sent once: it is in `headers` twice, or carries the key")
        return self

    @model_validator(mode="after")
    def _accounts(self) -> Self:
        if not self.has_accounts:
            return self
        if self.protocol.name == "bus" or self.protocol.name.endswith("-grpc"):
            raise ValueError("accounts of endpoints, and the balance by quota, are for protocols over HTTP")
        if self.runtime is not None:
            raise ValueError("the balance by quota is for servers of a provider: a runtime has no quota")
        if any(endpoint.key is not None and endpoint.credentials is not None for endpoint in self.endpoints):
            raise ValueError("an endpoint has one credential: give `key` or `credentials`")
        named = [endpoint.name for endpoint in self.endpoints if endpoint.name is not None]
        if twice := sorted({name for name in named if named.count(name) > 1}):
            raise ValueError(f"two endpoints have the name {twice[0]}")
        if any(endpoint.region for endpoint in self.endpoints) and not set(_REGIONS) & set(
            type(self.protocol).model_fields
        ):
            raise ValueError(f"the protocol {self.protocol.name} has no region: its URL names the server")
        return self

    @model_validator(mode="after")
    def _caches(self) -> Self:
        if self.prompt_cache is not None and self.protocol.prompt_caches is None:
            raise ValueError(
                f"prompt_cache has no effect on the protocol {self.protocol.name}: it is for anthropic and bedrock, "
                "and for gemini and vertex (with a project) with cached_contents"
            )
        return self

    @model_validator(mode="after")
    def _proxied(self) -> Self:
        if self.proxy is None:
            return self
        if self.runtime is not None or self.protocol.name == "bus" or self.protocol.name.endswith("-grpc"):
            raise ValueError("proxy is for endpoints over HTTP: gRPC, brokers and runtimes are reached directly")
        if any(endpoint.url.startswith("unix:") for endpoint in self.endpoints):
            raise ValueError("proxy is for endpoints over HTTP: a Unix socket is reached directly")
        return self

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.runtime is None) == (not self.endpoints and self.discover is None):
            raise ValueError("a pool has either endpoints, written or to discover, or a runtime: give one of the two")
        return self

    @model_validator(mode="after")
    def _spans_over_http(self) -> Self:
        if not self.runtime_spans:
            return self
        if self.runtime is not None:
            raise ValueError("runtime_spans is for endpoints: the spans of a `runtime` are fetched in any case")
        if self.protocol.name not in ("openai", "oip-http"):
            raise ValueError(
                "runtime_spans needs the protocol openai or oip-http: bundled runtimes have no other over HTTP"
            )
        if any(endpoint.url.startswith("https://") for endpoint in self.endpoints):
            raise ValueError(
                "runtime_spans needs endpoints with http:// or unix:, by which the runtimes report their spans"
            )
        return self

    @model_validator(mode="after")
    def _brokers(self) -> Self:
        is_bus = self.protocol.name == "bus"
        if any(is_broker(endpoint.url) != is_bus for endpoint in self.endpoints):
            raise ValueError("`protocol: bus` goes with endpoints that are message brokers, such as kafka://HOST:PORT")
        if is_bus and (self.discover is not None or self.runtime is not None):
            raise ValueError("`protocol: bus` needs endpoints: message brokers are not discovered or started")
        return self

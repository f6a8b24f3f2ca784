"""The sections of the whole YAML file, with their defaults.

The larger sections have modules of their own; all names can be imported from here. A section checks its own rules;
``config.checks`` check the rules between sections, and report the line of a mistake.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from config.runtimes import (
    AnyRuntime,
    CommandRuntime,
    LlmRuntime,
    ProgramRuntime,
    RuntimeConfig,
    TensorRuntime,
    VllmRuntime,
)
from config.schema.balance import BalanceConfig, OutliersConfig, SignalsConfig
from config.schema.cors import CorsConfig
from config.schema.default_models import DefaultModelsConfig
from config.schema.discovery import DiscoverConfig, KubernetesConfig
from config.schema.embeddings import EmbeddingInputs, EmbeddingsConfig
from config.schema.globs import is_glob
from config.schema.identity import (
    AdminAuthConfig,
    CertificateConfig,
    ClaimsConfig,
    GrantConfig,
    JwtConfig,
    ScopesConfig,
)
from config.schema.limits import Limits, LimitsConfig, QuotaConfig
from config.schema.pool import BreakerConfig, EndpointConfig, PoolConfig, ProbeConfig, UpstreamTls
from config.schema.queue import Priority, QueueConfig
from config.schema.resilience import CacheConfig, HedgeConfig
from config.schema.rewrite import RewriteConfig
from config.schema.route import ModelConfig, PriceConfig, RetryConfig, RouteConfig, TimeoutConfig
from config.schema.section import Section
from config.schema.stored_responses import StoredResponsesConfig
from config.schema.target import ArmConfig, Failure, FallbackConfig, SplitConfig, TargetConfig
from config.schema.text import Date, Glob, Name, PemFile, Secret, Shape, Url
from config.schema.units import HELD_COPIES, Delay, Duration, HostPort, Listen, Size, format_size
from config.schema.when import MatchConfig, TimeConfig

__all__ = [
    "AccessLogConfig",
    "AdminAuthConfig",
    "AnyRuntime",
    "ArmConfig",
    "AuthConfig",
    "BalanceConfig",
    "BreakerConfig",
    "CacheConfig",
    "CertificateConfig",
    "ClaimsConfig",
    "CommandRuntime",
    "Config",
    "DiscoverConfig",
    "EmbeddingInputs",
    "EmbeddingsConfig",
    "EndpointConfig",
    "Failure",
    "FallbackConfig",
    "Glob",
    "GrantConfig",
    "HedgeConfig",
    "HttpConfig",
    "JwtConfig",
    "KeyConfig",
    "KubernetesConfig",
    "LimitsConfig",
    "ListenConfig",
    "ListenTls",
    "LlmRuntime",
    "MatchConfig",
    "ModelConfig",
    "Name",
    "OutliersConfig",
    "PoolConfig",
    "PriceConfig",
    "Priority",
    "ProbeConfig",
    "ProgramRuntime",
    "QueueConfig",
    "QuotaConfig",
    "RetryConfig",
    "RewriteConfig",
    "RouteConfig",
    "RoutePlace",
    "RuntimeConfig",
    "ScopesConfig",
    "Secret",
    "Section",
    "SignalsConfig",
    "SplitConfig",
    "StateConfig",
    "TargetConfig",
    "TenantConfig",
    "TensorRuntime",
    "TimeConfig",
    "TimeoutConfig",
    "UpstreamTls",
    "Url",
    "VllmRuntime",
    "is_glob",
]

MAX_WORKERS = 256

RoutePlace = tuple[int, int]
"""The index of a model, and of a route in it."""
Database = Annotated[
    str,
    Shape(
        r"(sqlite|postgresql)(\+[a-z0-9]+)?://\S*",
        "a database URL such as sqlite:///.headrace/state.db or postgresql://HOST/NAME",
    ),
]
RedisUrl = Annotated[
    str,
    Shape(
        r"rediss?://[^\s/]\S*|unix:///?\S+", "a Redis URL such as redis://HOST:6379/0, rediss://HOST or unix:///PATH"
    ),
]
LogTarget = Annotated[
    str, Shape(r"stdout|.*[/.].*", "stdout or a file's path with a / or a dot in it, such as ./access.log")
]
Hash = Annotated[str, Shape(r"[0-9a-f]{64}", "the 64 hex digits that `headrace keys create --yaml` prints")]


class ListenTls(Section):
    """Certificate chain and private key of the listeners, as PEM files."""

    cert: PemFile
    """Certificate chain, the server's own certificate first."""
    key: PemFile
    """Private key of the certificate."""
    client_ca: PemFile | None = None
    """Root certificates that client certificates are verified against. A changed file needs a restart."""
    client_auth: Literal["optional", "required"] = "optional"
    """``required`` refuses every connection without a client certificate, whatever other credential the client has."""


class ListenConfig(Section):
    """Addresses of the listeners. The admin listener is separate, so that clients cannot reach it."""

    http: Listen = HostPort("127.0.0.1", 8080)
    """HTTP listener for clients."""
    grpc: Listen | None = None
    """gRPC listener for clients of the Open Inference Protocol and TensorFlow Serving; no such listener when absent.
    Uses TLS when ``tls`` is set."""
    admin: Listen = HostPort("127.0.0.1", 8082)
    """Listener for operators: metrics, health, administration. Keep it out of reach of clients."""
    tls: ListenTls | None = None
    """Enables TLS on the listeners for clients."""
    admin_tls: bool = False
    """Enables TLS on the admin listener with the same files. Client certificates then count there too."""


class StateConfig(Section):
    """Storage of issued keys, and counters that several gateways share."""

    database: Database = Field("sqlite:///.headrace/state.db", repr=False)
    """SQLAlchemy URL. A SQLite path is relative to the working directory. The database is read in the background, never
    while a request waits."""
    redis: RedisUrl | None = Field(None, repr=False)
    """Redis server that counts limits with ``count: exact`` or ``leased``. Write a password as ``${NAME}``."""
    redis_timeout: Duration = 0.1
    """Longest wait of a request for Redis. After a timeout, further requests treat Redis as unavailable at once."""


class AuthConfig(Section):
    """How credentials are verified."""

    pepper: Secret | None = None
    """Server secret that is mixed into the hashes of keys. When absent, a file beside the SQLite database is created
    and used."""
    demo_key: bool = False
    """Print and accept a demo key. Allowed only while every listener is on loopback."""
    jwt: tuple[JwtConfig, ...] = ()
    """Issuers whose JSON Web Tokens are accepted beside keys."""
    admin: AdminAuthConfig = AdminAuthConfig()
    """Authentication on the admin listener."""


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
    interval, so that no proxy closes the silent connection. The status is then 200: a later failure is sent as an
    event, which client libraries do not retry. Disabled when absent."""
    http2: bool = True
    """Whether HTTP/2 is served, with or without TLS. Each stream counts as a connection. A client that supports both
    versions is served over HTTP/1.1, which costs less."""
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


class AccessLogConfig(Section):
    """The access log: one JSON line for each request."""

    to: LogTarget = "stdout"
    """``stdout``, or the path of a file relative to the working directory."""


class KeyConfig(GrantConfig):
    """A key stored in the file itself, as ``headrace keys create --yaml`` prints it."""

    id: Name
    """Public part of the key."""
    hash: Hash
    """Hash of the key. The key cannot be derived from it."""
    expires: Date | None = None
    """Last day on which the key is accepted, in UTC."""


class TenantConfig(Section):
    """A tenant: its credentials, its models and its limits."""

    name: Name
    """Name of the tenant, also in logs and metrics."""
    keys: tuple[KeyConfig, ...] = ()
    """Keys stored in this file. Issued keys are in the state database."""
    certificates: tuple[CertificateConfig, ...] = ()
    """Client certificates of the tenant, for requests without a key or token."""
    models: tuple[Glob, ...] = Field(min_length=1)
    """Models that the tenant may use; ``*`` for all."""
    limits: Limits = LimitsConfig()
    """Limits of the whole tenant, or a list of limits with ``per``."""

    share: float = Field(1.0, gt=0, le=1e6)
    """Weight of the tenant among those that wait for a full pool."""
    priority: Priority = "normal"
    """Priority of the tenant's requests in a full pool. A request may lower its own with the header
    ``x-headrace-priority``, and cannot raise it."""
    explain: bool = False
    """Whether the header ``x-headrace-explain: 1`` makes the response explain its route. The explanation names routes,
    pools and lines of this file."""

    def limit_list(self) -> tuple[LimitsConfig, ...]:
        """The tenant's limits, from either form."""
        return self.limits if isinstance(self.limits, tuple) else (self.limits,)


class Config(Section):
    """The whole file."""

    version: Literal[1]
    """Version of this file format."""
    listen: ListenConfig = ListenConfig()
    """Addresses of the listeners."""
    workers: int = Field(1, ge=1, le=MAX_WORKERS)
    """Processes that serve clients on the one port, beside a supervisor. Use one for each core."""
    state: StateConfig = StateConfig()
    """Storage."""
    stored_responses: StoredResponsesConfig = StoredResponsesConfig()
    """OpenAI's stored responses and conversations."""
    auth: AuthConfig = AuthConfig()
    """Credentials."""
    http: HttpConfig = HttpConfig()
    """Connections and requests of clients."""
    access_log: AccessLogConfig = AccessLogConfig()
    """The access log."""
    zone: Name | None = None
    """Zone of this gateway. Endpoints with the same ``zone`` are preferred."""
    drain: Delay = 30.0
    """How long a stop (SIGTERM) waits for requests in flight; ``0s`` cancels them."""
    pools: tuple[PoolConfig, ...] = Field(min_length=1)
    """Servers that answer requests."""
    models: tuple[ModelConfig, ...] = Field(min_length=1)
    """Model names that clients request, and their routes."""
    default_models: DefaultModelsConfig = DefaultModelsConfig()
    """Models of requests that name none."""
    tenants: tuple[TenantConfig, ...] = Field(min_length=1)
    """Clients of the gateway."""

    _lines: Mapping[RoutePlace, int] = PrivateAttr({})
    _source: object = PrivateAttr(None)

    def written_at(self, lines: Mapping[RoutePlace, int], source: object) -> Self:
        """This configuration with the line of each route and its source data."""
        self._lines = lines
        self._source = source
        return self

    def line_of(self, model: int, route: int) -> int | None:
        """The line of a route; None for a configuration that is not from a file."""
        return self._lines.get((model, route))

"""What ops may write in YAML: the whole of it, with its defaults.

The larger sections have modules of their own beside this one; all names are importable from here. What holds within
one section is checked by the section; what holds between sections, by ``config.checks``, which know the line that each
was written on.
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
    """Certificate chain and private key, PEM files."""

    cert: PemFile
    """The chain, the server's own certificate first."""
    key: PemFile
    """Its private key."""
    client_ca: PemFile | None = None
    """Roots that client certificates are checked against. A change of the file needs a restart."""
    client_auth: Literal["optional", "required"] = "optional"
    """``required``: who has no certificate cannot connect, whatever else it could show."""


class ListenConfig(Section):
    """Where the gateway listens. The admin listener is separate on purpose."""

    http: Listen = HostPort("127.0.0.1", 8080)
    """For clients."""
    grpc: Listen | None = None
    """For clients that speak the Open Inference Protocol over gRPC; none when absent. With ``tls``, over TLS too."""
    admin: Listen = HostPort("127.0.0.1", 8082)
    """For operators: metrics, health, administration. Keep it where clients cannot reach it."""
    tls: ListenTls | None = None
    """Serve clients over TLS."""
    admin_tls: bool = False
    """The admin listener too, with the same files: then client certificates count there as well."""


class StateConfig(Section):
    """Where issued keys live, and counts that several gateways share."""

    database: Database = Field("sqlite:///.headrace/state.db", repr=False)
    """A SQLAlchemy URL. A SQLite path is relative to the working directory. Read in the background, never while a
    request waits."""
    redis: RedisUrl | None = Field(None, repr=False)
    """Counts the limits that say ``count: exact`` or ``leased``. Write a password as ``${NAME}``."""
    redis_timeout: Duration = 0.1
    """How long a request waits for it at most; whoever asks next is told at once that it is away."""


class AuthConfig(Section):
    """How credentials are checked."""

    pepper: Secret | None = None
    """Server secret mixed into key hashes. Without one, a file beside the SQLite database is made and used."""
    demo_key: bool = False
    """Print and accept a demo key. Only while every listener is on loopback."""
    jwt: tuple[JwtConfig, ...] = ()
    """Issuers whose tokens are accepted beside keys."""
    admin: AdminAuthConfig = AdminAuthConfig()
    """The admin listener's."""


class HttpConfig(Section):
    """Bounds on one client connection and one request."""

    max_head: Size = 32 * 1024
    """Request line and headers together."""
    max_body: Size = 32 * 1024**2
    """A request's body; larger ones are refused with 413."""
    head_timeout: Duration = 10.0
    """From a request's first byte until its headers are complete."""
    body_timeout: Duration = 30.0
    """Until the body is complete."""
    keepalive_timeout: Duration = 75.0
    """How long an idle connection stays open."""
    send_timeout: Duration = 60.0
    """How long a client may take no bytes of its answer before it is cut off."""
    max_connections: int = Field(10_000, ge=1)
    """Open client connections of each listener. Where all places are taken, idle connections are closed for new ones.
    Fewer where the limit of open files is too low for them, which the start logs."""
    cors: CorsConfig | None = None
    """Which web pages may use the data listener; none when absent."""
    stream_comments: Duration | None = None
    """After so long without a first event a stream begins with a comment, and has another each time as long, so that no
    proxy on the way takes the silence for an end. The status is 200 by then: a failure comes as an event, and client
    libraries do not retry it. None when absent."""
    http2: bool = True
    """Whether clients that speak only HTTP/2 are served, with or without TLS; each of their streams counts as a
    connection. A client that speaks both is served over HTTP/1.1, which costs less."""
    max_held: Size | None = None
    """Bytes that requests hold at once in one process; more are answered with 503. A body counts three times: it is
    received, decoded, and written to a server. Answers count while their clients do not take them. 2 GiB, or room for
    eight of the largest bodies, when absent."""
    max_held_by_tenant: Size | None = None
    """The same for each tenant; more are answered with 429. Half of ``max_held`` when absent."""

    @property
    def held_by_all(self) -> int:
        """What a process holds at most."""
        return max(2 * 1024**3, 8 * HELD_COPIES * self.max_body) if self.max_held is None else self.max_held

    @property
    def held_by_tenant(self) -> int:
        """What a tenant holds at most."""
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
    """One JSON line a request."""

    to: LogTarget = "stdout"
    """``stdout`` or a file's path, relative to the working directory."""


class KeyConfig(GrantConfig):
    """A key kept in the file itself, as ``headrace keys create --yaml`` prints it."""

    id: Name
    """The public part of the key, by which it is found."""
    hash: Hash
    """The key's hash; the key itself cannot be had from it."""
    expires: Date | None = None
    """Last day it is accepted, UTC."""


class TenantConfig(Section):
    """Who may ask for what, how much."""

    name: Name
    """Shown in logs and metrics."""
    keys: tuple[KeyConfig, ...] = ()
    """Keys kept in this file; issued ones live in the state database."""
    certificates: tuple[CertificateConfig, ...] = ()
    """Client certificates that are its own, for requests that carry neither a key nor a token."""
    models: tuple[Glob, ...] = Field(min_length=1)
    """Models it may use; ``*`` for all."""
    limits: Limits = LimitsConfig()
    """How much it may use: limits for the whole tenant, or a list of limits, each ``per`` someone."""

    share: float = Field(1.0, gt=0, le=1e6)
    """Its part of a full pool, relative to the other tenants that wait for it."""
    priority: Priority = "normal"
    """Of its requests in a full pool. A request may lower its own with ``x-headrace-priority``, and not raise it."""
    explain: bool = False
    """Whether its clients may ask, by a header ``x-headrace-explain: 1``, why a request went where it went. The
    answer's header of that name tells them of routes, pools and lines of this file."""

    def limit_list(self) -> tuple[LimitsConfig, ...]:
        """Its limits in whichever form they were written."""
        return self.limits if isinstance(self.limits, tuple) else (self.limits,)


class Config(Section):
    """The whole file."""

    version: Literal[1]
    """Version of this format."""
    listen: ListenConfig = ListenConfig()
    """Addresses."""
    workers: int = Field(1, ge=1, le=MAX_WORKERS)
    """Processes that serve clients on the one port, with a supervisor beside them; as many as there are cores."""
    state: StateConfig = StateConfig()
    """Storage."""
    stored_responses: StoredResponsesConfig = StoredResponsesConfig()
    """OpenAI's stored responses and conversations."""
    auth: AuthConfig = AuthConfig()
    """Credentials."""
    http: HttpConfig = HttpConfig()
    """Bounds on clients."""
    access_log: AccessLogConfig = AccessLogConfig()
    """What each request leaves behind."""
    zone: Name | None = None
    """Where this gateway runs, in the words of its endpoints' `zone`: those of the same one are preferred."""
    drain: Delay = 30.0
    """How long SIGTERM waits for requests in flight; ``0s`` cuts them off."""
    pools: tuple[PoolConfig, ...] = Field(min_length=1)
    """Servers that answer."""
    models: tuple[ModelConfig, ...] = Field(min_length=1)
    """Names that clients ask for."""
    default_models: DefaultModelsConfig = DefaultModelsConfig()
    """The models of requests that name none."""
    tenants: tuple[TenantConfig, ...] = Field(min_length=1)
    """Who may ask."""

    _lines: Mapping[RoutePlace, int] = PrivateAttr({})
    _source: object = PrivateAttr(None)

    def written_at(self, lines: Mapping[RoutePlace, int], source: object) -> Self:
        """The same, knowing the line of each route, and the data that it was made of."""
        self._lines = lines
        self._source = source
        return self

    def line_of(self, model: int, route: int) -> int | None:
        """Where a route is written; None of one that was never in a file."""
        return self._lines.get((model, route))

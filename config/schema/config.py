"""The whole YAML file: its sections in order. All section classes can be imported from here.

A section checks its own rules; ``config.checks`` check the rules between sections, and report the line of a mistake.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, PrivateAttr

from config.schema.balance import BalanceConfig, OutliersConfig, Priority, QueueConfig, SignalsConfig
from config.schema.batches import BatchesConfig, S3Config, TenantBatchesConfig
from config.schema.bus import UpstreamTls
from config.schema.console import ConsoleConfig, OidcConfig
from config.schema.copies import CompareConfig, CopiesConfig, ShadowFirstConfig
from config.schema.discovery import DiscoverConfig, KubernetesConfig
from config.schema.embeddings import EmbeddingInputs, EmbeddingsConfig
from config.schema.experiment import MOST_METRICS, ExperimentArmConfig, ExperimentConfig, FeedbackMetricConfig
from config.schema.guards import (
    AnyGuard,
    ExemptConfig,
    PatternGuardConfig,
    SecretsGuardConfig,
    UrlsGuardConfig,
    WordsGuardConfig,
)
from config.schema.identity import (
    AdminAuthConfig,
    AuthConfig,
    CertificateConfig,
    ClaimsConfig,
    GrantConfig,
    JwtConfig,
    ScopesConfig,
)
from config.schema.limits import LimitsConfig, QuotaConfig
from config.schema.listen import HttpConfig, ListenConfig, ListenTls
from config.schema.money import PriceConfig
from config.schema.pipelines.parts import Place
from config.schema.pool import (
    AccountLimitsConfig,
    BreakerConfig,
    EndpointConfig,
    PoolConfig,
    ProbeConfig,
    PromptCacheConfig,
)
from config.schema.rewrite import RewriteConfig
from config.schema.rollout import EventConfig, RolloutArmConfig, RolloutConfig
from config.schema.route import (
    CacheConfig,
    ClientModelConfig,
    DefaultModelsConfig,
    HedgeConfig,
    RetryConfig,
    RouteConfig,
    ShadowConfig,
    TimeoutConfig,
)
from config.schema.runtimes import (
    AnyRuntime,
    CommandRuntime,
    LlmRuntime,
    ProgramRuntime,
    RuntimeConfig,
    TensorRuntime,
    VllmRuntime,
)
from config.schema.runtimes.replicas import SharedDeviceConfig
from config.schema.section import Section
from config.schema.state import StateConfig, StoredResponsesConfig
from config.schema.target import ArmConfig, Failure, FallbackConfig, SplitConfig, TargetConfig
from config.schema.telemetry import MetricsConfig, RecordConfig, RequestsConfig, TracesConfig, UsageConfig
from config.schema.tenant import KeyConfig, TenantConfig, WebhookConfig
from config.schema.text import Glob, LocalFile, Name, Secret, Shape, Url, is_glob
from config.schema.units import Delay
from config.schema.when import MatchConfig, TimeConfig

__all__ = [
    "AccessLogConfig",
    "AccountLimitsConfig",
    "AdminAuthConfig",
    "AnyRuntime",
    "ArmConfig",
    "AuthConfig",
    "BalanceConfig",
    "BatchesConfig",
    "BreakerConfig",
    "CacheConfig",
    "CatalogueConfig",
    "CertificateConfig",
    "ClaimsConfig",
    "ClientModelConfig",
    "CommandRuntime",
    "CompareConfig",
    "Config",
    "ConsoleConfig",
    "CopiesConfig",
    "DiscoverConfig",
    "EmbeddingInputs",
    "EmbeddingsConfig",
    "EndpointConfig",
    "EventConfig",
    "ExemptConfig",
    "ExperimentArmConfig",
    "ExperimentConfig",
    "Failure",
    "FallbackConfig",
    "FeedbackMetricConfig",
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
    "Name",
    "OidcConfig",
    "OutliersConfig",
    "PatternGuardConfig",
    "PoolConfig",
    "PriceConfig",
    "Priority",
    "ProbeConfig",
    "ProgramRuntime",
    "PromptCacheConfig",
    "QueueConfig",
    "QuotaConfig",
    "RecordConfig",
    "RetryConfig",
    "RewriteConfig",
    "RolloutArmConfig",
    "RolloutConfig",
    "RouteConfig",
    "RuntimeConfig",
    "S3Config",
    "ScopesConfig",
    "Secret",
    "SecretsGuardConfig",
    "Section",
    "ShadowConfig",
    "ShadowFirstConfig",
    "SharedDeviceConfig",
    "SignalsConfig",
    "SplitConfig",
    "StateConfig",
    "TargetConfig",
    "TenantBatchesConfig",
    "TenantConfig",
    "TensorRuntime",
    "TimeConfig",
    "TimeoutConfig",
    "TracesConfig",
    "UpstreamTls",
    "Url",
    "UrlsGuardConfig",
    "VllmRuntime",
    "WordsGuardConfig",
    "is_glob",
]

MAX_WORKERS = 256


class RegionConfig(Section):
    """A region: zones that are nearer to each other than to all others."""

    name: Name
    """Name of the region."""
    zones: tuple[Name, ...] = Field(min_length=1)
    """Zones of the region."""


TEXT = "[text]"
"""In a place: the lines of the text there follow, counted from 1."""
LogTarget = Annotated[
    str, Shape(r"stdout|.*[/.].*", "stdout or a file's path with a / or a dot in it, such as ./access.log")
]


class AccessLogConfig(Section):
    """The access log: one JSON line for each request."""

    to: LogTarget = "stdout"
    """``stdout``, or the path of a file relative to the working directory."""


class LogConfig(Section):
    """The log of the gateway's own processes, on standard error. A reload applies a change."""

    format: Literal["text", "json"] = "text"
    """``json`` writes one object on each line."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least level that is written."""


class CatalogueConfig(Section):
    """Facts of hosted models at ``/v1/models``: context, longest answer, price and abilities."""

    file: LocalFile | None = None
    """Catalogue that ``headrace prices import --catalogue`` wrote, relative to this file's folder, also for the
    warnings of ``headrace check``. The shipped catalogue when absent."""


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
    batches: BatchesConfig | None = None
    """Files and batches of clients; no such paths when absent."""
    auth: AuthConfig = AuthConfig()
    """Credentials."""
    console: ConsoleConfig = ConsoleConfig()
    """The console on the admin listener."""
    http: HttpConfig = HttpConfig()
    """Connections and requests of clients."""
    access_log: AccessLogConfig = AccessLogConfig()
    """The access log."""
    log: LogConfig = LogConfig()
    """The log of the gateway's own processes."""
    record: RecordConfig | None = None
    """Recorded traffic; disabled when absent."""
    traces: TracesConfig | None = None
    """Traces of requests for an OpenTelemetry collector; none when absent."""
    metrics: MetricsConfig = MetricsConfig()
    """Bounds of the time series at ``/metrics``."""
    usage: UsageConfig | None = None
    """What tenants have used and spent, in the state database; not recorded when absent."""
    requests: RequestsConfig | None = None
    """A record of each request, for the search of requests; not stored when absent."""
    webhooks: tuple[WebhookConfig, ...] = Field((), max_length=100)
    """Addresses that receive messages about soft budgets."""
    zone: Name | None = None
    """Zone of this gateway. Endpoints with the same ``zone`` are preferred."""
    regions: tuple[RegionConfig, ...] = ()
    """Regions of zones, for pools with ``balance.locality: nearest``."""
    drain: Delay = 30.0
    """How long a stop (SIGTERM) waits for requests in flight. Those that have not ended then get 503, and streams an
    error event."""
    pools: tuple[PoolConfig, ...] = Field(min_length=1)
    """Servers that answer requests."""
    devices: tuple[SharedDeviceConfig, ...] = Field((), max_length=64)
    """Memory that runtimes share: models are swapped in and out by the requests that wait for them."""
    models: tuple[ClientModelConfig, ...] = Field(min_length=1)
    """Model names that clients request, and their routes or pipelines."""
    guards: tuple[AnyGuard, ...] = Field((), max_length=1000)
    """Guards of texts, which ``guards`` of tenants, models and routes apply."""
    feedback: tuple[FeedbackMetricConfig, ...] = Field((), max_length=MOST_METRICS)
    """Metrics that clients report with ``POST /v1/feedback``, for experiments and rollouts."""
    catalogue: CatalogueConfig | None = None
    """Facts of hosted models at ``/v1/models``; no facts there when absent."""
    default_models: DefaultModelsConfig = DefaultModelsConfig()
    """Models of requests that name none."""
    tenants: tuple[TenantConfig, ...] = Field(min_length=1)
    """Clients of the gateway."""

    _lines: Mapping[Place, int] = PrivateAttr({})
    _source: object = PrivateAttr(None)
    _text: str = PrivateAttr("")

    def written_at(self, lines: Mapping[Place, int], source: object, text: str = "") -> Self:
        """This configuration with the lines of routes and parts of pipelines, its source data, and the text of its
        file."""
        self._lines = lines
        self._source = source
        self._text = text
        return self

    @property
    def catalogue_file(self) -> Path | None:
        """The configured catalogue; None for the shipped one."""
        return None if self.catalogue is None or self.catalogue.file is None else Path(self.catalogue.file)

    @property
    def near_zones(self) -> frozenset[str]:
        """The zones of the gateway's own region, with its own zone."""
        if self.zone is None:
            return frozenset()
        own = next((region.zones for region in self.regions if self.zone in region.zones), ())
        return frozenset({self.zone, *own})

    @property
    def text(self) -> str:
        """The text of the file; empty for a configuration that was not read from a file."""
        return self._text

    def line_of(self, model: int, route: int) -> int | None:
        """The line of a route; None for a configuration that is not from a file."""
        return self.line_at(("models", model, "routes", route))

    def line_at(self, place: Place, text_line: int = 1) -> int | None:
        """The line of a route or a part of a pipeline, or a line of its text; None if unknown.

        Only the lines of a literal block (`|`) are lines of the file. A place that the file does not have is
        that of the nearest part around it.
        """
        if not place:
            return None
        at = self._lines.get((*place, TEXT, text_line)) or self._lines.get(place)
        return at or self.line_at(place[:-1], text_line)

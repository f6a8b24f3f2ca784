"""The ``metrics``, ``requests``, ``usage``, ``traces`` and ``record`` of the file, and the ``payload_events`` of a
model: what is written about requests."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from config.schema.bus import BrokerConfig, Topic
from config.schema.section import Section
from config.schema.text import Glob, HeaderName, Secret, Shape
from config.schema.units import Duration, Percent, Size

NAMED = ("email", "phone", "card", "ip")
"""Kinds of text that ``redact`` can remove. Keys and other secrets are always removed."""
LEAST_KEY = 16
LEAST_SIZE = 2**20
CREDENTIAL_HEADERS = frozenset(
    {
        "api-key", "authorization", "cookie", "ocp-apim-subscription-key", "proxy-authorization", "set-cookie",
        "x-amz-security-token", "x-api-key", "x-auth-token", "x-csrf-token", "x-goog-api-key",
    }
)  # fmt: skip
"""Headers that carry credentials, which no record has."""

_STEP = r"(\.[A-Za-z_][A-Za-z0-9_-]*|\[\*\]|\[\d{1,6}\])"
Redaction = Annotated[
    str,
    Shape(
        rf"({'|'.join(NAMED)})|json:\${_STEP}+",
        f"{', '.join(NAMED)}, or a path such as json:$.messages[*].content",
    ),
]


def _never_recorded(name: str) -> str:
    if name.lower() in CREDENTIAL_HEADERS:
        raise ValueError("this header carries a credential, which is never recorded")
    return name.lower()


RecordedHeader = Annotated[HeaderName, AfterValidator(_never_recorded)]


class RecordConfig(Section):
    """Recorded traffic, for ``headrace replay``. Records are written behind the requests, redacted and encrypted."""

    to: str = Field(min_length=1)
    """Folder of the records, relative to the working directory. Several processes may write to one folder."""
    key: Secret
    """Secret under which the key of each segment is encrypted; 16 characters at least."""
    share: Percent = Field(0.01, ge=0, le=1)
    """Share of requests that are recorded, chosen by a keyed digest of the request's id."""
    keep: Duration = 7 * 86400.0
    """Time until a segment is deleted, after its last record. Then its key and its file are deleted."""
    max: Size = 5 * 2**30
    """Most bytes of the folder, at least ``1MiB``. The oldest segments are deleted beyond it."""
    bodies: Literal[True, "digest"] = True
    """``true``: the redacted bodies of requests. ``digest``: only a keyed digest of each body, and no answers."""
    answers: bool = False
    """Whether the redacted answers are recorded, for ``headrace replay --against``."""
    redact: tuple[Redaction, ...] = ()
    """Texts to remove before anything is queued: ``email``, ``phone``, ``card``, ``ip``, or the values at a path of a
    JSON body. Keys, tokens, passwords and other secrets are removed in any case."""
    headers: tuple[RecordedHeader, ...] = ()
    """Headers to record besides those that routes read. Headers of credentials are never recorded."""
    exclude: tuple[Glob, ...] = ()
    """Models whose requests are not recorded."""

    @model_validator(mode="after")
    def _effective(self) -> Self:
        if len(self.key.get_secret_value()) < LEAST_KEY:
            raise ValueError(f"the key has fewer than {LEAST_KEY} characters: use a random one")
        if self.max < LEAST_SIZE:
            raise ValueError("max is at least 1MiB")
        if self.answers and self.bodies == "digest":
            raise ValueError("answers are recorded with bodies only: remove `answers` or `bodies: digest`")
        return self


class MetricsConfig(Section):
    """Bounds of the series at ``/metrics``. Values beyond a bound are counted under the label value ``(others)``."""

    tenants: tuple[Glob, ...] = ("*",)
    """Tenants with series of their own. All others share the label value ``(others)``."""
    max_series: int = Field(10_000, ge=100, le=10_000_000)
    """Largest number of label combinations of each counter of tenants. Further combinations share ``(others)``."""


class RequestsConfig(Section):
    """Requests by day, with their decision, attempts, steps, tokens and cost. No prompt and no answer is stored."""

    retention: Duration = 14 * 86400.0
    """How long a day is stored. A day is deleted as a whole."""
    max: Size = 20 * 2**30
    """Most bytes of all days. The oldest days are deleted beyond it, and today's requests are lost when the bytes are
    those of today."""
    folder: str | None = Field(None, min_length=1)
    """Folder of this host where requests wait for the database, and where the days of an SQLite database are. When
    absent, a folder beside an SQLite database, or in the directory of temporary files."""
    flush: Duration = 1.0
    """Time between two writes to the database."""
    max_waiting: Size = 256 * 2**20
    """Most bytes of requests that wait for the database. The oldest are lost beyond it, and counted."""
    exclude: tuple[Glob, ...] = ()
    """Models whose requests are not stored."""


class UsageConfig(Section):
    """Requests, tokens, rows and money by tenant, key, model and arm, for each hour and day."""

    folder: str | None = Field(None, min_length=1)
    """Folder of this host where counters wait for the database. They survive a killed process. When absent, a folder
    beside an SQLite database, or in the directory of temporary files."""
    flush: Duration = 2.0
    """Time between two writes to the database."""
    hours: Duration = 90 * 86400.0
    """How long the amounts of each hour are retained."""
    days: Duration = 1096 * 86400.0
    """How long the amounts of each day are retained."""
    users: int = Field(0, ge=0, le=10_000)
    """Most end users of a tenant that each gateway counts separately in an hour; further ones share `(others)`. 0
    counts none. A user is the `user` of OpenAI's requests or the `metadata.user_id` of Anthropic's."""


def _no_credential(name: str) -> str:
    if name.lower() in CREDENTIAL_HEADERS:
        raise ValueError("this header carries a credential: write it in `headers`, as ${NAME} or file:PATH")
    return name


Collector = Annotated[
    str,
    Shape(
        r"(https?|grpcs?)://[^\s/?#@]+(/[^\s?#]*)?",
        "http://HOST:4318, https://HOST/PATH, grpc://HOST:4317 or grpcs://HOST:PORT",
    ),
]
PlainHeader = Annotated[HeaderName, AfterValidator(_no_credential)]
PlainValue = Annotated[str, Shape(r"[!-~]([ -~]{0,254}[!-~])?", "printable ASCII")]
Rule = Literal["errors", "slowest", "rerouted", "rollouts"]


def _each_once(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    if len(set(rules)) < len(rules):
        raise ValueError("each rule is listed once")
    return rules


class TraceContentConfig(Section):
    """Texts of requests and answers in exported traces, as the attributes ``gen_ai.input.messages``,
    ``gen_ai.output.messages``, ``gen_ai.system_instructions`` and ``gen_ai.tool.definitions``."""

    redact: tuple[Redaction, ...] = ()
    """Texts to remove before anything leaves the gateway: ``email``, ``phone``, ``card``, ``ip``, or the values at a
    path of a JSON body. Keys, tokens, passwords and other secrets are removed in any case."""
    max: Annotated[Size, Field(ge=1024, le=256 * 1024)] = 16 * 1024
    """Most bytes of each attribute. Long texts are cut, then the oldest messages are left out."""


class TracesConfig(Section):
    """Traces: one for each request that a rule keeps, decided at the request's end, when everything is known."""

    to: Collector
    """The OpenTelemetry collector: ``http://HOST:4318`` for OTLP over HTTP (``/v1/traces`` is added to a URL without a
    path), ``grpc://HOST:4317`` for OTLP over gRPC; ``https`` and ``grpcs`` with TLS."""
    headers: dict[HeaderName, Secret] = Field(default_factory=dict)
    """Headers of every export with a secret, such as ``authorization: ${OTLP_AUTHORIZATION}``."""
    plain_headers: dict[PlainHeader, PlainValue] = Field(default_factory=dict)
    """Headers of every export without a secret, such as ``x-langfuse-ingestion-version: "4"``."""
    keep: Annotated[tuple[Rule, ...], AfterValidator(_each_once)] = ("errors", "slowest", "rerouted", "rollouts")
    """Requests that are always traced. ``errors``: status 500 and above, and broken streams. ``slowest``: one in a
    hundred of each model. ``rerouted``: retries, fallbacks, hedges, resumed streams. ``rollouts``: the new arm."""
    sample: Percent = 0.01
    """Share of all other requests that are traced."""
    incoming: Literal["continue", "ignore"] = "continue"
    """``continue``: a client's ``traceparent`` is continued, and a request that it marks as sampled is traced.
    ``ignore``: each request starts a new trace."""
    service: str = Field("headrace", min_length=1, max_length=128)
    """``service.name`` of the traces."""
    resource: dict[str, str] = Field(default_factory=dict)
    """More attributes of the resource, such as ``deployment.environment.name: production``."""
    timeout: Duration = 10.0
    """Longest time of one export."""
    max_queued: int = Field(8192, ge=1, le=1_000_000)
    """Requests whose spans wait for the collector; more are dropped and counted."""


SinkUrl = Annotated[
    str, Shape(r"https?://[^\s/?#@]+(/[^\s?#]*)?", "http://HOST/PATH or https://HOST/PATH, without a user or a query")
]
Namespace = Annotated[str, Shape(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "a namespace of Kubernetes, such as default")]


class PayloadEventsConfig(Section):
    """Requests and answers as CloudEvents 1.0, in the format of KServe's inference logger. They are sent behind the
    requests: a receiver that is slow or away loses events, which are counted."""

    to: SinkUrl | None = None
    """Address of the receiver. Each event is a POST in the binary mode of CloudEvents. Or give a ``broker``."""
    key: Secret | None = None
    """Bearer token for the receiver."""
    timeout: Annotated[Duration, Field(gt=0, le=60)] = 5.0
    """Longest time of one POST."""
    broker: BrokerConfig | None = None
    """Broker of the events, with a ``topic``. Or give an address in ``to``."""
    topic: Topic | None = None
    """Topic of the events."""
    share: Percent = Field(1.0, gt=0, le=1)
    """Share of requests with events, chosen by chance."""
    mode: Literal["all", "request", "response"] = "all"
    """``request`` or ``response``: only these events."""
    namespace: Namespace = "default"
    """The attribute ``namespace`` of the events."""
    redact: tuple[Redaction, ...] = ()
    """Texts to remove: ``email``, ``phone``, ``card``, ``ip``, or the values at a path of a JSON body. Keys, tokens,
    passwords and other secrets are removed in any case."""

    @model_validator(mode="after")
    def _one_receiver(self) -> Self:
        if (self.to is None) == (self.broker is None):
            raise ValueError("events go to one receiver: give either `to` or a `broker` with a `topic`")
        if (self.broker is None) != (self.topic is None):
            raise ValueError("`broker` and `topic` go together: give both or neither")
        if self.broker is not None and self.key is not None:
            raise ValueError("`key` is for the receiver in `to`: a broker has a username and a password")
        return self

"""Message brokers: their addresses, credentials and TLS, and the entries of ``listen.bus``."""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from config.schema.balance import Priority
from config.schema.section import Conflict, Section, ShortSection
from config.schema.text import HTTP_URL, Glob, HeaderName, Name, PemFile, Secret, Shape, real_port
from config.schema.units import Duration, Size


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


Topic = Annotated[
    str,
    Shape(
        r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,248}",
        "the name of a topic: up to 249 letters, digits and . _ : / - (not first)",
    ),
]
"""A topic of Kafka or MQTT, a subject of NATS JetStream, a routing key of RabbitMQ, or a stream of Redis."""


_HOSTS = r"[A-Za-z0-9._\[\]-]+(:\d{1,5})?"
_VHOST = r"([A-Za-z0-9._~-]|%[0-9A-Fa-f]{2}){1,255}"
_BROKER = (
    rf"(kafka|mqtt|nats|redis)://{_HOSTS}(,{_HOSTS})*(/\d{{1,3}})?|amqp://{_HOSTS}(,{_HOSTS})*(/{_VHOST})?|"
    r"redis\+unix:/[^\s?#]+"
)
BrokerUrl = Annotated[
    str,
    Shape(
        rf"{_BROKER}|sqs://{_HOSTS}",
        "amqp://HOST:PORT/VHOST, kafka://HOST:PORT, mqtt://HOST:PORT, nats://HOST:PORT, redis://HOST:PORT/0, "
        "redis+unix:/PATH or sqs://HOST:PORT, without a user",
    ),
]


def is_broker(url: str) -> bool:
    """Whether a URL is that of a message broker."""
    return not url.startswith(("http:", "https:", "unix:"))


def _real_port(url: str) -> str:
    return url if is_broker(url) else real_port(url)


EndpointUrl = Annotated[
    str,
    Shape(
        f"{HTTP_URL}|{_BROKER}",
        "http://HOST:PORT, https://HOST:PORT or unix:/PATH, without a user, a query or a fragment",
    ),
    AfterValidator(_real_port),
]


class BrokerConfig(ShortSection):
    """One broker. A URL alone is short for ``{url: URL}``."""

    short = "url"

    url: BrokerUrl
    """``amqp://HOST:PORT/VHOST`` (RabbitMQ), ``kafka://HOST:PORT``, ``mqtt://HOST:PORT`` (MQTT 5),
    ``nats://HOST:PORT``, ``redis://HOST:PORT/DATABASE`` for Redis Streams, or ``sqs://HOST`` for Amazon SQS. Several
    servers of one cluster are separated by commas."""
    username: Secret | None = None
    """User at the broker."""
    password: Secret | None = None
    """Password of the user. NATS accepts it alone, as a token."""
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    """SASL mechanism of the user, for Kafka."""
    tls: UpstreamTls | None = None
    """TLS to the broker; plain text when absent. ``{}`` verifies against the system's root certificates."""

    @property
    def scheme(self) -> str:
        """The kind of the broker."""
        return self.url.partition(":")[0].partition("+")[0]

    def conflicts(self) -> Iterator[Conflict]:
        if self.scheme != "kafka" or self.username is None:
            yield from self.inert("has no effect: it is for a Kafka broker with a username", "mechanism")


ApiPath = Annotated[
    str,
    Shape(
        r"/v1/(chat/completions|completions|embeddings|responses|messages)|/v2/models/[^\s/?#]{1,256}/infer",
        "/v1/chat/completions, /v1/completions, /v1/embeddings, /v1/responses, /v1/messages or /v2/models/NAME/infer",
    ),
]


class ReplyConfig(ShortSection):
    """Topics of answers. A topic alone is short for ``{topic: TOPIC}``."""

    short = "topic"

    topic: Topic
    """Topic of the answers to messages that name none."""
    allowed: tuple[Glob, ...] = ()
    """Other topics that a message may name in its attribute ``replyto``. A message that names any other topic is a dead
    letter and does not run."""


_EMPTY_AT_FIRST = {"mqtt": "a new session of MQTT", "amqp": "a new queue of RabbitMQ"}


class BindingConfig(Section):
    """One topic whose messages are requests. Each process of the gateway is a consumer of the group."""

    name: Name
    """Name of the binding, in metrics, in log lines and as the key of its requests: ``bus:NAME``."""
    broker: BrokerConfig
    """The broker."""
    topic: Topic
    """Topic of the requests: a topic of Kafka or MQTT, a subject of NATS JetStream, or a stream of Redis. For RabbitMQ
    it is a routing key and queue, for SQS a queue."""
    group: Topic = "headrace"
    """Consumer group. Gateways of one group share the messages."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where a group without a position begins."""
    tenant: Name | None = None
    """Tenant of the requests. Never from the message."""
    key_header: HeaderName | None = None
    """Header of the message with an API key: the requests are those of its holder. A message without a valid key is a
    dead letter. With ``tenant``, the key must be one of that tenant."""
    path: ApiPath = "/v1/chat/completions"
    """The API that the messages are requests of; ``/v2/models/NAME/infer`` for tensors."""
    paths: tuple[ApiPath, ...] = ()
    """Other APIs that a message may name in its attribute ``path``, as the requests of a gateway with ``protocol: bus``
    do."""
    cancels: Topic | None = None
    """Topic whose messages cancel requests in work: a CloudEvent with the ``source`` and ``id`` of the request."""
    model: str | None = Field(None, min_length=1, max_length=256)
    """Model of every message, whatever the message names. When absent the message names its model."""
    reply: ReplyConfig
    """Topic of the answers."""
    dead_letters: Topic
    """Topic of messages that cannot be answered, with the reason."""
    envelope: Literal["cloudevents", "any"] = "cloudevents"
    """``cloudevents``: a message that is no CloudEvent is a dead letter. ``any``: it is a request too, whose id is its
    place in the topic, so that only redeliveries are recognised."""
    order: Literal["none", "key"] = "none"
    """``key``: messages of one key run one after another, in the order of the topic."""
    stream: bool = False
    """Whether a message may request a stream (``"stream": true``), which is one message for each event."""
    concurrency: int = Field(32, ge=1, le=4096)
    """Most messages that one process works on. It reads no more than the free places of the model's pools."""
    attempts: int = Field(5, ge=1, le=100)
    """Attempts of a message whose servers fail. A lack of capacity and a limit of the tenant are no attempts: the
    message waits."""
    backoff: Duration = 1.0
    """Pause after the first failure; it doubles up to a minute."""
    deliveries: int = Field(10, ge=1, le=1000)
    """Deliveries after which a message is a dead letter, for brokers that count them (NATS, RabbitMQ, Redis, SQS)."""
    deadline: Duration | None = None
    """Longest time from the delivery of a message to its answer. A message may have an earlier ``deadline``. Without
    both, a message waits for capacity without end."""
    max_message: Size = 4 * 1024**2
    """Largest body; a larger one is a dead letter."""
    window: Duration = 86400.0
    """How long the id of an answered message is stored: a message with the same source and id is not answered again."""
    takeover: Duration = 30.0
    """Time without a sign of life after which another process may answer the messages of a process that has died."""
    priority: Priority | None = None
    """Priority in a full pool; the tenant's own when absent."""

    @model_validator(mode="after")
    def _has_identity(self) -> Self:
        if self.tenant is None and self.key_header is None:
            raise ValueError("name the tenant of the messages, or the `key_header` with their API key")
        return self

    @model_validator(mode="after")
    def _one_model(self) -> Self:
        if self.model is not None and self.path.startswith("/v2/"):
            raise ValueError("the path names the model: leave out `model`")
        return self

    @model_validator(mode="after")
    def _separate_topics(self) -> Self:
        if self.topic in (self.reply.topic, self.dead_letters, self.cancels):
            raise ValueError("answers and dead letters need topics other than that of the requests")
        return self

    def conflicts(self) -> Iterator[Conflict]:
        scheme = self.broker.scheme
        if (counting := {"kafka": "Kafka", "mqtt": "MQTT"}.get(scheme)) is not None:
            yield from self.inert(f"has no effect: {counting} counts no deliveries", "deliveries")
        if (start := _EMPTY_AT_FIRST.get(scheme)) is not None:
            yield from self.inert(f"has no effect: {start} is empty", "start")
        if scheme == "sqs":
            message = "has no effect: all processes that read a queue of SQS share its messages"
            yield from self.inert(message, "start", "group")
            message = "needs another broker: a queue of SQS gives each message to one process only"
            yield from self.inert(message, "cancels")
            if self.broker.tls is not None and self.broker.tls.has("server_name"):
                message = "has no effect: the library of SQS checks the certificate for the host of the URL"
                yield Conflict(("broker", "tls", "server_name"), message)
        if self.stream and self.path.startswith(("/v2/", "/v1/embeddings")):
            yield from self.inert("has no effect: the API of the path has no streams", "stream")

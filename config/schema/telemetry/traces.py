"""The ``traces`` of the file: where the spans of requests go, and which requests are traced."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from config.schema.recording.record import CREDENTIAL_HEADERS, Redaction
from config.schema.section import Section
from config.schema.text import HeaderName, Secret, Shape
from config.schema.units import Duration, Percent, Size


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

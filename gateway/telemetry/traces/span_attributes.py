"""The attributes of a request, its response and its server, by the names of OpenTelemetry's conventions for generative
AI; those without a name there begin with `headrace.`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import msgspec

from adapters.errors import InferenceError
from adapters.requests import GenerateRequest, ModelRequest
from adapters.spans import Attribute, SpanEvent, SpanLog
from adapters.types import Usage
from adapters.wire import decoding, sse
from policies.routing.decision import Decision

GENERATES = frozenset({"chat", "text_completion", "embeddings", "rerank", "score", "classify"})
"""Operations of language models, which have the attributes of the conventions for generative AI."""
LARGE = 64 * 1024
"""Bytes of a request or of an answer that are not held until the end of the request's trace."""
MOST_REASONS = 16
MOST_STOPS = 16
MOST_TEXT = 128

_NUMBERS: tuple[tuple[str, str, type[float] | type[int]], ...] = (
    ("temperature", "gen_ai.request.temperature", float),
    ("top_p", "gen_ai.request.top_p", float),
    ("top_k", "gen_ai.request.top_k", int),
    ("frequency_penalty", "gen_ai.request.frequency_penalty", float),
    ("presence_penalty", "gen_ai.request.presence_penalty", float),
    ("seed", "gen_ai.request.seed", int),
    ("dimensions", "gen_ai.embeddings.dimension.count", int),
)
_OUTPUT_TYPES = {"text": "text", "json_object": "json", "json_schema": "json"}
_INT64 = range(-(2**63), 2**63)
_decode = msgspec.json.decode


def request_attributes(request: ModelRequest) -> dict[str, Attribute]:
    """The attributes of a request, with its sampling parameters."""
    if request.operation not in GENERATES:
        return {"headrace.operation": request.operation}
    attributes: dict[str, Attribute] = {
        "gen_ai.operation.name": request.operation,
        "gen_ai.request.model": request.model,
    }
    if request.stream:
        attributes["gen_ai.request.stream"] = True
    if request.max_tokens is not None:
        attributes["gen_ai.request.max_tokens"] = request.max_tokens
    if request.n > 1:
        attributes["gen_ai.request.choice.count"] = request.n
    if isinstance(request, GenerateRequest):
        try:
            fields = request.fields
        except InferenceError:  # the body has no equivalent in the fields of a chat
            return attributes
        attributes |= _parameters(fields)
    return attributes


def _parameters(fields: Mapping[str, Any]) -> dict[str, Attribute]:
    """The sampling parameters among the encoded fields of a body. The wrong types are the server's to reject."""
    attributes: dict[str, Attribute] = {}
    for field, name, kind in _NUMBERS:
        value = _decoded(fields, field)
        is_integer = isinstance(value, int) and not isinstance(value, bool) and value in _INT64
        if is_integer or (kind is float and isinstance(value, float)):
            attributes[name] = kind(value)
    stop = _decoded(fields, "stop")
    stops = [stop] if isinstance(stop, str) else stop if isinstance(stop, list) else []
    if texts := tuple([text[:MOST_TEXT] for text in stops[:MOST_STOPS] if isinstance(text, str)]):
        attributes["gen_ai.request.stop_sequences"] = texts
    form = _decoded(fields, "response_format")
    if isinstance(form, dict) and (output := _OUTPUT_TYPES.get(str(form.get("type")))):
        attributes["gen_ai.output.type"] = output
    if isinstance(encoding := _decoded(fields, "encoding_format"), str):
        attributes["gen_ai.request.encoding_formats"] = (encoding[:MOST_TEXT],)
    return attributes


def _decoded(fields: Mapping[str, Any], name: str) -> Any:
    """The value of a field of at most some kilobytes; None without one."""
    raw = fields.get(name)
    if raw is None or len(memoryview(raw)) > 4096:
        return None
    try:
        return _decode(raw)
    except decoding.MALFORMED_JSON:
        return None


def response_attributes(excerpts: Sequence[bytes]) -> dict[str, Attribute]:
    """The id, the model and the reasons of the end of an answer: from its body, or from the first and the last events
    of its stream."""
    attributes: dict[str, Attribute] = {}
    reasons: list[str] = []
    for excerpt in excerpts:
        try:
            part = _decode(excerpt if excerpt[:1] == b"{" else sse.data_of(excerpt))
        except decoding.MALFORMED_JSON:
            continue
        for each in _levels(part):
            for name in ("id", "model"):
                if isinstance(value := each.get(name), str) and value:
                    attributes.setdefault(f"gen_ai.response.{name}", value[:MOST_TEXT])
            reasons += _reasons(each)
    if reasons:
        attributes["gen_ai.response.finish_reasons"] = tuple(reasons[:MOST_REASONS])
    return attributes


def _levels(part: Any) -> list[dict[str, Any]]:
    """The object itself, and the objects in it that have its id: Anthropic's `message` and `delta`, and the `response`
    of events."""
    if not isinstance(part, dict):
        return []
    inner = [part.get(name) for name in ("message", "response", "delta")]
    return [part, *[each for each in inner if isinstance(each, dict)]]


def _reasons(part: Mapping[str, Any]) -> list[str]:
    choices = part.get("choices")
    reasons = [part.get("stop_reason")]
    if isinstance(choices, list):
        reasons += [choice.get("finish_reason") for choice in choices if isinstance(choice, dict)]
    return [reason[:MOST_TEXT] for reason in reasons if isinstance(reason, str)]


def usage_attributes(usage: Usage | None) -> dict[str, Attribute]:
    """The usage of an attempt or of a request; only the values above 0."""
    if usage is None:
        return {}
    attributes: dict[str, Attribute] = {}
    if usage.prompt_tokens or usage.completion_tokens:
        attributes["gen_ai.usage.input_tokens"] = usage.prompt_tokens
        attributes["gen_ai.usage.output_tokens"] = usage.completion_tokens
    if usage.cached_tokens:
        attributes["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
    if usage.cache_write_tokens:
        attributes["gen_ai.usage.cache_creation.input_tokens"] = usage.cache_write_tokens
    if usage.reasoning_tokens:
        attributes["gen_ai.usage.reasoning.output_tokens"] = usage.reasoning_tokens
    if usage.rows:
        attributes["headrace.rows"] = usage.rows
    if usage.device_ms:
        attributes["headrace.device_seconds"] = usage.device_ms / 1000
    return attributes


def server_attributes(url: str, endpoint: str) -> dict[str, Attribute]:
    """The address of an endpoint's server; nothing if the endpoint has none. A Unix socket has no port."""
    return {} if url == endpoint else dict(_address(url))


@lru_cache(4096)
def _address(url: str) -> tuple[tuple[str, Attribute], ...]:
    if url.startswith("unix:"):
        return (("server.address", url.removeprefix("unix:")),)
    parts = urlsplit(url)
    if parts.hostname is None:
        return ()
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return ("server.address", parts.hostname), ("server.port", port)


def described(request: ModelRequest, log: SpanLog) -> dict[str, Attribute]:
    """The attributes of a request, which are computed once for the spans of a trace that have the same request."""
    if log.described is None or log.described[0] is not request:
        log.described = request, request_attributes(request)
    return log.described[1].copy()


def decision_event(decision: Decision, now: float) -> SpanEvent:
    """The event of the decision of the routes."""
    route: dict[str, Attribute] = {
        "headrace.route": decision.name or str(decision.route),
        "headrace.pools": tuple(decision.pools),
    }
    if decision.target.model is not None:
        route["headrace.target_model"] = decision.target.model
    if decision.comparison is not None:
        route["headrace.comparison"], route["headrace.side"] = decision.comparison.name, decision.side
    return now, "decision", route

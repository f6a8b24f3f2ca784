"""The events of one request, as KServe's agent sends them (`pkg/logger/worker.go` of kserve/kserve).

Both have the request's id, and the attributes `inferenceservicename`, `namespace`, `component`, `endpoint` and
`metadata`. We add `time`, and for bodies with binary tensors `inferenceheadercontentlength`.
"""

from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote

from adapters.wire.cloudevents import CloudEvent, format_time
from gateway.features.recording.contents import HEADER_LENGTH, JSON
from gateway.features.recording.entries import Content

REQUEST, RESPONSE = (f"org.kubeflow.serving.inference.{kind}" for kind in ("request", "response"))
_HEAD = "inferenceheadercontentlength"


class EventFacts(NamedTuple):
    """What the events of a request have beside its payload."""

    id: str
    model: str
    namespace: str
    endpoint: str
    """The arm of the route; KServe has `default` or `canary` here."""
    began: float
    ended: float


def request_event(content: Content, facts: EventFacts) -> CloudEvent:
    """The event of a request."""
    return _event(REQUEST, facts, facts.began, content.body, content.headers)


def response_event(content: Content, facts: EventFacts) -> CloudEvent | None:
    """The event of an answer; None without a whole one. A stream is one JSON object with its joined texts."""
    if content.answer is None or content.truncated:
        return None
    kind = JSON if content.streamed else content.answer_type
    return _event(RESPONSE, facts, facts.ended, content.answer, {"content-type": kind, **content.answer_headers})


def _event(kind: str, facts: EventFacts, at: float, data: bytes, headers: dict[str, str]) -> CloudEvent:
    content_type = headers.get("content-type", "")
    extensions = {
        "time": format_time(at),
        "inferenceservicename": facts.model,
        "namespace": facts.namespace,
        "component": "predictor",
        "endpoint": facts.endpoint,
        "metadata": "{}",
    }
    if HEADER_LENGTH in headers:
        extensions[_HEAD] = headers[HEADER_LENGTH]
    source = f"/headrace/models/{quote(facts.model, safe='')}"
    # A request over gRPC has the name of its wire here.
    media = content_type if "/" in content_type else "application/x-protobuf"
    return CloudEvent(facts.id, source, kind, data, media, extensions)


_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


def http_headers(event: CloudEvent) -> dict[str, str]:
    """The headers of an event over HTTP, in binary mode: values are percent-encoded (HTTP binding 1.0.2, 3.1.3.2)."""
    return dict(_http_headers(event))


def _http_headers(event: CloudEvent) -> Iterator[tuple[str, str]]:
    yield "content-type", event.content_type
    fields = {"specversion": "1.0", "id": event.id, "source": event.source, "type": event.type, **event.extensions}
    for name, value in fields.items():
        yield f"ce-{name}", quote(value, safe=_SAFE, errors="replace")

"""Envoy's external processing: its requests as fields and bytes, and the responses of an endpoint picker.

(envoy.service.ext_proc.v3, and the endpoint picker protocol 1.0 of Kubernetes' Gateway API Inference Extension.)
"""

from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf.message import DecodeError

from adapters.wire.protos.envoy import ext_proc

Field = tuple[bytes, bytes]
DESTINATION = "x-gateway-destination-endpoint"
"""The header, and the key of the metadata, that name the picked endpoints."""
DESTINATION_NAMESPACE = "envoy.lb"
SUBSET_NAMESPACE, SUBSET = "envoy.lb.subset_hint", "x-gateway-destination-endpoint-subset"
SERVED = "x-gateway-destination-endpoint-served"
ATTRIBUTES, UPSTREAM_ADDRESS = "envoy.filters.http.ext_proc", "upstream.address"
MOST_BODY = 62_000
"""Bytes of a body in one message: Envoy rejects messages above its buffer limit, which may be as low as 64 KiB."""
_OVERWRITE = 2


class MalformedProcessing(ValueError):
    """Bytes that are not a request of Envoy's external processing."""


def decode(message: bytes) -> Any:
    """Decode a `ProcessingRequest`. Raises `MalformedProcessing`."""
    try:
        return ext_proc.ProcessingRequest.FromString(message)
    except DecodeError:
        raise MalformedProcessing("The message is not a ProcessingRequest.") from None


def fields_of(headers: Any) -> list[Field]:
    """The fields of a `HeaderMap`. Envoy sends values in `raw_value` or, by an older setting, in `value`."""
    return [(one.key.encode(), one.raw_value or one.value.encode()) for one in headers.headers]


def subset_of(request: Any) -> frozenset[str] | None:
    """The endpoints that the picker may select; None if the proxy names no subset."""
    value = _entry(request.metadata_context.filter_metadata, SUBSET_NAMESPACE, SUBSET)
    return None if value is None else frozenset(_strings(value))


def served_of(request: Any) -> str:
    """The endpoint that served the request, as the proxy reports it; empty without a report."""
    value = _entry(request.metadata_context.filter_metadata, DESTINATION_NAMESPACE, SERVED)
    if value is None:
        value = _entry(request.attributes, ATTRIBUTES, UPSTREAM_ADDRESS)
    return next(iter(_strings(value)), "") if value is not None else ""


def _entry(namespaces: Any, namespace: str, key: str) -> Any:
    """A value of a map of `Struct`; None if it is absent. Reading an absent key of a map would create it."""
    if namespace not in namespaces:
        return None
    fields = namespaces[namespace].fields
    return fields[key] if key in fields else None  # noqa: SIM401 - a map of protobuf has no default of this kind


def _strings(value: Any) -> Iterable[str]:
    """The addresses of a list, or of a text with commas."""
    if value.WhichOneof("kind") == "list_value":
        return [entry.string_value.strip() for entry in value.list_value.values]
    return [part.strip() for part in value.string_value.split(",") if part.strip()]


# ── responses ─────────────────────────────────────────────────────────────────────────────────────────


def routed(
    part: str, fields: Sequence[Field], removed: Sequence[str], body: bytes | None, destinations: Sequence[str]
) -> bytes:
    """Route the request to the first of the `destinations` that answers, with these header fields.

    `part` is `request_headers` or `request_body`: the message that this responds to. With `body`, a whole new body.
    """
    response = ext_proc.ProcessingResponse()
    common = getattr(response, part).response
    names = ",".join(destinations)
    _mutate(common.header_mutation, (*fields, (DESTINATION.encode(), names.encode())), removed)
    common.clear_route_cache = True
    if body is not None:
        common.body_mutation.body = body
    metadata = response.dynamic_metadata.fields[DESTINATION_NAMESPACE].struct_value
    metadata.fields[DESTINATION].string_value = names
    return bytes(response.SerializeToString())


def changed(part: str, fields: Sequence[Field] = (), removed: Sequence[str] = (), body: bytes | None = None) -> bytes:
    """Continue, with changed header fields and, for a buffered body, another body."""
    response = ext_proc.ProcessingResponse()
    target = getattr(response, part)
    target.SetInParent()
    if fields or removed:
        _mutate(target.response.header_mutation, fields, removed)
    if body is not None:
        target.response.body_mutation.body = body
    return bytes(response.SerializeToString())


def streamed(part: str, body: bytes, *, last: bool) -> list[bytes]:
    """A piece of a body in full duplex, in as many messages as its size needs."""
    messages = []
    for start in range(0, max(len(body), 1), MOST_BODY):
        piece = body[start : start + MOST_BODY]
        response = ext_proc.ProcessingResponse()
        mutation = getattr(response, part).response.body_mutation.streamed_response
        mutation.SetInParent()
        mutation.body = piece
        mutation.end_of_stream = last and start + MOST_BODY >= len(body)
        messages.append(bytes(response.SerializeToString()))
    return messages


def immediate(status: int, fields: Sequence[Field], body: bytes) -> bytes:
    """Answer the client without an endpoint."""
    response = ext_proc.ProcessingResponse()
    answer = response.immediate_response
    answer.status.code = status
    answer.body = body
    answer.details = "headrace"
    _mutate(answer.headers, fields, ())
    return bytes(response.SerializeToString())


def _mutate(mutation: Any, fields: Iterable[Field], removed: Sequence[str]) -> None:
    for name, value in fields:
        option = mutation.set_headers.add(append_action=_OVERWRITE)
        option.header.key = name.decode("latin-1")
        option.header.raw_value = value
    mutation.remove_headers.extend(removed)

"""Typed errors for TorchServe's failures, by the `type` in their body, then by their status."""

from typing import NoReturn

from adapters.errors import CallerError, InferenceError, UpstreamTimeout
from adapters.http1.client import ClientResponse
from adapters.http1.message import Headers
from adapters.requests import ModelRequest
from adapters.upstreams.apps.calls import by_status
from adapters.upstreams.failed_status import CALLER_STATUS, credential_refused, unknown_model, upstream_error
from adapters.upstreams.oip import refusals as oip_refusals
from adapters.wire import failure_text
from adapters.wire import torchserve as wire

MAX_ERROR_BODY = 64 * 1024


def judged(request: ModelRequest, status: int, headers: Headers, body: bytes) -> InferenceError | None:
    """Return the typed error of a response; None if a handler chose the status."""
    decoded = wire.decode_error(body)
    return by_kind(request, decoded.type, decoded.message) or by_status(request, status, headers, body)


def by_kind(request: ModelRequest, kind: str, message: str = "") -> InferenceError | None:
    """Return the typed error of a Java class; None for a class that only repeats the status."""
    if kind == "InvalidKeyException":  # with a 400
        return credential_refused()
    if kind == "ModelNotFoundException":
        return unknown_model()
    if kind == "ModelVersionNotFoundException":
        return oip_refusals.no_such_version(request) if request.version else unknown_model()
    if kind == "RequestTimeoutException":
        return UpstreamTimeout("The upstream timed out.")
    if kind == "InternalServerException":  # both a handler's failure and a full queue are a 503
        return failure_text.model_failure(message)
    return CallerError("The upstream refused the request.") if kind == "BadRequestException" else None


async def refuse_order(request: ModelRequest, response: ClientResponse) -> NoReturn:
    """Raise the typed error of a rejected order, with the management API's message for the operator."""
    try:
        body = await response.read(MAX_ERROR_BODY)
    finally:
        response.close()
    decoded = wire.decode_error(body)
    if decoded.type == "InvalidKeyException":
        raise credential_refused()
    if response.status in CALLER_STATUS or response.status in (403, 404):
        raise CallerError(decoded.message or "The upstream refused the order.")
    raise upstream_error(response.status, response.headers)

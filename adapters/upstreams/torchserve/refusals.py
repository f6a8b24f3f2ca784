"""What TorchServe's failures say: their `type` tells more than their status."""

from typing import NoReturn

from adapters.errors import CallerError, InferenceError, UpstreamTimeout
from adapters.http1.client import ClientResponse
from adapters.http1.message import Headers
from adapters.types import ModelRequest
from adapters.upstreams.apps.calls import by_status
from adapters.upstreams.failed_status import CALLER_STATUS, credential_refused, model_not_known, upstream_error
from adapters.upstreams.oip import refusals as oip_refusals
from adapters.wire import model_failures
from adapters.wire.torchserve import management as wire

MAX_ERROR_BODY = 64 * 1024


def judged(request: ModelRequest, status: int, headers: Headers, body: bytes) -> InferenceError | None:
    """None for what a handler has answered with a status of its own choice."""
    told = wire.decode_error(body)
    return by_kind(request, told.type, told.message) or by_status(request, status, headers, body)


def by_kind(request: ModelRequest, kind: str, message: str = "") -> InferenceError | None:
    """By the name of a Java class; None for one that says no more than its status."""
    if kind == "InvalidKeyException":  # with a 400
        return credential_refused()
    if kind == "ModelNotFoundException":
        return model_not_known()
    if kind == "ModelVersionNotFoundException":
        return oip_refusals.no_such_version(request) if request.version else model_not_known()
    if kind == "RequestTimeoutException":
        return UpstreamTimeout("The upstream timed out.")
    if kind == "InternalServerException":  # a handler's failure is a 503, as is a full queue
        return model_failures.failed(message)
    return CallerError("The upstream refused the request.") if kind == "BadRequestException" else None


async def refuse_order(request: ModelRequest, response: ClientResponse) -> NoReturn:
    """What the management API says against an order is for the operator who gave it."""
    try:
        body = await response.read(MAX_ERROR_BODY)
    finally:
        response.close()
    told = wire.decode_error(body)
    if told.type == "InvalidKeyException":
        raise credential_refused()
    if response.status in CALLER_STATUS or response.status in (403, 404):
        raise CallerError(told.message or "The upstream refused the order.")
    raise upstream_error(response.status, response.headers)

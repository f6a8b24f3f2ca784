"""Errors and usage of responses over HTTP, from servers of the Open Inference Protocol."""

from typing import NoReturn

from adapters.errors import BackendError, CallerError, TooLarge, Unsupported
from adapters.http1.client import ClientResponse
from adapters.requests import InferRequest, ModelRequest
from adapters.types import DEVICE_MS, ERROR_CODE, Usage
from adapters.upstreams.failed_status import CALLER_STATUS, retry_after, upstream_error
from adapters.upstreams.oip import refusals as oip_refusals
from adapters.upstreams.oip.refusals import device_ms
from adapters.wire import decoding, model_failures, sse
from adapters.wire.oip import requests as oip
from adapters.wire.oip import responses as oip_responses

MAX_ERROR_BODY = 64 * 1024


async def refuse(request: ModelRequest, response: ClientResponse, body: bytes | None = None) -> NoReturn:
    """Raise the typed error of a status other than 200."""
    status = response.status
    try:
        content = await response.read(MAX_ERROR_BODY) if body is None else body
        message = oip_responses.error_of(sse.data_of(content) if content.startswith(b"data:") else content)
    except BackendError:
        message = None  # the body is unreadable; the status is sufficient
    finally:
        response.close()
    if status in (404, 503):
        oip_refusals.check_ready(request, message)
    if status == 404 and request.version:
        raise oip_refusals.no_such_version(request)
    if status == 501 or status in CALLER_STATUS:
        oip_refusals.check_single(message)
    if status == 501:
        raise Unsupported(message or "The model's server does not support this request.")
    if status in CALLER_STATUS:
        oip_refusals.check_ready(request, message)
        raise (TooLarge if status == 413 else CallerError)(message or "The upstream refused the request.")
    code = response.headers.get(ERROR_CODE)
    if status == 500 and code is None:
        oip_refusals.check_readable(request)
    raise model_failures.reported(code, message, retry_after(response.headers)) or (
        model_failures.failed(message) if status == 500 else upstream_error(status, response.headers, message)
    )


def check(request: InferRequest, body: bytes, encoding: str | None = None) -> None:
    """Raise the error in a 200. Triton's generate returns it for a model with no response or several responses."""
    if not body.startswith(b"{") and not encoding and not body.lstrip().startswith(b"{"):
        raise decoding.bad_response("The upstream's response is not JSON.")
    if body.startswith(oip_responses.ERROR):
        if request.kind == "generate":
            raise Unsupported(oip_responses.error_of(body) or "The model does not return a single response.")
        raise model_failures.failed(oip_responses.error_of(body))


def length_of(response: ClientResponse) -> int | None:
    """Return the length of a response's JSON header; None if the whole body is JSON."""
    if (written := response.headers.get(oip.HEADER)) is None:
        return None
    with decoding.Checked(CallerError):
        return oip.header_length(written)


def usage_of(request: InferRequest, response: ClientResponse, size: int) -> Usage:
    """Return the usage of a response of `size` bytes."""
    return Usage(rows=request.row_count, bytes=size, device_ms=device_ms(response.headers.get(DEVICE_MS)), exact=True)

"""Errors and usage of responses over HTTP, from servers of the Open Inference Protocol."""

from typing import NoReturn

from adapters.errors import CallerError, InferenceError, TooLarge, Unsupported
from adapters.http1.client import ClientResponse
from adapters.requests import InferRequest, ModelRequest
from adapters.types import DEVICE_MS, ERROR_CODE, OIP_JSON, Form, Usage
from adapters.upstreams import failed_status
from adapters.upstreams.event_stream import EventStream
from adapters.upstreams.failed_status import CALLER_STATUS, device_ms, error_body, retry_after, upstream_error
from adapters.wire import decoding, failure_text, sse
from adapters.wire.oip import generate as oip_generate
from adapters.wire.oip import requests as oip
from adapters.wire.oip import responses as oip_responses


async def refuse(request: ModelRequest, response: ClientResponse, body: bytes | None = None) -> NoReturn:
    """Raise the typed error of a status other than 200, with what the model computed before it."""
    try:
        await _refuse(request, response, body)
    except InferenceError as error:
        error.device_ms = device_ms(response.headers.get(DEVICE_MS))
        raise


async def _refuse(request: ModelRequest, response: ClientResponse, body: bytes | None) -> NoReturn:
    status = response.status
    content = await error_body(response) if body is None else body
    message = oip_responses.error_of(sse.data_of(content) if content.startswith(b"data:") else content)
    if status in (404, 503):
        failed_status.check_ready(request, message)
    if status == 404 and request.version:
        raise failed_status.no_such_version(request)
    if status == 501 or status in CALLER_STATUS:
        failed_status.check_single(message)
    if status == 501:
        raise Unsupported(message or "The model's server does not support this request.")
    if status in CALLER_STATUS:
        failed_status.check_ready(request, message)
        raise (TooLarge if status == 413 else CallerError)(message or "The upstream refused the request.")
    code = response.headers.get(ERROR_CODE)
    if status == 500 and code is None:
        failed_status.check_readable(request)
    raise failure_text.reported_failure(code, message, retry_after(response.headers)) or (
        failure_text.model_failure(message) if status == 500 else upstream_error(status, response.headers, message)
    )


def check(request: InferRequest, body: bytes, encoding: str | None = None) -> None:
    """Raise the error in a 200. Triton's generate returns it for a model with no response or several responses."""
    if not body.startswith(b"{") and not encoding and not body.lstrip().startswith(b"{"):
        raise decoding.bad_response("The upstream's response is not JSON.")
    if body.startswith(oip_responses.ERROR):
        if request.kind == "generate":
            raise Unsupported(oip_responses.error_of(body) or "The model does not return a single response.")
        raise failure_text.model_failure(oip_responses.error_of(body))


def length_of(response: ClientResponse) -> int | None:
    """Return the length of a response's JSON header; None if the whole body is JSON."""
    if (written := response.headers.get(oip.HEADER)) is None:
        return None
    with decoding.Checked(CallerError):
        return oip.header_length(written)


def usage_of(request: InferRequest, response: ClientResponse, size: int) -> Usage:
    """Return the usage of a response of `size` bytes."""
    return Usage(rows=request.row_count, bytes=size, device_ms=device_ms(response.headers.get(DEVICE_MS)), exact=True)


# Streams of responses over HTTP: each event is one response in JSON.


class ResponseStream(EventStream):
    """A stream of one event for each response, until the end of the body. A failure is the last event."""

    __slots__ = ()

    parts_count = True

    def __init__(self, response: ClientResponse, usage: Usage, form: Form = OIP_JSON) -> None:
        super().__init__(response, usage, form)

    def _passes_on(self, event: bytes) -> bool:
        data = sse.data_of(event)
        if data.startswith(oip_responses.ERROR):
            raise failure_text.model_failure(oip_responses.error_of(data))
        if data and not self._begun:
            oip_responses.check_object(data)  # only the first event: each client checks the others
        return bool(data) or (self._begun and event.startswith(b":"))

    def _over(self) -> None:
        self._done = True


class PromptedStream(ResponseStream):
    """A stream for a prompt from a server of tensors: each response is encoded in the generate extension's format."""

    __slots__ = ()

    def _read(self, piece: bytes) -> bytes:
        events = [event for event in super()._read(piece).split(b"\n\n") if event]
        return b"".join([self._encoded(sse.data_of(event)) for event in events])

    def _encoded(self, data: bytes) -> bytes:
        return sse.encode(oip_generate.encode_generate(oip_responses.decode_response(data, None))) if data else b""

"""Calls of HTTP apps: the forwarded request, and the app's response, unchanged."""

from collections.abc import Callable, Sequence
from typing import TypedDict

from adapters import offload
from adapters.base import Answer
from adapters.call import Call
from adapters.errors import BackendError, CallerError, InferenceError
from adapters.http1.client import Client, ClientResponse
from adapters.http1.message import Headers, encode_fields
from adapters.requests import AppRequest, ModelRequest, RankingRequest
from adapters.types import APP, Form, Usage
from adapters.upstreams.event_stream import ForwardedBody
from adapters.upstreams.failed_status import upstream_error
from adapters.wire import error_table
from adapters.wire.decoding import whole_number
from adapters.wire.openai.model_field import usage_of, with_model

MAX_REFUSAL = 1024 * 1024
MAX_TEXT = 64 * 1024
WHOLE = 256 * 1024
"""Bytes up to which a response is read whole. A larger response, or one without a `content-length`, is streamed."""
_FORWARDED = ("content-encoding", "content-language", "content-disposition")
"""Headers of a response that are always forwarded: without them its body has another meaning."""


class Redirected(CallerError):
    """The app redirects the path that the client chose."""

    code = "app_redirect"


Judge = Callable[[ModelRequest, int, Headers, bytes], InferenceError | None]
"""Classifies a response with a status of 400 or more; None if it is the app's own response for the client."""


def by_status(request: ModelRequest, status: int, headers: Headers, body: bytes) -> InferenceError | None:
    """Classify a response by its HTTP status."""
    if status != 429 and status < 500:
        return None
    return upstream_error(status, headers, _text_of(headers, body))


def _text_of(headers: Headers, body: bytes) -> str | None:
    """Return the text of a failure: the message of a JSON body, or plain text; None for HTML."""
    content_type = (headers.get("content-type") or "").partition(";")[0].strip().lower()
    if content_type == "application/json":
        return error_table.decode_error(body).message
    is_text = content_type in ("", "text/plain") and not body.lstrip().startswith(b"<")
    return body[:MAX_TEXT].decode("utf-8", "replace") if is_text else None


class AppCalls:
    """Calls of one endpoint.

    `keyed`: requests carry the pool's key. `headers` and `answer_headers` name further headers to forward.
    """

    def __init__(
        self,
        client: Client,
        *,
        keyed: bool = False,
        headers: Sequence[str] = (),
        answer_headers: Sequence[str] = (),
        judge: Judge = by_status,
    ) -> None:
        self._client = client
        self._keyed = keyed
        self._headers = tuple(headers)
        self._forwarded = (*_FORWARDED, *answer_headers)
        self._judge = judge
        self._fields = encode_fields([("user-agent", "headrace")])

    async def call(
        self, request: AppRequest, target: bytes, call: Call, more: Sequence[tuple[str, str]] = ()
    ) -> Answer:
        """Return the app's response once its first byte has arrived.

        `target` is the path and the query; `more` are additional header fields.
        """
        fields = self._fields + encode_fields([*self._request_headers(request, call), *more])
        body = await body_of(request)
        response = await self._client.request(request.method.encode(), target, fields, body, call.deadline)
        try:
            return await self._answer(request, response, call)
        except BaseException:
            response.close()
            raise

    def _request_headers(self, request: AppRequest, call: Call) -> list[tuple[str, str]]:
        fields = [*call.fields, ("accept", request.accept or "*/*")]
        if request.content_type:
            fields.append(("content-type", request.content_type))
        if request.encoding:
            fields.append(("content-encoding", request.encoding))
        fields += request.own_headers
        own = {name for name, _ in fields}
        names = [name for name in self._headers if name not in own]
        fields += [(name, value) for name in names if (value := call.headers.get(name)) is not None]
        return fields

    async def _answer(self, request: AppRequest, response: ClientResponse, call: Call) -> Answer:
        status, headers = response.status, response.headers
        if status == 401 and self._keyed:
            raise upstream_error(status, headers)
        if 300 <= status < 400 and status != 304:
            raise Redirected("The app redirects the request, and redirects are not followed.")
        if status >= 400:
            body = await _refusal(response)
            if (error := self._judge(request, status, headers, body)) is not None:
                raise error
            return self._with_headers(Answer(**_head(response), body=body, usage=_usage(body)), headers)
        if isinstance(request, RankingRequest):
            body = await response.read()
            return self._with_headers(Answer(**_head(response), body=body, usage=_usage_of(request, body)), headers)
        if status in (204, 304) or whole_number(headers.get("content-length") or "", most=WHOLE) is not None:
            body = await response.read(WHOLE)
            return self._with_headers(Answer(**_head(response), body=body, usage=_usage(body)), headers)
        stream = ForwardedBody(response, **_head(response), usage=Usage(exact=True))
        return self._with_headers(await stream.begun(call.deadline.first_byte), headers)

    def _with_headers(self, answer: Answer, headers: Headers) -> Answer:
        answer.headers += tuple((name, value) for name in self._forwarded if (value := headers.get(name)) is not None)
        return answer


class _Head(TypedDict):
    content_type: str
    status: int
    form: Form


def _head(response: ClientResponse) -> _Head:
    return _Head(content_type=response.headers.get("content-type") or "", status=response.status, form=APP)


def _usage(body: bytes) -> Usage:
    return Usage(bytes=len(body), exact=True)


def _usage_of(request: RankingRequest, body: bytes) -> Usage:
    """The tokens that the server reports, else the estimate; the rows are the request's."""
    usage = usage_of(body) or Usage(prompt_tokens=request.prompt_tokens)
    usage.bytes, usage.rows = len(body), request.rows
    return usage


async def _refusal(response: ClientResponse) -> bytes:
    """Return the body of an error response; empty for an unreadable body of a status from 500 on."""
    try:
        return await response.read(MAX_REFUSAL)
    except BackendError:
        if response.status < 500:
            raise
        return b""


async def body_of(request: AppRequest) -> bytes:
    """Return the body to send, with the name of the request's model. Raises `CallerError`."""
    if not request.stale:
        return request.body
    return await offload.scan(len(request.body), with_model, request.content_type, request.body, request.model)

"""A handler of HTTP requests whose traced requests have a span."""

from collections.abc import Awaitable

from adapters.errors import InferenceError
from adapters.http1.message import BodyStream, Handler, Request, Response
from adapters.spans import Span
from adapters.wire.spans import PATH
from runtimes.spans import SpanBuffer, within

_TARGET = PATH.encode()
_TRACEPARENT = b"traceparent"


class TracedHandler:
    """Forwards requests to a handler, and serves the path at which the gateway fetches spans."""

    def __init__(self, handler: Handler, spans: SpanBuffer) -> None:
        self._handler = handler
        self._spans = spans

    def __call__(self, request: Request) -> Awaitable[Response]:
        # Not a coroutine: an untraced request passes without another frame.
        if request.target == _TARGET and request.method == "POST":
            return self._take(request)
        if _TRACEPARENT not in request.headers.raw:
            return self._handler(request)
        return self._traced(request)

    async def _take(self, request: Request) -> Response:
        try:
            body = self._spans.take(await request.read())
        except InferenceError as error:
            return Response(400, [("content-type", "text/plain")], error.message.encode())
        return Response(200, [("content-type", "application/msgpack")], body)

    async def _traced(self, request: Request) -> Response:
        root = self._spans.begin(request.headers, f"{request.method} {request.path[:128]}")
        if root is None:
            return await self._handler(request)
        root.attributes["http.request.method"] = request.method
        root.attributes["url.path"] = request.path[:128]
        try:
            with within(root):
                response = await self._handler(request)
        except BaseException as error:
            self._spans.end(root, error)
            raise
        root.attributes["http.response.status_code"] = response.status
        if isinstance(response.body, bytes):
            self._spans.end(root, "" if response.status < 400 else str(response.status))
            return response
        return Response(response.status, response.headers, _TracedBody(response.body, root, self._spans))


class _TracedBody:
    """A stream that ends the span of its request."""

    def __init__(self, body: BodyStream, root: Span, spans: SpanBuffer) -> None:
        self._body = body
        self._root = root
        self._spans = spans
        self._error: BaseException | str = "cancelled"

    def __aiter__(self) -> "_TracedBody":
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._body)
        except StopAsyncIteration:
            # A stream of events reports a failure as its last event.
            self._error = getattr(self._body, "failure", None) or ""
            raise
        except BaseException as error:
            self._error = error
            raise

    async def aclose(self) -> None:
        try:
            await self._body.aclose()
        finally:
            self._spans.end(self._root, self._error)

"""Adapter of any HTTP app: forwards its responses, and transcodes declared tensors to its JSON."""

from __future__ import annotations

from collections.abc import Awaitable

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import BackendError, CallerError, TooLarge, Unsupported
from adapters.http1.client import Client
from adapters.http1.message import Headers, encode_fields
from adapters.registry import Address
from adapters.requests import AppRequest, InferRequest, ModelQuery, ModelRequest
from adapters.upstreams import health
from adapters.upstreams.apps.calls import AppCalls, Judge, Redirected, by_status
from adapters.upstreams.declared_tensors import DeclaredModel, not_reported, ready_answer
from adapters.upstreams.dial import http1_client, probe_path
from adapters.upstreams.failed_status import CALLER_STATUS, upstream_error
from adapters.wire import decoding
from adapters.wire.oip import responses as oip_responses
from config.schema.config import PoolConfig
from config.schema.protocols.apps import HttpProtocol, RayServeProtocol

MAX_ANSWER = 64 * 1024 * 1024
_FIELDS = encode_fields([("user-agent", "headrace")])


def make(pool: PoolConfig, address: Address) -> HttpAppAdapter:
    """Return the adapter of one endpoint of a pool."""
    protocol = pool.protocol
    assert isinstance(protocol, HttpProtocol)
    return HttpAppAdapter(
        http1_client(pool, address), protocol, keyed=pool.has_credential, probe=probe_path(pool).get("probe")
    )


class HttpAppAdapter:
    """Adapter of one endpoint. `keyed`: requests carry the pool's key."""

    def __init__(
        self,
        client: Client,
        protocol: HttpProtocol | RayServeProtocol,
        *,
        keyed: bool = False,
        probe: str | None = None,
        judge: Judge = by_status,
    ) -> None:
        self._client = client
        self._calls = AppCalls(
            client, keyed=keyed, headers=protocol.headers, answer_headers=protocol.answer_headers, judge=judge
        )
        self._declared = DeclaredModel(protocol, client.now)
        self._infer_path = protocol.path
        self._probe = probe

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        if isinstance(request, AppRequest):
            return await self._call(request, call)
        if isinstance(request, InferRequest):
            return await self._infer(request, call)
        if isinstance(request, ModelQuery):
            return await self._answer_query(request, call)
        raise no_such_kind(request)

    async def _call(self, request: AppRequest, call: Call) -> Answer:
        target = target_of(self._client.base_path, request)
        return await self._calls.call(request, target, call, self._more(request))

    def _more(self, request: ModelRequest) -> list[tuple[str, str]]:
        """Return header fields that this kind of server requires."""
        return []

    async def _infer(self, request: InferRequest, call: Call) -> Answer:
        inference, body = await self._declared.encode(request, call)
        app_request = call_for(request, self._infer_path, body)
        return await self._declared.answer(request, inference, await tensors(self._call(app_request, call)))

    async def _answer_query(self, query: ModelQuery, call: Call) -> Answer:
        """Answer a query from the configuration: an app does not describe itself, and probes check its health."""
        if query.about == "metadata":
            return self._declared.answer_query(query)
        if query.about == "ready":
            return ready_answer(query)
        raise not_reported(query)

    async def probe(self, timeout: float) -> None:
        """Request the configured path, or else the root, where any status below 500 counts as healthy."""
        target = (self._client.base_path + (self._probe or "/")).encode()
        await healthy(self._client, target, timeout, below=201 if self._probe else 500)

    async def aclose(self) -> None:
        await self._client.aclose()


def target_of(base: str, request: AppRequest) -> bytes:
    """Return the request's target: the endpoint's base path, the request's path and its query."""
    path = base + request.path or "/"
    return (f"{path}?{request.query}" if request.query else path).encode("latin-1")


def call_for(request: InferRequest, path: str, body: bytes) -> AppRequest:
    """Return an inference as a request to the app."""
    return AppRequest(
        model=request.model,
        version=request.version,
        path=path,
        content_type="application/json",
        accept="application/json",
        body=body,
    )


async def tensors(call: Awaitable[Answer]) -> bytes:
    """Return the body of a response with tensors. Raises `CallerError` if the app rejected the request."""
    try:
        answer = await call
    except Redirected:
        raise decoding.bad_response("The upstream redirects the request, and redirects are not followed.") from None
    pieces, size = [answer.body] if answer.body is not None else [], 0
    if answer.body is None:
        try:
            async for piece in answer:
                pieces.append(piece)
                size += len(piece)
                if size > MAX_ANSWER:
                    pieces.clear()  # the error's traceback references this frame
                    raise BackendError("The upstream's answer is too large.")
        finally:
            await answer.aclose()
    body = b"".join(pieces)
    if answer.status in CALLER_STATUS:
        kind = TooLarge if answer.status == 413 else CallerError
        raise kind(oip_responses.error_of(body) or "The upstream refused the request.")
    if answer.status >= 300:
        raise upstream_error(answer.status, Headers({}))
    return body


def no_such_kind(request: ModelRequest) -> Unsupported:
    """Return the error for chats and orders."""
    return Unsupported(f"The model `{request.model}` is an app: its servers do not support this request.")


async def healthy(
    client: Client, target: bytes, timeout: float, judge: Judge = by_status, *, below: int = 201
) -> bytes:
    """Return the body of a GET whose status is less than `below`. Raises `InferenceError`."""
    status, headers, body = await health.look(client, target, _FIELDS, timeout)
    if status >= below:
        failure = judge(ModelQuery(model=""), status, headers, body)
        if failure is not None and failure.code == "upstream_credential":
            raise failure
        raise health.ill(status)
    return body

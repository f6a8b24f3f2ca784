"""Servers of the Open Inference Protocol over HTTP: Triton, KServe, MLServer, and our own tensor runtime."""

from functools import lru_cache
from typing import NoReturn
from urllib.parse import quote

from adapters import oip_refusals
from adapters.base import Answer
from adapters.dial import http1_client, names, probe_path
from adapters.errors import BackendError, CallerError, TooLarge, Unsupported
from adapters.failed_status import CALLER_STATUS, upstream_error
from adapters.http1.client import Client, ClientResponse, encode_fields
from adapters.inferred import MAX_ANSWER
from adapters.oip_events import OneEvent, ResponseStream
from adapters.oip_inference import FRESH, Reader
from adapters.oip_refusals import device_ms
from adapters.registry import Address
from adapters.types import (
    DEVICE_MS,
    OIP_JSON,
    Deadline,
    Form,
    InferRequest,
    ModelOrder,
    ModelQuery,
    ModelRequest,
    Usage,
)
from adapters.wire import compression, oip, oip_answers, oip_bodies, sse
from config.protocols.oip import OipHttpProtocol
from config.schema import PoolConfig

MAX_ERROR_BODY = 64 * 1024
_NO_SUCH_PATH = frozenset({404, 405, 501})


@lru_cache(4096)
def _target(base: str, model: str, version: str, what: str) -> bytes:
    path = f"{base}/v2/models/{quote(model, safe='')}"
    if version:
        path += f"/versions/{quote(version, safe='')}"
    return f"{path}/{what}".encode() if what else path.encode()


def make(pool: PoolConfig, address: Address) -> "OipHttpAdapter":
    """For an endpoint of a pool."""
    assert isinstance(pool.protocol, OipHttpProtocol)
    client = http1_client(pool, address)
    return OipHttpAdapter(client, binary=pool.protocol.binary, **names(pool), **probe_path(pool))


class OipHttpAdapter:
    """One endpoint. `model` is its name for what clients call otherwise.

    `binary` False is for servers without the binary extension: what came in binary form goes on as JSON.
    """

    def __init__(
        self,
        client: Client,
        *,
        model: str | None = None,
        probe: str = "/v2/health/ready",
        binary: bool = True,
    ) -> None:
        self._client = client
        self._model = model
        self._binary = binary
        self._base = client.base_path.removesuffix("/v2")
        self._probe_target = (self._base + probe).encode()
        self._reader = Reader(self._metadata, client.now)
        self._alone_until = 0.0
        """Until then no stream of responses is asked for: the server has shown that it has no path for them."""
        self._fields = encode_fields([("user-agent", "headrace")])
        self._json_fields = self._fields + encode_fields([("content-type", "application/json")])
        self._binary_fields = self._fields + encode_fields([("content-type", "application/octet-stream")])

    async def call(self, request: ModelRequest, deadline: Deadline) -> Answer:
        if isinstance(request, InferRequest):
            return await (self._stream if request.stream else self._infer)(request, deadline)
        if isinstance(request, ModelQuery):
            return await self._ask(request, deadline)
        if isinstance(request, ModelOrder):
            return await self._order(request, deadline)
        raise oip_refusals.takes_tensors(request)

    async def probe(self, timeout: float) -> None:
        deadline = Deadline(self._client.now() + timeout, timeout, timeout)
        response = await self._client.request(b"GET", self._probe_target, self._fields, b"", deadline)
        try:
            await response.read(MAX_ERROR_BODY)
        finally:
            response.close()
        if response.status != 200:
            raise BackendError(f"The health check answered {response.status}.")

    async def aclose(self) -> None:
        await self._client.aclose()

    # ── tensors ───────────────────────────────────────────────────────────────────────────────────────

    async def _infer(self, request: InferRequest, deadline: Deadline) -> Answer:
        spliced = self._may_splice(request)
        response = await self._send(request, spliced, deadline)
        if response.status != 200:
            await _refuse(request, response)
        body = await response.read(MAX_ANSWER)
        headers, usage = response.headers, _usage(request, response, len(body))
        encoding, length = headers.get("content-encoding"), _length(response)
        _check(request, body, encoding)
        if not spliced and request.wire == "oip-http":
            # It may have asked for binary tensors, which its server has not.
            inferred = oip_answers.decode_response(body, length)
            body, length = oip_answers.encode_response(inferred, oip_answers.wanted(request.inference))
        form = Form("oip-http", length, encoding or "")
        content_type = "application/json" if length is None else "application/octet-stream"
        return Answer(content_type=content_type, body=body, usage=usage, form=form)

    def _may_splice(self, request: InferRequest) -> bool:
        """Whether the client's bytes are what this server reads."""
        return request.wire == "oip-http" and (self._binary or request.header_length is None)

    async def _send(self, request: InferRequest, spliced: bool, deadline: Deadline) -> ClientResponse:
        if not spliced:
            binary = self._binary and not request.stream  # events are text
            inference = await self._reader.inference(request, self._model or request.model, deadline)
            body, length = oip.encode_request(inference, binary=binary)
            return await self._post(request, request.kind, body, length, deadline)
        # Who knows no binary tensors is not trusted with compressed bodies either.
        body, length = request.body if self._binary else request.plain, request.header_length
        codings = list[tuple[str, str]]()
        if request.encoding and self._binary:
            codings.append(("content-encoding", request.encoding))
        if request.accepts and not request.stream and (accepted := compression.chosen(request.accepts)) is not None:
            codings.append(("accept-encoding", accepted))
        return await self._post(request, request.kind, body, length, deadline, encode_fields(codings))

    async def _post(
        self, request: InferRequest, verb: str, body: bytes, length: int | None, deadline: Deadline, more: bytes = b""
    ) -> ClientResponse:
        """The answer's head, whatever its status."""
        fields = [("x-request-id", request.request_id)]
        if length is not None:
            fields.append((oip.HEADER, str(length)))
        ours = self._json_fields if length is None else self._binary_fields
        target = _target(self._base, self._model or request.model, request.version, verb)
        return await self._client.request(b"POST", target, ours + encode_fields(fields) + more, body, deadline)

    # ── streams ───────────────────────────────────────────────────────────────────────────────────────

    async def _stream(self, request: InferRequest, deadline: Deadline) -> Answer:
        """Events; one, where the server has no path for streams of responses."""
        if request.kind == "infer_stream" and self._client.now() < self._alone_until:
            return await self._alone(request, deadline)
        response = await self._send(request, self._may_splice(request), deadline)
        if request.kind == "infer_stream" and response.status in _NO_SUCH_PATH:
            response.close()
            answer = await self._alone(request, deadline)
            self._alone_until = self._client.now() + FRESH
            return answer
        if response.status != 200:
            await _refuse(request, response)
        if (response.headers.get("content-type") or "").lower().startswith("text/event-stream"):
            return await ResponseStream(response, _usage(request, response, 0)).begun(deadline.first_byte)
        _check(request, await response.read(MAX_ANSWER))
        raise BackendError("The upstream answered with the wrong content type.", code="upstream_bad_response")

    async def _alone(self, request: InferRequest, deadline: Deadline) -> Answer:
        """A stream of the one response that any model can be asked for that is not decoupled."""
        inference = await self._reader.inference(request, self._model or request.model, deadline)
        body, length = oip.encode_request(inference, binary=False)
        response = await self._post(request, "infer", body, length, deadline)
        if response.status != 200:
            await _refuse(request, response)
        body = await response.read(MAX_ANSWER)
        _check(request, body)
        told, _ = oip_answers.encode_response(oip_answers.decode_response(body, _length(response)))
        return OneEvent(sse.encode(told), _usage(request, response, len(told)))

    # ── orders ────────────────────────────────────────────────────────────────────────────────────────

    async def _order(self, order: ModelOrder, deadline: Deadline) -> Answer:
        model = quote(self._model or order.model, safe="")
        target = f"{self._base}/v2/repository/models/{model}/{order.order}".encode()
        fields = self._json_fields + encode_fields((("x-request-id", order.request_id),))
        response = await self._client.request(b"POST", target, fields, order.body or b"{}", deadline)
        body = await response.read(MAX_ERROR_BODY)
        if response.status != 200:
            await _refuse(order, response, body)
        self._reader.forget()
        return Answer(content_type="application/json", body=body, form=OIP_JSON)

    # ── questions ─────────────────────────────────────────────────────────────────────────────────────

    async def _ask(self, query: ModelQuery, deadline: Deadline) -> Answer:
        what = "" if query.about == "metadata" else query.about
        target = _target(self._base, self._model or query.model, query.version, what)
        fields = self._fields + encode_fields((("x-request-id", query.request_id),))
        response = await self._client.request(b"GET", target, fields, b"", deadline)
        body = await response.read(MAX_ANSWER)
        if query.about == "ready":
            if response.status != 200:
                raise oip_refusals.not_ready(query)
            body = oip_bodies.encode({"name": query.model, "ready": True})
        elif response.status == 404 and query.about != "metadata":
            raise Unsupported(f"The server of `{query.model}` does not tell its {query.about}.")
        elif response.status != 200:
            await _refuse(query, response, body)
        return Answer(content_type="application/json", body=body, usage=Usage(bytes=len(body)), form=OIP_JSON)

    async def _metadata(self, model: str, version: str, deadline: Deadline) -> oip_bodies.ModelMetadata:
        answer = await self._ask(ModelQuery(model=model, version=version), deadline)
        return oip_bodies.decode_metadata(answer.body or b"")


# ── what a response tells ─────────────────────────────────────────────────────────────────────────────────────


async def _refuse(request: ModelRequest, response: ClientResponse, body: bytes | None = None) -> NoReturn:
    """The typed error behind a status that is not 200."""
    status = response.status
    try:
        told = await response.read(MAX_ERROR_BODY) if body is None else body
        message = oip_answers.error_of(sse.data_of(told) if told.startswith(b"data:") else told)
    except BackendError:
        message = None  # it cannot be read; the status says enough
    finally:
        response.close()
    if status == 404 and request.version:
        raise oip_refusals.no_such_version(request)
    if status == 501:
        raise Unsupported(message or "The model's server does not do this.")
    if status in CALLER_STATUS:
        raise (TooLarge if status == 413 else CallerError)(message or "The upstream refused the request.")
    if status == 500:
        oip_refusals.check_readable(request)
    raise upstream_error(status, response.headers)


def _check(request: InferRequest, body: bytes, encoding: str | None = None) -> None:
    """Find the failure in a 200. Triton's generate has one: for a model that gives no or several responses."""
    if not body.startswith(b"{") and not encoding and not body.lstrip().startswith(b"{"):
        raise BackendError("The upstream answered no JSON.", code="upstream_bad_response")
    if body.startswith(oip_answers.ERROR):
        if request.kind == "generate":
            raise Unsupported(oip_answers.error_of(body) or "The model gives no single response.")
        raise BackendError("The upstream failed.")


def _length(response: ClientResponse) -> int | None:
    try:
        return oip.header_length(response.headers.get(oip.HEADER))
    except CallerError:
        raise BackendError("The upstream's answer cannot be read.", code="upstream_bad_response") from None


def _usage(request: InferRequest, response: ClientResponse, size: int) -> Usage:
    return Usage(rows=request.rows, bytes=size, device_ms=device_ms(response.headers.get(DEVICE_MS)), exact=True)

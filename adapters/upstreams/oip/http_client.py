"""Adapter of servers of the Open Inference Protocol over HTTP: Triton, KServe, MLServer, the bundled tensor runtime."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NoReturn

from adapters import offload
from adapters.base import Answer
from adapters.call import Call
from adapters.errors import BackendError, InferenceError, Unsupported
from adapters.http1.client import Client, ClientResponse
from adapters.http1.message import encode_fields
from adapters.offload import codecs
from adapters.paths import segment
from adapters.registry import Address
from adapters.requests import InferRequest, ModelOrder, ModelQuery, ModelRequest
from adapters.tensors import Inference
from adapters.types import OIP_JSON, Deadline, Form, Usage
from adapters.upstreams import failed_status, health
from adapters.upstreams.dial import http1_client, names, probe_path
from adapters.upstreams.inference import FRESH, Reader
from adapters.upstreams.inferred import MAX_ANSWER, answer_of, check_explains, event_form, only_event
from adapters.upstreams.oip import dialects
from adapters.upstreams.oip.dialects import PIPELINE, TRITON, Dialect, dialect_of
from adapters.upstreams.oip.responses import PromptedStream, ResponseStream, check, length_of, refuse, usage_of
from adapters.upstreams.readiness import Readiness
from adapters.wire import compression, decoding
from adapters.wire.error_table import by_client
from adapters.wire.oip import bodies as oip_bodies
from adapters.wire.oip import requests as oip
from adapters.wire.oip.bodies import HttpPayload, IndexEntry
from adapters.wire.tfserving.predict_v1_view import predicted
from config.schema.config import PoolConfig
from config.schema.protocols.tensors import OipHttpProtocol

_NO_SUCH_PATH = frozenset({404, 405, 501})
ANY_ID = "1"
_SPOKEN = {
    "infer": "infer",
    "infer_stream": "infer_stream",
    "generate": "infer",
    "generate_stream": "infer_stream",
    "explain": "explain",
}
"""The path of a request's kind after its encoding as tensors."""


@lru_cache(4096)
def _target(base: str, model: str, version: str, operation: str) -> bytes:
    path = f"{base}/v2/models/{segment(model)}"
    if version:
        path += f"/versions/{segment(version)}"
    return f"{path}/{operation}".encode() if operation else path.encode()


def make(pool: PoolConfig, address: Address) -> "OipHttpAdapter":
    """Return the adapter of one endpoint of a pool."""
    assert isinstance(pool.protocol, OipHttpProtocol)
    client = http1_client(pool, address)
    dialect = dialect_of(pool.protocol.server)
    return OipHttpAdapter(client, binary=pool.protocol.binary, dialect=dialect, **names(pool), **probe_path(pool))


class OipHttpAdapter:
    """Adapter of one endpoint. `model` is the endpoint's own name of the model, if clients use another name.

    `binary` False is for servers without the binary extension: binary tensors are encoded as JSON.
    """

    def __init__(
        self,
        client: Client,
        *,
        model: str | None = None,
        probe: str = "/v2/health/ready",
        binary: bool = True,
        dialect: Dialect = TRITON,
    ) -> None:
        self._client = client
        self._dialect = dialect
        self._routed = model
        """The name for a router; the servers behind it use a pipeline's name without its suffix."""
        self._model = model.removesuffix(PIPELINE) if model and dialect.routed_by else model
        self._binary = binary and dialect.binary
        self._base = client.base_path.removesuffix("/v2")
        self._probe_target = (self._base + probe).encode()
        self._reader = Reader(self._metadata, client.now)
        self._readiness = Readiness(self._listed, client.now)
        self._alone_until = 0.0
        """The time until which no stream of responses is requested, since the server has no path for streams."""
        self._fields = encode_fields([("user-agent", "headrace")])
        self._json_fields = self._fields + encode_fields([("content-type", "application/json")])
        self._binary_fields = self._fields + encode_fields([("content-type", "application/octet-stream")])

    @property
    def model(self) -> str | None:
        """The endpoint's own name of the model; None for the clients' names."""
        return self._model

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        failed_status.check_version(request, self._dialect.versions)
        try:
            if isinstance(request, InferRequest):
                check_explains(request, self._dialect.explains)
                return await (self._stream if request.stream else self._infer)(request, call)
            if isinstance(request, ModelQuery):
                return await self._query(request, call)
            if isinstance(request, ModelOrder):
                return await self._order(request, call)
            raise failed_status.takes_tensors(request)
        except InferenceError as error:
            await self._readiness.explain(error, request, call)
            if self._model is None:
                raise by_client(error, None, request.model) from None
            raise

    async def probe(self, timeout: float) -> None:
        await health.check(self._client, self._probe_target, self._fields, timeout)

    async def aclose(self) -> None:
        await self._client.aclose()

    # ── tensors ───────────────────────────────────────────────────────────────────────────────────────

    async def _infer(self, request: InferRequest, call: Call) -> Answer:
        spliced = self._spliced(request)
        response = await self._send(request, spliced, call)
        if response.status != 200:
            await self._refuse(request, response, call)
        body = await response.read(MAX_ANSWER)
        headers, usage = response.headers, usage_of(request, response, len(body))
        encoding, length = headers.get("content-encoding"), length_of(response)
        check(request, body, encoding)
        if spliced is None and request.wire == "oip-http":
            # The request may demand binary tensors, which the server does not support, or contain a prompt.
            return await answer_of(request, await codecs.decode_response(body, length), usage)
        form = Form("oip-http", length, encoding or "", request.kind == "generate")
        content_type = "application/json" if length is None else "application/octet-stream"
        return Answer(content_type=content_type, body=body, usage=usage, form=form)

    async def _refuse(self, request: InferRequest, response: ClientResponse, call: Call) -> NoReturn:
        if response.status == 500 and self._dialect.blunt:
            response.close()  # the status is sufficient
            await self._reader.check(request, self._model or request.model, call)
        await refuse(request, response)

    def _spliced(self, request: InferRequest) -> HttpPayload | None:
        """Return the client's payload if its bytes are valid for this server."""
        payload = request.payload
        if not isinstance(payload, HttpPayload) or not (self._binary or payload.header_length is None):
            return None
        if self._dialect.extras or (payload.header_length != 0 and request.kind in ("infer", "infer_stream")):
            return payload
        return None

    async def _send(self, request: InferRequest, spliced: HttpPayload | None, call: Call) -> ClientResponse:
        if spliced is None:
            binary = self._binary and not request.stream  # events are text
            inference = await self._reader.inference(predicted(request), self._model or request.model, call)
            if self._dialect.needs_id:
                inference = _with_id(inference, call)
            body, length = await codecs.encode_request(inference, binary=binary)
            return await self._post(request, _SPOKEN[request.kind], body, length, call)
        compressed = self._binary and self._dialect.extras
        body, length = spliced.body if compressed else spliced.plain, spliced.header_length
        if self._dialect.needs_id:
            id_ = call.id or ANY_ID
            body, length = await offload.scan(len(body) if length is None else length, oip.with_id, body, length, id_)
        codings: list[tuple[str, str]] = []
        if spliced.encoding and compressed:
            codings.append(("content-encoding", spliced.encoding))
        if spliced.accepts and not request.stream and (accepted := compression.chosen(spliced.accepts)) is not None:
            codings.append(("accept-encoding", accepted))
        return await self._post(request, request.kind, body, length, call, codings)

    async def _post(
        self,
        request: InferRequest,
        verb: str,
        body: bytes,
        length: int | None,
        call: Call,
        codings: Sequence[tuple[str, str]] = (),
    ) -> ClientResponse:
        """Send a request, and return the response of any status."""
        fields = [*call.fields, *codings]
        if self._dialect.routed_by:
            fields += self._routing(request)
        if length is not None:
            fields.append((oip.HEADER, str(length)))
        ours = self._json_fields if length is None else self._binary_fields
        target = _target(self._base, self._model or request.model, request.version, verb)
        return await self._client.request(b"POST", target, ours + encode_fields(fields), body, call.deadline)

    def _about(self, request: ModelRequest, call: Call) -> list[tuple[str, str]]:
        """Return the header fields that depend on the request."""
        return [*call.fields, *self._routing(request)]

    def _routing(self, request: ModelRequest) -> list[tuple[str, str]]:
        """Return the header by which a router finds the model; none for a server without a router."""
        name = self._dialect.routed_by
        return [(name, self._routed or request.model)] if name else []

    # ── streams ───────────────────────────────────────────────────────────────────────────────────────

    async def _stream(self, request: InferRequest, call: Call) -> Answer:
        """Return a stream of events; a stream of one event if the server has no path for streams."""
        spliced = self._spliced(request)
        of_tensors = request.kind == "infer_stream" or spliced is None
        if of_tensors and (not self._dialect.streams or self._client.now() < self._alone_until):
            return await self._alone(request, call)
        response = await self._send(request, spliced, call)
        if of_tensors and response.status in _NO_SUCH_PATH:
            response.close()
            answer = await self._alone(request, call)
            self._alone_until = self._client.now() + FRESH
            return answer
        if response.status != 200:
            await self._refuse(request, response, call)
        if (response.headers.get("content-type") or "").lower().startswith("text/event-stream"):
            kind = ResponseStream if request.kind == "infer_stream" or spliced is not None else PromptedStream
            stream = kind(response, usage_of(request, response, 0), event_form(request))
            return await stream.begun(call.deadline.first_byte)
        check(request, await response.read(MAX_ANSWER))
        raise decoding.bad_response("The upstream's response has the wrong content type.")

    async def _alone(self, request: InferRequest, call: Call) -> Answer:
        """Return a stream of one response, from the path that every model supports unless it is decoupled."""
        inference = await self._reader.inference(request, self._model or request.model, call)
        if self._dialect.needs_id:
            inference = _with_id(inference, call)
        body, length = await codecs.encode_request(inference, binary=False)
        response = await self._post(request, "infer", body, length, call)
        if response.status != 200:
            await self._refuse(request, response, call)
        body = await response.read(MAX_ANSWER)
        check(request, body)
        inferred = await codecs.decode_response(body, length_of(response))
        return await only_event(request, inferred, usage_of(request, response, 0))

    # ── orders ────────────────────────────────────────────────────────────────────────────────────────

    async def _order(self, order: ModelOrder, call: Call) -> Answer:
        give = dialects.reload if self._dialect.reloads else dialects.give
        fields = self._json_fields + encode_fields(self._about(order, call))
        answer = await give(self._client, self._base, self._model or order.model, order, fields, call)
        self._reader.forget()
        return answer

    async def retain(self, model: str, version: str, seconds: float, deadline: Deadline) -> None:
        """Leave a version of a model loaded for some seconds, in our tensor runtime. Raises `InferenceError`."""
        target = _target(self._base, self._model or model, version, "retain")
        body = oip_bodies.encode({"seconds": seconds})
        response = await self._client.request(b"POST", target, self._json_fields, body, deadline)
        answer = await response.read(MAX_ANSWER)
        if response.status != 200:
            await refuse(ModelOrder(model=model, version=version), response, answer)

    # ── queries ───────────────────────────────────────────────────────────────────────────────────────

    async def _query(self, query: ModelQuery, call: Call) -> Answer:
        operation = "" if query.about == "metadata" else query.about
        target = _target(self._base, self._model or query.model, query.version, operation)
        fields = self._fields + encode_fields(self._about(query, call))
        response = await self._client.request(b"GET", target, fields, b"", call.deadline)
        body = await response.read(MAX_ANSWER)
        if query.about == "ready":
            if response.status != 200:
                raise failed_status.not_ready(query, await self._listed(query, call))
            body = oip_bodies.encode({"name": query.model, "ready": True})
        elif response.status == 404 and query.about != "metadata":
            raise Unsupported(f"The server of `{query.model}` does not report its {query.about}.")
        elif response.status != 200:
            await refuse(query, response, body)
        return Answer(content_type="application/json", body=body, usage=Usage(bytes=len(body)), form=OIP_JSON)

    async def _listed(self, query: ModelRequest, call: Call) -> list[IndexEntry]:
        """Return a model's entries in the repository's index; no entries if the server has no index."""
        model = self._model or query.model
        target = f"{self._base}/v2/repository/index".encode()
        try:
            response = await self._client.request(b"POST", target, self._json_fields, b"{}", call.deadline)
            body = await response.read(MAX_ANSWER)
            entries = oip_bodies.decode_index(body) if response.status == 200 else []
        except BackendError:
            return []
        return [entry for entry in entries if entry.name == model]

    async def _metadata(self, model: str, version: str, call: Call) -> oip_bodies.ModelMetadata:
        answer = await self._query(ModelQuery(model=model, version=version), call)
        return oip_bodies.decode_metadata(answer.body or b"")


def _with_id(inference: Inference, call: Call) -> Inference:
    """Return the inference with an id: its own, or that of the call."""
    return inference if inference.id else replace(inference, id=call.id or ANY_ID)

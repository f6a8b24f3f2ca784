"""Adapter of TensorFlow Serving over REST.

Bodies in TensorFlow Serving's format are forwarded unchanged. Tensors of other wires are encoded as whole `inputs`,
with the names, datatypes and shapes of the model's signature.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NoReturn

from adapters import offload
from adapters.base import Answer
from adapters.call import Call
from adapters.errors import CallerError, TooLarge, Unsupported
from adapters.http1.client import Client, ClientResponse
from adapters.http1.message import encode_fields
from adapters.paths import segment
from adapters.registry import Address
from adapters.requests import InferRequest, ModelOrder, ModelQuery, ModelRequest
from adapters.tensors import requested_outputs
from adapters.types import PREDICT_V1, Usage
from adapters.upstreams import failed_status, health
from adapters.upstreams.dial import http1_client, names, probe_path
from adapters.upstreams.failed_status import CALLER_STATUS, MAX_ERROR_BODY, error_body, upstream_error
from adapters.upstreams.inferred import JSON, answer_of, takes_plain_inference
from adapters.upstreams.readiness import Readiness
from adapters.upstreams.tfserving.models import ModelSignatures, entries, untold
from adapters.wire import failure_text
from adapters.wire.decoding import whole_number
from adapters.wire.oip import responses as oip_responses
from adapters.wire.oip.bodies import IndexEntry
from adapters.wire.tfserving import predict_v1_upstream
from adapters.wire.tfserving import rest as tfserving
from adapters.wire.tfserving.predict_v1 import PredictV1Payload
from config.schema.config import PoolConfig

MAX_ANSWER = 256 * 1024 * 1024
_FIELDS = encode_fields([("user-agent", "headrace")])
_JSON_FIELDS = _FIELDS + encode_fields([("content-type", JSON)])
NO_ORDERS = "TensorFlow Serving loads models over gRPC only: use a pool with `protocol: tfserving-grpc`."


def make(pool: PoolConfig, address: Address) -> TfServingAdapter:
    """Return the adapter of one endpoint of a pool."""
    return TfServingAdapter(http1_client(pool, address), **names(pool), **probe_path(pool))


@lru_cache(4096)
def _target(base: str, model: str, version: str, suffix: str) -> bytes:
    """Return the target of a call of a model. A version that is not a number is a label."""
    path = f"{base}/v1/models/{segment(model)}"
    if version:
        path += f"/{'labels' if whole_number(version) is None else 'versions'}/{segment(version)}"
    return f"{path}{suffix}".encode()


class TfServingAdapter:
    """Adapter of one endpoint. `model` is the endpoint's own name of the model, if clients use another name."""

    def __init__(self, client: Client, *, model: str | None = None, probe: str | None = None) -> None:
        self._client = client
        self._model = model
        self._base = client.base_path.removesuffix("/v1")
        self._probe = probe
        self._models = ModelSignatures(self._signatures, client.now)
        self._readiness = Readiness(self._entries, client.now)

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        return await self._readiness.explained(self._answer(request, call), request, call)

    async def _answer(self, request: ModelRequest, call: Call) -> Answer:
        if isinstance(request, InferRequest):
            takes_plain_inference(request)
            if isinstance(payload := request.payload, PredictV1Payload) and payload.verb != "explain":
                return await self._pass_on(request, payload, call)
            return await self._infer(request, call)
        if isinstance(request, ModelQuery):
            return await self._query(request, call)
        if isinstance(request, ModelOrder):
            raise Unsupported(NO_ORDERS)
        raise failed_status.takes_tensors(request)

    async def probe(self, timeout: float) -> None:
        """Check the model's state: the server has no health path. Without a model, a 400 or 404 is healthy."""
        own = _target(self._base, self._model, "", "") if self._model else f"{self._base}/v1/models".encode()
        target = own if self._probe is None else (self._base + self._probe).encode()
        status, _, body = await health.look(self._client, target, _FIELDS, timeout)
        if status != 200 and (self._probe or self._model or status not in (400, 404)):
            raise health.ill(status)
        if self._model and self._probe is None:
            versions = tfserving.decode_status(body)
            if not any(version.available for version in versions):
                raise failed_status.not_ready(ModelQuery(model=self._model), entries(self._model, versions))

    async def aclose(self) -> None:
        await self._client.aclose()

    # ── tensors ───────────────────────────────────────────────────────────────────────────────────────

    async def _pass_on(self, request: InferRequest, payload: PredictV1Payload, call: Call) -> Answer:
        content = await self._post(request, payload.verb, payload.body, call)
        body = await offload.scan(len(content), predict_v1_upstream.check_response, content)
        usage = Usage(rows=request.row_count, bytes=len(content), exact=True)
        return Answer(content_type=JSON, body=body, usage=usage, form=PREDICT_V1)

    async def _infer(self, request: InferRequest, call: Call) -> Answer:
        inference, metadata = await self._models.inference(request, self._name(request), call)
        size = sum([len(tensor.data) for tensor in inference.inputs])
        body = await offload.run(size, predict_v1_upstream.encode_request, inference)
        content = await self._post(request, "predict", body, call)
        version = "" if whole_number(request.version) is None else request.version
        inferred = await offload.run(
            len(content), predict_v1_upstream.decode_answer, content, metadata.outputs, request.model, version
        )
        inferred.id = inference.id
        usage = Usage(rows=request.row_count, bytes=len(content), exact=True)
        inferred.outputs = requested_outputs(inference, inferred.outputs)
        return await answer_of(request, inferred, usage)

    async def _post(self, request: InferRequest, verb: str, body: bytes, call: Call) -> bytes:
        target = _target(self._base, self._name(request), request.version, f":{verb}")
        fields = _JSON_FIELDS + encode_fields(call.fields)
        response = await self._client.request(b"POST", target, fields, body, call.deadline)
        if response.status != 200:
            await _refuse(request, response)
        return await response.read(MAX_ANSWER)

    def _name(self, request: ModelRequest) -> str:
        return self._model or request.model

    # ── queries ───────────────────────────────────────────────────────────────────────────────────────

    async def _query(self, query: ModelQuery, call: Call) -> Answer:
        if query.about not in ("metadata", "ready"):
            raise untold(query)
        versions = await self._versions(query, call)
        return await self._models.answer(query, self._name(query), versions, call)

    async def _entries(self, request: ModelRequest, call: Call) -> list[IndexEntry]:
        return entries(request.model, await self._versions(request, call))

    async def _versions(self, query: ModelRequest, call: Call) -> list[tfserving.VersionState]:
        response = await self._get(self._name(query), query.version, "", call)
        if response.status == 404 and isinstance(query, ModelQuery) and query.about == "ready":
            reason = oip_responses.error_of(await response.read(MAX_ERROR_BODY))
            raise failed_status.unavailable(query, reason or "its server has no version of it")
        if response.status != 200:
            await _refuse(query, response)
        return tfserving.decode_status(await response.read(MAX_ANSWER))

    async def _signatures(self, model: str, version: str, call: Call) -> dict[str, Any]:
        response = await self._get(model, version, "/metadata", call)
        if response.status != 200:
            await _refuse(ModelQuery(model=model, version=version), response)
        return tfserving.decode_metadata(await response.read(MAX_ANSWER))

    async def _get(self, model: str, version: str, suffix: str, call: Call) -> ClientResponse:
        return await self._client.request(
            b"GET", _target(self._base, model, version, suffix), _FIELDS, b"", call.deadline
        )


async def _refuse(request: ModelRequest, response: ClientResponse) -> NoReturn:
    """Raise the typed error of a status other than 200."""
    status = response.status
    message = oip_responses.error_of(await error_body(response))
    if status == 404 and request.version:
        raise failed_status.no_such_version(request)
    if status == 501:
        raise Unsupported(message or "The model's server does not support this request.")
    if status in CALLER_STATUS:
        raise (TooLarge if status == 413 else CallerError)(message or "The upstream refused the request.")
    raise failure_text.model_failure(message) if status == 500 else upstream_error(status, response.headers, message)

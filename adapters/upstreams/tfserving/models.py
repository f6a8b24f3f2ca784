"""Cached signatures of TensorFlow Serving's models, and requests decoded with them.

A request may name one of several signatures; each has inputs and outputs of its own.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import CallerError, Unsupported
from adapters.offload import codecs
from adapters.requests import InferRequest, ModelQuery
from adapters.tensors import Inference
from adapters.upstreams import failed_status
from adapters.upstreams.declared_tensors import json_answer, ready_answer
from adapters.upstreams.inference import DOUBT, FRESH, MOST
from adapters.wire import decoding
from adapters.wire.oip import bodies as oip_bodies
from adapters.wire.oip import requests
from adapters.wire.oip.bodies import IndexEntry, ModelMetadata, header_length
from adapters.wire.tfserving import rest as tfserving
from adapters.wire.tfserving.predict_v1 import SERVING, SIGNATURE
from adapters.wire.tfserving.rest import VersionState

Signatures = dict[str, Any]
Fetch = Callable[[str, str, Call], Awaitable[Signatures]]

_named_signature = msgspec.json.Decoder(str | None).decode


class ModelSignatures:
    """The models of one endpoint; `fetch` fetches a model's signatures from the endpoint."""

    def __init__(self, fetch: Fetch, clock: Callable[[], float]) -> None:
        self._query = fetch
        self._clock = clock
        self._cached: dict[tuple[str, str], tuple[float, Signatures]] = {}

    def forget(self) -> None:
        """Clear the cached signatures: the endpoint's models have changed."""
        self._cached.clear()

    async def inference(self, request: InferRequest, model: str, call: Call) -> tuple[Inference, ModelMetadata]:
        """Return a request's tensors and the metadata of its signature. `model` is the endpoint's name.

        Raises `CallerError` and the errors of `fetch`.
        """
        if request.wire != "predict-v1":
            await codecs.inference_of(request)
        metadata = await self._of(request, model, call, FRESH)
        try:
            return await _read(request, metadata), metadata
        except Unsupported:
            raise
        except CallerError:
            # The endpoint may serve another model now than the cached one.
            fresh = await self._of(request, model, call, DOUBT)
            if fresh.signature_def is metadata.signature_def:
                raise
            return await _read(request, fresh), fresh

    async def answer(self, query: ModelQuery, model: str, versions: list[VersionState], call: Call) -> Answer:
        """Answer a query for readiness or metadata. Raises `ModelNotReady` and the errors of `fetch`."""
        if query.about == "ready":
            if not any(version.available for version in versions):
                raise failed_status.not_ready(query, entries(query.model, versions))
            return ready_answer(query)
        signatures = await self._query(model, query.version, call)
        return json_answer(oip_bodies.encode(tfserving.model_metadata(query.model, versions, signatures)))

    async def _of(self, request: InferRequest, model: str, call: Call, max_age: float) -> ModelMetadata:
        signatures = await self._signatures(model, request.version, call, max_age)
        return tfserving.model_metadata(model, [], signatures, _named(request))

    async def _signatures(self, model: str, version: str, call: Call, max_age: float) -> Signatures:
        metadata, now = self._cached.get((model, version)), self._clock()
        if metadata is not None and now - metadata[0] < max_age:
            return metadata[1]
        signatures = await self._query(model, version, call)
        if len(self._cached) >= MOST:
            self._cached.pop(next(iter(self._cached)))
        self._cached[model, version] = (now, signatures)
        return signatures


def _named(request: InferRequest) -> str:
    """Return the signature that a request names; empty for the model's default."""
    if request.wire != "predict-v1":
        return str(request.inference.parameters.get(SIGNATURE, ""))
    raw = request.codec.fields(request).get(SIGNATURE)
    try:
        return (None if raw is None else _named_signature(raw)) or ""
    except decoding.MALFORMED_JSON:
        raise CallerError(f"`{SIGNATURE}` must be a text.", param=SIGNATURE) from None


async def _read(request: InferRequest, metadata: ModelMetadata) -> Inference:
    """Decode a request's tensors; the parameters name a signature other than the default."""
    if request.wire == "predict-v1":
        made = await codecs.inference_of_values(request, metadata)
    else:
        made = await codecs.inference_of(request)
        if header_length(request.payload) == 0:
            made = requests.complete_from_metadata(
                made, [(one.name, one.datatype, one.shape) for one in metadata.inputs]
            )
    signature = tfserving.signature_of(metadata.signature_def, _named(request))
    parameters = {SIGNATURE: signature} if signature != SERVING else {}
    return Inference(made.model_name, made.model_version, made.id, parameters, made.inputs, made.outputs)


def entries(model: str, versions: Sequence[VersionState]) -> list[IndexEntry]:
    """Convert the versions of a model to entries of the repository's index."""
    return [IndexEntry(model, one.number, one.state, one.reason) for one in versions]


def untold(query: ModelQuery) -> Unsupported:
    """Return the error for a query that these servers do not support."""
    return Unsupported(f"The servers of `{query.model[:128]}` do not report its {query.about}.")

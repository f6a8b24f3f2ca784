"""An `Upstream` that answers an embeddings request with inferences of a tensor model."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters import offload
from adapters.base import Answer, Upstream
from adapters.call import Call
from adapters.errors import BackendError, CallerError
from adapters.offload import codecs
from adapters.requests import EmbeddingRequest, ModelQuery, ModelRequest
from adapters.tensors import Inference, Inferred, RequestedOutput, Tensor
from adapters.types import Usage
from adapters.upstreams.inferred import decode
from adapters.wire.oip import bodies as oip_bodies
from adapters.wire.oip.bodies import ModelMetadata
from adapters.wire.openai import embeddings as wire
from adapters.wire.openai.embeddings import EmbeddingFields, Vector
from config.schema.config import EmbeddingsConfig
from gateway.features.embeddings.texts import Row, TextBatch, TextTokenizer

Floats = NDArray[np.float32]
_INTEGERS: Mapping[str, np.dtype[Any]] = {"INT32": np.dtype("<i4"), "INT64": np.dtype("<i8")}
_FLOATS: Mapping[str, np.dtype[Any]] = {
    "FP16": np.dtype("<f2"), "FP32": np.dtype("<f4"), "FP64": np.dtype("<f8"),
}  # fmt: skip
SMALLEST = 1e-12
"""The norm below which a vector is not normalized."""
AT_ONCE = 8
"""The most inferences of one request in flight."""
INLINE = 1024 * 1024
"""Bytes of an answer that are pooled on the event loop; larger answers are pooled in a thread."""
FRESH_SECONDS = 60.0
"""Seconds for which the metadata of a model's inputs are cached."""


def inputs_of(rows: list[Row], config: EmbeddingsConfig, model: ModelMetadata) -> list[Tensor]:
    """The inputs ids, mask and types that the model has. Raises `BackendError` for a model without ids."""
    width = max(map(len, rows))
    ids = np.zeros((len(rows), width), np.int64)
    mask = np.zeros((len(rows), width), np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
        mask[i, : len(row)] = 1
    names = config.inputs
    values = {names.ids: ids, names.mask: mask, names.types: np.zeros_like(ids)}
    datatypes = {tensor.name: tensor.datatype for tensor in model.inputs}
    if names.ids not in datatypes:
        raise BackendError(f"The model has no input `{names.ids}` for tokens.", code="upstream_bad_response")
    return [_tensor(name, datatypes[name], array) for name, array in values.items() if name in datatypes]


def _tensor(name: str, datatype: str, array: NDArray[np.int64]) -> Tensor:
    kind = _INTEGERS.get(datatype)
    if kind is None:
        raise BackendError(f"The model's input `{name}` is {datatype}, which holds no tokens.")
    return Tensor(name, datatype, array.shape, array.astype(kind).tobytes())


def vectors_of(rows: list[Row], response: Inferred, config: EmbeddingsConfig, dimensions: int | None) -> list[Vector]:
    """One vector for each row. Raises `BackendError` for an output without vectors, `CallerError` for more `dimensions`
    than it has."""
    output = _output(response, config.output)
    lengths = np.array([len(row) for row in rows])
    pooled = _pooled(_array(output), lengths, config)
    if dimensions is not None:
        if dimensions > pooled.shape[1]:
            raise CallerError(f"`dimensions` is above the model's {pooled.shape[1]}.", param="dimensions")
        pooled = pooled[:, :dimensions]
    if config.normalize:
        pooled = pooled / np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), SMALLEST)
    exact = np.ascontiguousarray(pooled, "<f4")
    return [Vector(vector.tobytes(), ()) for vector in exact]


def _output(response: Inferred, name: str | None) -> Tensor:
    by_name: Mapping[str, Tensor] = {tensor.name: tensor for tensor in response.outputs}
    output = by_name.get(name) if name is not None else next(iter(response.outputs), None)
    if output is None:
        raise BackendError(f"The model gave no output `{name}`." if name else "The model gave no output.")
    return output


def _array(tensor: Tensor) -> Floats:
    if tensor.datatype == "BF16":  # the upper half of an FP32
        halves = np.frombuffer(tensor.data, "<u2").astype(np.uint32) << 16
        return halves.view(np.float32).reshape(tensor.shape)
    kind = _FLOATS.get(tensor.datatype)
    if kind is None:
        raise BackendError(f"The model's output `{tensor.name}` is {tensor.datatype}, which is no vector.")
    return np.frombuffer(tensor.data, kind).reshape(tensor.shape).astype(np.float32)


def _pooled(array: Floats, lengths: NDArray[np.int64], config: EmbeddingsConfig) -> Floats:
    rows = len(lengths)
    if array.ndim == 2 and array.shape[0] == rows:
        return array
    if array.ndim != 3 or array.shape[0] != rows or array.shape[1] < lengths.max():
        raise BackendError(f"The model's output has the shape {list(array.shape)}, which is no vector a text or token.")
    if config.pooling == "cls":
        return array[:, 0]
    if config.pooling == "last":
        return array[np.arange(rows), lengths - 1]
    mask = (np.arange(array.shape[1]) < lengths[:, None])[..., None]
    total: Floats = np.where(mask, array, 0).sum(axis=1, dtype=np.float32)
    return np.divide(total, lengths[:, None], dtype=np.float32)


class Embedder:
    """The configuration of one model: its tokenizer, and how its vectors are computed. Raises `TokenizerError`."""

    def __init__(self, config: EmbeddingsConfig) -> None:
        self.config = config
        self.texts = TextTokenizer(config)

    def around(self, upstream: Upstream, clock: Callable[[], float]) -> "Embed":
        """An upstream that also answers requests for embeddings."""
        return Embed(upstream, self, clock)


_TRANSLATED = wire.TRANSLATED - {"input_type"}  # a model of tensors has one use


class Embed:
    """Combines several inferences to one answer, in the order of the texts. Other requests are forwarded. Tokens are
    counted exactly, because the gateway tokenizes the texts. If one inference fails, the request fails, and the others
    are cancelled.
    """

    def __init__(self, upstream: Upstream, embedder: Embedder, clock: Callable[[], float]) -> None:
        self._upstream = upstream
        self._embedder = embedder
        self._clock = clock
        self._metadata: tuple[float, ModelMetadata] | None = None

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        if not isinstance(request, EmbeddingRequest):
            return await self._upstream.call(request, call)
        call.ignored.sift(request.fields, _TRANSLATED)
        fields = await offload.parse(request.prompt, wire.decode, request.fields)
        rows = await self._embedder.texts.rows(fields.inputs)
        tokens = sum(map(len, rows))
        metadata = await self._metadata_of(fields.model, request, call)
        job = _Job(self._upstream, self._embedder, metadata, request, call, fields)
        vectors = await job.run(self._embedder.texts.batches(rows))
        size = sum([len(vector.data) for vector in vectors])
        body = await offload.run(
            size, wire.encode, vectors, model=request.model, tokens=tokens, in_base64=fields.base64
        )
        usage = replace(job.usage, prompt_tokens=tokens, exact=True, bytes=len(body))
        answer = Answer(content_type="application/json", body=body, usage=usage)
        answer.pool, answer.endpoint = job.pool, job.endpoint
        return answer

    async def _metadata_of(self, model: str, request: ModelRequest, call: Call) -> ModelMetadata:
        """The metadata of the model's inputs, cached for `FRESH_SECONDS`."""
        now = self._clock()
        if self._metadata is None or now - self._metadata[0] > FRESH_SECONDS:
            query = ModelQuery(model=model, version=request.version)
            part = call.part()
            part.assignment = None
            answer = await self._upstream.call(query, part)
            if answer.body is None:
                await answer.aclose()
                raise BackendError(
                    "The upstream answered a metadata request with a stream.", code="upstream_bad_response"
                )
            self._metadata = (now, oip_bodies.decode_metadata(answer.body))
        return self._metadata[1]


class _Job:
    """The inferences of one request. They share its trace."""

    def __init__(
        self,
        upstream: Upstream,
        embedder: Embedder,
        model: ModelMetadata,
        request: EmbeddingRequest,
        call: Call,
        fields: EmbeddingFields,
    ) -> None:
        self._upstream = upstream
        self._config = embedder.config
        self._model = model
        self._request = request
        self._call = call
        self._fields = fields
        self._places = asyncio.Semaphore(AT_ONCE)
        self._vectors: dict[int, Vector] = {}
        self.usage = Usage()
        self.pool = self.endpoint = ""

    async def run(self, batches: Sequence[TextBatch]) -> list[Vector]:
        """Return one vector for each text, in the order of the texts. Raises `InferenceError`."""
        try:
            async with asyncio.TaskGroup() as group:
                for batch in batches:
                    group.create_task(self._one(batch))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [self._vectors[place] for place in range(len(self._vectors))]

    async def _one(self, batch: TextBatch) -> None:
        outputs = [RequestedOutput(self._config.output)] if self._config.output is not None else []
        inference = Inference(self._fields.model, self._request.version, outputs=outputs)
        inference.inputs = inputs_of(batch.rows, self._config, self._model)
        request = await codecs.request_from(inference, 0)
        async with self._places:
            part, self._call.assignment = self._call.part(), None  # the first inference counts for an arm
            answer = await self._upstream.call(request, part)
        if answer.body is None:
            await answer.aclose()
            raise BackendError("The upstream answered with a stream.", code="upstream_bad_response")
        self.usage.rows += len(batch.rows)
        self.usage.device_ms += answer.usage.device_ms
        self.pool, self.endpoint = answer.pool, answer.endpoint
        args = (batch.rows, await decode(answer), self._config, self._fields.dimensions)
        large = len(answer.body) > INLINE
        made = await asyncio.to_thread(vectors_of, *args) if large else vectors_of(*args)
        self._vectors.update(zip(batch.places, made, strict=True))

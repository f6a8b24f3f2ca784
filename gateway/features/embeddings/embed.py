"""An `Upstream` that answers an embeddings request with inferences of a tensor model."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from adapters import offload
from adapters.base import Answer, Upstream
from adapters.call import Call
from adapters.errors import BackendError
from adapters.offload import codecs
from adapters.requests import EmbeddingRequest, ModelQuery, ModelRequest
from adapters.tensors import Inference, RequestedOutput
from adapters.types import Usage
from adapters.upstreams.inferred import decode
from adapters.wire.oip import bodies as oip_bodies
from adapters.wire.oip.bodies import ModelMetadata
from adapters.wire.openai import embeddings as wire
from adapters.wire.openai.embeddings import EmbeddingFields, Vector
from config.schema.config import EmbeddingsConfig
from gateway.features.embeddings.texts import TextBatch, TextTokenizer
from gateway.features.embeddings.vectors import inputs_of, vectors_of

AT_ONCE = 8
"""The most inferences of one request in flight."""
INLINE = 1024 * 1024
"""Bytes of an answer that are pooled on the event loop; larger answers are pooled in a thread."""
FRESH_SECONDS = 60.0
"""Seconds for which the metadata of a model's inputs are cached."""


class Embedder:
    """The configuration of one model: its tokenizer, and how its vectors are computed. Raises `TokenizerError`."""

    def __init__(self, config: EmbeddingsConfig) -> None:
        self.config = config
        self.texts = TextTokenizer(config)

    def around(self, upstream: Upstream, clock: Callable[[], float]) -> "Embed":
        """An upstream that also answers requests for embeddings."""
        return Embed(upstream, self, clock)


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

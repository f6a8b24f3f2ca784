"""Embeddings by InvokeModel: one request for each text, or for each group of texts."""

import asyncio
from collections.abc import Sequence

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import Unsupported
from adapters.requests import EmbeddingRequest
from adapters.types import Usage
from adapters.upstreams.bedrock.operations import Operations
from adapters.wire import decoding
from adapters.wire.bedrock.embeddings import TEXTS_EACH, bodies_of, vectors_of
from adapters.wire.bedrock.models import Family
from adapters.wire.decoding import whole_number
from adapters.wire.openai import embeddings
from adapters.wire.openai.embeddings import TRANSLATED, Vector

AT_ONCE = 8
"""Requests at the same time for one request of a client."""
_TOKENS = "x-amzn-bedrock-input-token-count"


async def embedded(operations: Operations, family: Family, request: EmbeddingRequest, call: Call) -> Answer:
    """Execute a request. Raises `InferenceError`; the first failure cancels the other requests."""
    if family not in TEXTS_EACH:
        raise Unsupported(f"The model `{request.model}` has no embeddings that the gateway can request.")
    call.ignored.sift(request.fields, TRANSLATED)
    fields = embeddings.decode(request.fields)
    bodies = bodies_of(fields, request.fields, family)
    parts = await _all(operations, request.model, bodies, call)
    vectors = [vector for part, _, _ in parts for vector in part]
    if len(vectors) != len(fields.inputs):
        raise decoding.bad_response(f"The upstream returned {len(vectors)} vectors for {len(fields.inputs)} texts.")
    tokens, size = sum(count for _, count, _ in parts), sum(size for _, _, size in parts)
    usage = Usage(tokens or request.prompt_tokens, exact=tokens > 0, bytes=size)
    body = embeddings.encode(vectors, model=request.model, tokens=usage.prompt_tokens, in_base64=fields.base64)
    return Answer(content_type="application/json", body=body, usage=usage)


Part = tuple[list[Vector], int, int]
"""Vectors, tokens, and bytes of a response."""


async def _all(operations: Operations, model: str, bodies: Sequence[bytes], call: Call) -> list[Part]:
    if len(bodies) == 1:
        return [await _one(operations, model, bodies[0], call)]
    places = asyncio.Semaphore(AT_ONCE)

    async def placed(body: bytes) -> Part:
        async with places:
            return await _one(operations, model, body, call)

    tasks = [asyncio.ensure_future(placed(body)) for body in bodies]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _one(operations: Operations, model: str, body: bytes, call: Call) -> Part:
    response = await operations.post("invoke", model, body, call)
    tokens = whole_number(response.headers.get(_TOKENS) or "", most=2**31 - 1)
    answer = await response.read()
    vectors, reported = vectors_of(answer)
    return vectors, tokens or reported, len(answer)

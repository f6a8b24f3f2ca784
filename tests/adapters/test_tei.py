"""Text Embeddings Inference, which speaks OpenAI for embeddings, with errors of its own."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from adapters import registry
from adapters.call import Call
from adapters.errors import BackendError, CallerError, CapacityError, ContextTooLong, InferenceError
from adapters.registry import Address
from adapters.types import Deadline
from adapters.wire.openai import chat as openai
from tests.servers.stand_ins.serving import serving
from tests.support.gateways import config

PATIENCE = 300.0
VECTOR = {"object": "embedding", "embedding": [0.25, -0.5], "index": 0}
EMBEDDINGS = {"object": "list", "data": [VECTOR], "model": "bge", "usage": {"prompt_tokens": 5, "total_tokens": 5}}
REFUSED: dict[str, tuple[int, str, str, type[InferenceError]]] = {
    "too long": (413, "Validation", "`inputs` must have less than 512 tokens. Given: 600", ContextTooLong),
    "empty": (422, "Empty", "`inputs` cannot be empty", CallerError),
    "overloaded": (429, "Overloaded", "Model is overloaded", CapacityError),
    "failed": (424, "Backend", "Inference failed at /opt/weights", BackendError),
    "unhealthy": (503, "Unhealthy", "unhealthy", CapacityError),
}


async def embedded(status: int, body: dict[str, Any]) -> tuple[bytes, list[dict[str, Any]]]:
    """The answer to one request for embeddings, and the bodies that the server received."""
    received: list[dict[str, Any]] = []

    async def embed(http: web.Request) -> web.Response:
        received.append(await http.json())
        return web.json_response(body, status=status)

    app = web.Application()
    app.router.add_post("/v1/embeddings", embed)
    async with serving(app) as url:
        pool = config(pools=[{"name": "main", "protocol": "openai", "endpoints": [url]}]).pools[0]
        adapter = registry.make(pool, Address(url))
        request = openai.decode_embedding(b'{"model":"bge","input":["hello there"],"encoding_format":"float"}')
        try:
            deadline = Deadline(asyncio.get_running_loop().time() + PATIENCE, PATIENCE, PATIENCE)
            answer = await adapter.call(request, Call(deadline))
        finally:
            await adapter.aclose()
    assert (answer.usage.prompt_tokens, answer.usage.exact) == (5, True)
    return answer.body or b"", received


async def test_embeddings() -> None:
    body, received = await embedded(200, EMBEDDINGS)
    assert json.loads(body) == EMBEDDINGS
    assert received == [{"input": ["hello there"], "encoding_format": "float", "model": "bge"}]


@pytest.mark.parametrize(("status", "kind", "message", "error"), REFUSED.values(), ids=REFUSED.keys())
async def test_refusals(status: int, kind: str, message: str, error: type[InferenceError]) -> None:
    with pytest.raises(error) as caught:
        await embedded(status, {"error": message, "error_type": kind})
    assert "/opt" not in caught.value.message

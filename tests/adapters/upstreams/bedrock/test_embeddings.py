"""Embeddings by InvokeModel."""

import json
from typing import Any

import pytest

from adapters.base import Answer
from adapters.errors import (
    CallerError,
    CapacityError,
    Unsupported,
)
from adapters.wire.openai import chat as openai
from tests.support.openai_answers import within
from tests.support.providers.bedrock import (
    CLAUDE,
    COHERE_V3,
    COHERE_V4,
    TITAN_V1,
    TITAN_V2,
    Bedrock,
)
from tests.support.providers.bedrock_adapters import adapting

Object = dict[str, Any]


async def embedded(model: str, **fields: Any) -> tuple[Object, Bedrock, Answer]:
    async with adapting(model=model) as (adapter, server):
        body = json.dumps({"model": "ours", "input": ["a b", "c"], **fields}).encode()
        answer = await adapter.call(openai.decode_embedding(body), within())
        return json.loads(answer.body or b""), server, answer


@pytest.mark.parametrize("model", [TITAN_V1, TITAN_V2, COHERE_V3, COHERE_V4])
async def test_embeddings_of_each_family(model: str) -> None:
    body, server, answer = await embedded(model)
    assert [entry["index"] for entry in body["data"]] == [0, 1]
    assert len(server.bodies) == (2 if "titan" in model else 1)
    assert body["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.exact) == (3, 0, True)
    one, _, _ = await embedded(model, input="a b")
    assert one["data"][0]["embedding"] == body["data"][0]["embedding"]


async def test_the_length_and_the_use_of_vectors() -> None:
    for model in (TITAN_V2, COHERE_V4):
        body, _, _ = await embedded(model, dimensions=8)
        assert len(body["data"][0]["embedding"]) == 8
    for model in (TITAN_V1, COHERE_V3):
        with pytest.raises(CallerError, match="`dimensions`"):
            await embedded(model, dimensions=8)
    _, server, _ = await embedded(COHERE_V3, input_type="query")
    assert server.bodies[0][1]["input_type"] == "search_query"
    with pytest.raises(CallerError, match="`input_type`"):
        await embedded(COHERE_V3, input_type="x")


async def test_many_texts_are_sent_in_groups_and_the_first_failure_ends_all() -> None:
    body, server, _ = await embedded(COHERE_V3, input=[str(i) for i in range(200)])
    assert [len(sent["texts"]) for _, sent in server.bodies] == [96, 96, 8]
    assert len(body["data"]) == 200
    with pytest.raises(CapacityError):
        await embedded(TITAN_V2, input=["a"] * 20 + ["!ThrottlingException"] + ["b"] * 20)


async def test_a_chat_model_has_no_embeddings_and_tokens_are_no_text() -> None:
    with pytest.raises(Unsupported):
        await embedded(CLAUDE)
    with pytest.raises(CallerError, match="`input`"):
        await embedded(TITAN_V2, input=[[1, 2]])

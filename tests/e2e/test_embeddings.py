"""OpenAI's client, unchanged, requests embeddings from a real tensor model and from the LLM runtime."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from tokenizers import Tokenizer

from runtimes.tensor.catalogue.repository import add
from tests.support.processes import GatewayProcess, gateway

pytestmark = pytest.mark.timeout(1800)

SENTENCES = [
    "A headrace brings the river to the turbines.",
    "Water flows through a channel to a power plant.",
    "The central bank raised interest rates.",
]


def configuration(repository: Path) -> dict[str, Any]:
    embeddings = {"tokenizer": str(repository / "minilm" / "tokenizer.json"), "batch": 2, "max_tokens": 256}
    pooled, own = {**embeddings, "output": "last_hidden_state"}, {**embeddings, "output": "sentence_embedding"}
    pool = {"name": "models", "runtime": {"kind": "tensor", "repository": str(repository)}}
    routes = [{"to": "models", "rewrite": {"model": "minilm"}}]
    return {
        "pools": [pool],
        "models": [
            {"name": "minilm", "routes": [{"to": "models"}], "embeddings": pooled},
            {"name": "as-the-model-pools", "routes": routes, "embeddings": own},
        ],
        "tenants": [{"name": "acme", "models": ["*"], "limits": {"tokens": "100000/d"}}],
    }


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    add("minilm", tmp_path / "models")
    async with gateway(tmp_path, configuration(tmp_path / "models")) as made:
        await made.printed("Ready.")
        yield made
        await made.until_idle()


async def test_sentences_are_vectors_that_mean_something(running: GatewayProcess) -> None:
    async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=await running.key()) as client:
        response = await client.embeddings.create(model="minilm", input=SENTENCES)
        water, river, money = (np.array(entry.embedding) for entry in response.data)
        assert len(water) == 384
        assert np.linalg.norm(water) == pytest.approx(1, abs=1e-4)
        assert water @ river > 0.4 > 0.2 > water @ money
        tokenizer = Tokenizer.from_file(str(running.config.parent / "models/minilm/tokenizer.json"))
        tokenizer.no_padding()
        assert response.usage.prompt_tokens == sum(len(tokenizer.encode(sentence).ids) for sentence in SENTENCES)
        plain = await client.embeddings.create(model="minilm", input=SENTENCES, encoding_format="float")
        np.testing.assert_allclose(plain.data[1].embedding, river, atol=1e-5)
        alone = await client.embeddings.create(model="minilm", input=SENTENCES[0], dimensions=64)
        np.testing.assert_allclose(alone.data[0].embedding, water[:64] / np.linalg.norm(water[:64]), atol=1e-4)
        own = await client.embeddings.create(model="as-the-model-pools", input=SENTENCES)
        np.testing.assert_allclose([entry.embedding for entry in own.data], [water, river, money], atol=1e-4)
        with pytest.raises(openai.BadRequestError, match="longer than the 256"):
            await client.embeddings.create(model="minilm", input="water " * 300)

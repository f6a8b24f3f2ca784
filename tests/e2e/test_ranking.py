"""Rerankers of the LLM engine behind the gateway, by every path, with its limits and its log."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from tests.support.classifiers import classifier, logits_of
from tests.support.processes import GatewayProcess, gateway

pytestmark = pytest.mark.timeout(1800)

QUERY = "where does the water go?"
DOCUMENTS = ["The bank raised interest rates.", "A headrace brings the river to the turbines.", "x"]
LABELS = ("no", "yes", "maybe")


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    ranker, labeller = classifier(tmp_path / "ranker"), classifier(tmp_path / "labeller", "modernbert", LABELS)
    runtime = {"kind": "llm", "dtype": "float32"}
    configuration: dict[str, Any] = {
        "pools": [
            {"name": "ranker", "runtime": {**runtime, "model": str(ranker)}},
            {"name": "labeller", "runtime": {**runtime, "model": str(labeller)}},
            {"name": "other", "endpoints": ["http://127.0.0.1:9"], "probe": None},
        ],
        "models": [{"name": name, "routes": [{"to": name}]} for name in ("ranker", "labeller", "other")],
        "default_models": {"rerank": "ranker"},
        "tenants": [{"name": "acme", "models": ["*"], "limits": {"tokens": "100000/d", "rows": "1000/d"}}],
    }
    async with gateway(tmp_path, configuration) as made:
        await made.printed("Ready.")
        yield made
        await made.until_idle()


async def test_a_reranker_and_a_classifier_behind_the_gateway(running: GatewayProcess) -> None:
    headers = {"authorization": f"Bearer {await running.key()}"}
    folder = running.config.parent
    pairs = [(QUERY, document) for document in DOCUMENTS]
    expected = 1 / (1 + np.exp(-np.array(logits_of(folder / "ranker", pairs))[:, 0]))
    order = [int(place) for place in np.argsort(-expected)]
    async with aiohttp.ClientSession(running.url, headers=headers) as http:

        async def post(path: str, **body: Any) -> tuple[int, Any]:
            async with http.post(path, json=body) as response:
                return response.status, json.loads(await response.read())

        for path in ("/v1/rerank", "/rerank", "/v2/rerank"):
            status, answer = await post(path, query=QUERY, documents=DOCUMENTS, top_n=2)
            assert status == 200, answer
            assert [result["index"] for result in answer["results"]] == order[:2]
            scores = [result["relevance_score"] for result in answer["results"]]
            np.testing.assert_allclose(scores, expected[order[:2]], atol=1e-4)
            assert ("document" in answer["results"][0]) == (path != "/v2/rerank")
        status, answer = await post("/score", model="ranker", text_1=QUERY, text_2=DOCUMENTS)
        assert status == 200
        np.testing.assert_allclose([one["score"] for one in answer["data"]], expected, atol=1e-4)
        logits = np.array(logits_of(folder / "labeller", [(text, None) for text in DOCUMENTS]))
        status, answer = await post("/v1/classify", model="labeller", input=DOCUMENTS)
        assert (status, [one["label"] for one in answer["data"]]) == (200, [LABELS[at] for at in logits.argmax(1)])
        for path, body in (
            ("/v1/rerank", {"model": "other", "query": "a", "documents": ["b"]}),
            ("/v1/rerank", {"model": "labeller", "query": "a", "documents": ["b"]}),
            ("/v1/embeddings", {"model": "ranker", "input": "a"}),
        ):
            status, answer = await post(path, **body)
            assert (status, answer["error"]["code"]) == (400, "unsupported_operation")
        status, answer = await post("/v1/rerank", query=QUERY, documents=["a", 5])
        assert (status, answer["error"]["param"]) == (400, "documents")

"""Rerank, score and classify at the gateway: counted, forwarded unchanged, refused in OpenAI's shape."""

import json
from typing import Any

import pytest

from adapters.errors import CapacityError
from adapters.fake import FakeAdapter, Script
from adapters.requests import ClassifyingRequest, RankingRequest, ScoringRequest
from adapters.types import Usage
from adapters.wire.openai.ranking_size import MAX_ROWS
from gateway.auth.scope import Scope
from gateway.telemetry.generative import GenerativeMetrics
from tests.support.doors import door, door_of
from tests.support.gateways import Rig, config

RESULTS: dict[str, Any] = {"results": [{"index": 1, "relevance_score": 0.9}], "usage": {"total_tokens": 90}}
DOCUMENTS = ["b" * 40, "c" * 40, "d" * 40]
CALLS: dict[str, tuple[type[RankingRequest], dict[str, Any], int]] = {
    "/v1/rerank": (RankingRequest, {"query": "a" * 40, "documents": DOCUMENTS}, 3),
    "/rerank": (RankingRequest, {"query": "a", "documents": [{"text": "b"}, {"text": "c, [d]"}]}, 2),
    "/v2/rerank": (RankingRequest, {"query": "a", "documents": ["b"]}, 1),
    "/score": (ScoringRequest, {"text_1": "a", "text_2": ["b", "c"]}, 2),
    "/v1/score": (ScoringRequest, {"queries": ["a", "b"], "documents": ["c", "d"]}, 2),
    "/classify": (ClassifyingRequest, {"input": "a"}, 1),
    "/v1/classify": (ClassifyingRequest, {"input": ["a", "b"]}, 2),
}


def answering(usage: Usage | None = None) -> FakeAdapter:
    return FakeAdapter(Script(chunks=(json.dumps(RESULTS).encode(),), usage=usage or Usage()))


@pytest.mark.parametrize("path", CALLS)
async def test_rows_and_tokens_are_counted_before_the_call(path: str) -> None:
    kind, body, rows = CALLS[path]
    async with door(answering()) as d:
        response = await d.send("POST", path, {"model": "chat", **body})
        assert (response.status, await response.json()) == (200, RESULTS)
        request = d.fake.calls[0].request
        assert type(request) is kind
        assert request.rows == rows
        [line] = d.rig.log.lines
        assert line.operation == kind.operation
    if path == "/v1/rerank":  # the query is read with each document
        assert request.prompt_tokens == pytest.approx(3 * (42 + 43) / 4, abs=3)


async def test_limits_count_tokens_and_rows() -> None:
    limits = {"tokens": "500/h", "rows": "5/h"}
    body = {"model": "chat", "query": "a" * 40, "documents": DOCUMENTS}
    async with door(answering(Usage(90, exact=True, rows=3)), tenant={"limits": limits}) as d:
        assert (await d.send("POST", "/v1/rerank", body)).status == 200
        assert d.rig.left("tokens") == 410
        assert d.rig.left("rows") == 2
        refused = await d.send("POST", "/v1/rerank", body)
        assert refused.status == 429
        assert (await refused.json())["error"]["type"] == "rate_limit_error"
        assert len(d.fake.calls) == 1


@pytest.mark.parametrize(("fronts", "status"), [(["rerank"], 200), (["app"], 200), (["score"], 403), (["chat"], 403)])
async def test_a_key_for_forwarded_calls_may_rank(fronts: list[str], status: int) -> None:
    async with door(answering()) as d:
        d.rig.hold(scope=Scope(fronts=fronts))
        assert (
            await d.send("POST", "/v1/rerank", {"model": "chat", "query": "a", "documents": ["b"]})
        ).status == status


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"model": "chat", "query": "a", "documents": ["b"] * (MAX_ROWS + 1)}, "documents"),
        ({"model": "chat", "query": "a", "documents": [[]] * (MAX_ROWS + 1)}, "documents"),
        ({"query": "a", "documents": ["b"]}, "model"),
        (b"{", None),
        (b"[]", None),
        (b'{"model": "chat", "documents": ["\xff"]}', None),
    ],
)
async def test_odd_bodies_are_refused_before_a_server_sees_them(body: Any, param: str | None) -> None:
    async with door_of(Rig(config(), {"main": [answering()]}), max_body=1 << 22) as d:
        response = await d.send("POST", "/v1/rerank", body)
        assert (response.status, (await response.json())["error"]["param"]) == (400, param)
        assert not d.fake.calls


async def test_another_endpoint_ranks_if_one_is_full() -> None:
    full = FakeAdapter(Script(fault=CapacityError("full")))
    models = [{"name": "chat", "routes": [{"to": "main", "retry": {"attempts": 3}}]}]
    async with door(full, answering(), models=models) as d:
        for _ in range(3):
            response = await d.send("POST", "/v1/rerank", {"model": "chat", "query": "a", "documents": ["b"]})
            assert (response.status, await response.json()) == (200, RESULTS)
        d.rig.assert_idle()
        assert {line.endpoint for line in d.rig.log.lines} == {"main/1"}
        assert full.calls


async def test_metrics_name_the_operation() -> None:
    async with door(answering(Usage(90, exact=True))) as d:
        await d.send("POST", "/v1/rerank", {"model": "chat", "query": "a", "documents": ["b"]})
        [record] = d.rig.log.records
    metrics = GenerativeMetrics()
    metrics.count(record)
    samples = [sample for family in metrics.collect() for sample in family.samples if sample.name.endswith("_count")]
    labels = [sample.labels for sample in samples]
    assert {one["gen_ai_operation_name"] for one in labels} == {"rerank"}
    assert [one["gen_ai_token_type"] for one in labels if "gen_ai_token_type" in one] == ["input"]

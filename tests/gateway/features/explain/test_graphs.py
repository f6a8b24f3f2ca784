"""The graph of a pipeline has the names that its steps have in metrics."""

from pathlib import Path
from typing import Any, cast

import pytest

from adapters.fake import FakeAdapter, Script
from config import default_path
from config.loader import load
from gateway.admin.api.explain import counts_of
from gateway.features.explain.graphs import graphs_of
from tests.support.examples import examples
from tests.support.gateways import Rig, chat, config
from tests.support.upstreams import whole

BODY = cast(bytes, whole("hello").body)
CASCADE = {"cascade": [{"model": "small", "accept_if": "finish == 'length'"}, {"model": "large"}]}
NESTED = {
    "steps": [
        {"name": "check", "model": "small"},
        {
            "name": "answer",
            "switch": [{"if": "request.prompt_tokens > 5000", "model": "large"}, {"else": True, **CASCADE}],
        },
    ]
}
ENSEMBLE = {"ensemble": {"members": ["small", {"name": "again", "model": "small", "weight": 2}], "combine": "first"}}


def configuration(pipeline: dict[str, Any]) -> dict[str, Any]:
    models = [{"name": name, "routes": [{"to": "main"}]} for name in ("small", "large")]
    return {"models": [*models, {"name": "chat", "pipeline": pipeline}]}


@pytest.mark.parametrize(("pipeline", "steps"), [
    (NESTED, {"check", "answer", "answer.small", "answer.large"}),
    (CASCADE, {"cascade", "small", "large"}),
    (ENSEMBLE, {"ensemble", "small", "again"}),
])  # fmt: skip
async def test_each_recorded_step_is_a_node(pipeline: dict[str, Any], steps: set[str]) -> None:
    one = Rig(config(**configuration(pipeline)), {"main": [FakeAdapter(Script(chunks=(BODY,)))]})
    answer = await one.core.handle(one.principal, chat(), {}, one.record())
    await answer.aclose()
    (graph,) = graphs_of(one.core.snapshot.config)
    one.core.telemetry.flush()
    counts = counts_of(one.metrics.registry.collect())
    nodes = {node["id"] for node in graph["nodes"]}
    assert steps <= nodes
    assert {step for _, step in counts} <= nodes


def test_steps_name_the_steps_that_they_wait_for() -> None:
    steps = [
        {"name": "a", "model": "small"},
        {"name": "b", "model": "large", "in": {"x": "a.text"}},
        {"name": "c", "model": "large", "in": {"x": "a.text", "y": "b.text"}},
    ]
    (graph,) = graphs_of(config(**configuration({"steps": steps})))
    assert {node["id"]: node["needs"] for node in graph["nodes"]} == {"a": [], "b": ["a"], "c": ["a", "b"]}


def test_all_examples_have_graphs_with_distinct_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = examples(tmp_path, monkeypatch)
    paths = [default_path(), *(path for path in sorted(folder.glob("*.yaml")) if ".tests." not in path.name)]
    graphs = [graph for path in paths for graph in graphs_of(load(path))]
    assert graphs
    for graph in graphs:
        ids = [node["id"] for node in graph["nodes"]]
        assert len(ids) == len(set(ids)), graph["model"]
        for node in graph["nodes"]:
            assert node["parent"] is None or node["parent"] in ids
            assert set(node["needs"]) <= set(ids)

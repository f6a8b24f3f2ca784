"""KServe's InferenceGraphs are read with their mistakes, and become configurations of ours."""

import itertools
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from config.document import parse_text
from config.imports.inference_graph import InferenceGraph, read_graph
from config.imports.pipeline import convert, render
from config.loader import load
from config.problem import ConfigError


def graph(**nodes: Any) -> InferenceGraph:
    return read_graph(parse_text(yaml.safe_dump(document(**nodes)), "graph.yaml"))


def document(**nodes: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"nodes": nodes, "timeout": 30}
    return {"kind": "InferenceGraph", "metadata": {"name": "pets", "namespace": "prod"}, "spec": spec}


def node(router: str, *steps: dict[str, Any]) -> dict[str, Any]:
    return {"routerType": router, "steps": list(steps)}


def service(target: str, **more: Any) -> dict[str, Any]:
    return {"serviceName": target, "name": target, **more}


def pipeline_of(written: dict[str, Any]) -> Any:
    return written["models"][-1]["pipeline"]


def test_a_sequence_passes_the_response_on() -> None:
    written, differences = convert(
        graph(
            root=node(
                "Sequence",
                service("first"),
                service("second", data="$response", dependency="Hard"),
                service("third", data="$response", mapPredictionsToInstances=True),
            )
        )
    )
    assert pipeline_of(written) == {
        "steps": [
            {"name": "first", "model": "first"},
            {"name": "second", "model": "second", "in": {"predictions": "first.predictions"}},
            {"name": "third", "model": "third", "in": {"instances": "second.predictions"}},
        ]
    }
    assert written["pools"][0] == {
        "name": "first",
        "protocol": "kserve-v1",
        "endpoints": ["http://first.prod.svc.cluster.local"],
        "model": "first",
    }
    assert written["models"][0]["routes"] == [{"to": "first", "timeout": {"total": "30s"}}]
    assert any("Soft" in text for text in differences)


def test_steps_with_an_unread_response_are_omitted_and_reported() -> None:
    written, differences = convert(graph(root=node("Sequence", service("first"), service("second", data="$request"))))
    assert [step["name"] for step in pipeline_of(written)["steps"]] == ["second"]
    assert any(text.startswith("Step `first` is left out") for text in differences)


def test_a_condition_of_a_sequence_ends_it_with_the_response_before() -> None:
    written, differences = convert(
        graph(
            root=node(
                "Sequence",
                service("first"),
                service("second", data="$request", condition="dog"),
                service("third", data="$response", condition="a.#(b==1)"),
            )
        )
    )
    first, rest = pipeline_of(written)["steps"]
    assert first == {"name": "first", "model": "first"}
    second, last = rest["switch"][0]["steps"]
    assert rest["name"] == "second_if"
    assert rest["switch"][0]["if"] == "has(first.dog)"
    assert rest["switch"][1] == {"else": True, "out": {"predictions": "first.predictions"}}
    assert second == {"name": "second", "model": "second"}
    assert last["switch"][0]["if"] == "has(second.REPLACE_ME)"
    assert "Condition of step `third`: write `a.#(b==1)` as an expression." in differences


def test_an_ensemble_has_an_output_for_each_step() -> None:
    written, _ = convert(
        graph(
            root=node("Sequence", {"nodeName": "both", "name": "both"}, service("last", data="$response")),
            both=node("Ensemble", service("a"), service("b", dependency="Hard")),
        )
    )
    both, last = pipeline_of(written)["steps"]
    assert [step["name"] for step in both["steps"]] == ["both_a", "both_b"]
    assert both["out"] == {"a": "both_a.predictions", "b": "both_b.predictions"}
    assert [step.get("on_error") for step in both["steps"]] == ["skip", None]
    assert last["in"] == {"a": "both.a", "b": "both.b"}


def test_a_splitter_is_a_split_of_a_route() -> None:
    written, differences = convert(graph(root=node("Splitter", service("a", weight=20), service("b", weight=80))))
    assert pipeline_of(written) == {"model": "pets-root"}
    (model,) = [model for model in written["models"] if model["name"] == "pets-root"]
    arms = model["routes"][0]["split"]["arms"]
    assert arms == [{"pool": "a", "weight": 20}, {"pool": "b", "weight": 80}]
    assert any("shares of 100" in text for text in differences)


def test_a_switch_preserves_its_order_and_every_condition_is_reported() -> None:
    written, differences = convert(
        graph(
            root=node(
                "Switch", service("a", condition="ok"), service("b", condition="x.#(y==1)"), service("c", condition="z")
            )
        )
    )
    assert pipeline_of(written)["switch"] == [
        {"if": "has(request.ok)", "model": "a"},
        {"if": "has(request.REPLACE_ME)", "model": "b"},
        {"else": True, "model": "c"},
    ]
    assert "Condition of step `b`: write `x.#(y==1)` as an expression." in differences
    assert any('`{"ok": false}` fulfils `ok`' in text for text in differences)


def test_urls_select_protocol_and_model() -> None:
    urls = {
        "http://a:8000/v1/models/m:predict": ("kserve-v1", "m", "http://a:8000"),
        "https://b/v2/models/n/infer": ("oip-http", "n", "https://b"),
        "http://c/custom": ("kserve-v1", "s", "http://c"),
    }
    for url, (protocol, model, endpoint) in urls.items():
        written, differences = convert(graph(root=node("Sequence", {"serviceUrl": url, "name": "s"})))
        (pool,) = written["pools"]
        assert (pool["protocol"], pool["model"], pool["endpoints"]) == (protocol, model, [endpoint])
        assert any("path is no model's" in text for text in differences) == (url == "http://c/custom")


def test_one_service_is_one_pool() -> None:
    steps = [service("a"), service("a", name="again", data="$response")]
    written, _ = convert(graph(root=node("Sequence", *steps)))
    assert [pool["name"] for pool in written["pools"]] == ["a"]
    assert [step["name"] for step in pipeline_of(written)["steps"]] == ["a", "again"]


@pytest.mark.parametrize(
    ("nodes", "reported"),
    [
        ({"rot": node("Sequence", service("a"))}, "spec.nodes: needs a node `root`"),
        ({"root": node("Sequenze", service("a"))}, 'Ensemble, Splitter (did you mean "Sequence"?)'),
        ({"root": node("Sequence")}, "spec.nodes.root.steps: has no steps"),
        ({"root": node("Sequence", {"name": "x"})}, "spec.nodes.root.steps[0]: has 0 targets"),
        ({"root": node("Sequence", service("a", nodeName="root"))}, "has 2 targets"),
        ({"root": node("Sequence", {"nodeName": "rooot"})}, "there is no node `rooot`"),
        ({"root": node("Switch", service("a"))}, "a step of a Switch needs a condition"),
        ({"root": node("Splitter", service("a"))}, "a step of a Splitter needs a weight above 0"),
        ({"root": node("Sequence", {"nodeName": "x"}), "x": node("Sequence", {"nodeName": "root"})}, "calls itself: "),
        ({"root": node("Sequence", {"nodeName": "root"})}, "calls itself: root -> root"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_with_their_line(nodes: dict[str, Any], reported: str) -> None:
    with pytest.raises(ConfigError) as caught:
        graph(**nodes)
    assert any(reported in str(problem) for problem in caught.value.problems), caught.value
    assert all(problem.line for problem in caught.value.problems)


def test_other_documents_are_refused() -> None:
    for text in ("kind: Pod", "[]", "kind: {}", "spec: 3"):
        with pytest.raises(ConfigError):
            read_graph(parse_text(text, "graph.yaml"))


def test_random_graphs_without_switches_are_accepted_by_the_gateway(tmp_path: Path) -> None:
    for seed in range(60):
        rng = random.Random(seed)
        names = [f"n{i}" for i in range(rng.randint(0, 3))]
        nodes = {}
        for index, name in enumerate(["root", *names]):
            router = rng.choice(["Sequence", "Ensemble", "Splitter"])
            steps = []
            for at in range(rng.randint(1, 4)):
                inner = names[index:] if router != "Splitter" else []
                step: dict[str, Any] = {"name": f"s{at}", "weight": 10}
                if inner and rng.random() < 0.5:
                    step["nodeName"] = rng.choice(inner)
                else:
                    step["serviceName"] = rng.choice("abcde")
                if at and rng.random() < 0.7:
                    step["data"] = "$response"
                if rng.random() < 0.3:
                    step["dependency"] = "Hard"
                steps.append(step)
            nodes[name] = node(router, *steps)
        text = render(graph(**nodes))
        assert text.startswith("# Imported from KServe's InferenceGraph pets.")
        (tmp_path / "ours.yaml").write_text(text)
        load(tmp_path / "ours.yaml")


TEXTS = st.text(max_size=20) | st.sampled_from(
    ["x\nauth: {demo_key: true}", "x\x85y: 1", "a\u2028b: 1", "# y", "{a: b}"]
)


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_no_text_of_a_graph_adds_a_field(name: str, service_name: str, condition: str, step: str) -> None:
    steps = [{"serviceName": service_name, "name": step, "condition": condition} for _ in range(2)]
    made = document(root=node("Switch", *steps), other=node("Splitter", service("a", weight=1)))
    made["metadata"]["name"] = name
    try:
        read = read_graph(parse_text(yaml.safe_dump(made), "graph.yaml"))
    except ConfigError:
        return
    assert yaml.safe_load(render(read)) == yaml.safe_load(yaml.safe_dump(convert(read)[0]))


@pytest.mark.parametrize(("nodes", "calls"), [(3_000, 1), (101, 1), (40, 2)])
def test_a_graph_that_becomes_too_large_is_refused(nodes: int, calls: int) -> None:
    names = ["root", *map(str, range(nodes - 1)), ""]
    made = {
        name: node("Sequence", *([{"nodeName": after} if after else service("a")] * calls))
        for name, after in itertools.pairwise(names)
    }
    with pytest.raises(ConfigError, match="too many nodes"):
        graph(**made)

"""Graphs of KServe and requests to them. A graph's `serviceUrl`s have the port 1, in place of that of the server."""

import json
from random import Random
from typing import Any, Final, NamedTuple

PORT: Final = 1
ROWS: Final = [[1, 2.5, -3], [4, 5, 6]]


class GraphCase(NamedTuple):
    """A graph, and the bodies of the requests to it."""

    spec: dict[str, Any]
    bodies: list[dict[str, Any]]

    def at(self, port: int) -> dict[str, Any]:
        """The specification with the port of the server."""
        spec: dict[str, Any] = json.loads(json.dumps(self.spec).replace(f"127.0.0.1:{PORT}/", f"127.0.0.1:{port}/"))
        return spec

    @property
    def is_ensemble(self) -> bool:
        """Whether the answer has an object for each step."""
        return bool(self.spec["nodes"]["root"]["routerType"] == "Ensemble")


def step(model: str, name: str = "", **more: Any) -> dict[str, Any]:
    """A step that calls a model."""
    return {"name": name or model, "serviceUrl": f"http://127.0.0.1:{PORT}/v1/models/{model}:predict", **more}


def then(model: str, name: str = "", **more: Any) -> dict[str, Any]:
    """A step that receives the response before it as its instances."""
    return step(model, name, data="$response", mapPredictionsToInstances=True, **{"dependency": "Hard", **more})


def graph(router: str, *steps: dict[str, Any], **nodes: dict[str, Any]) -> dict[str, Any]:
    """A specification."""
    return {"nodes": {"root": node(router, *steps), **nodes}}


def node(router: str, *steps: dict[str, Any]) -> dict[str, Any]:
    """One node."""
    return {"routerType": router, "steps": list(steps)}


PLAIN: Final = {"instances": ROWS}
PREMIUM: Final = {"instances": ROWS, "parameters": {"premium": True}}
REFUSED_PREMIUM: Final = {"instances": ROWS, "parameters": {"premium": False}}
GOLD: Final = {"instances": ROWS, "parameters": {"gold": 1}}
TOP: Final = {"instances": ROWS, "vip": "yes"}
HARD: Final = {"dependency": "Hard"}

WRITTEN: Final[dict[str, GraphCase]] = {
    "sequence": GraphCase(graph("Sequence", step("double", **HARD), then("total"), then("negate", "last")), [PLAIN]),
    "sequence_of_predictions": GraphCase(
        graph("Sequence", step("double", **HARD), step("negate", data="$response", **HARD)), [PLAIN]
    ),
    "sequence_of_objects": GraphCase(graph("Sequence", step("double", **HARD), then("named")), [PLAIN]),
    "sequence_of_texts": GraphCase(graph("Sequence", then("texts")), [PLAIN, {"instances": [1]}]),
    "condition_holds": GraphCase(
        graph("Sequence", step("labelled", **HARD), then("double", condition="label"), then("negate")), [PLAIN]
    ),
    "condition_fails": GraphCase(
        graph("Sequence", step("labelled", **HARD), then("double", condition="other"), then("negate")), [PLAIN]
    ),
    "condition_on_the_request": GraphCase(
        graph("Sequence", step("labelled", **HARD), step("double", condition="label", data="$request", **HARD)), [PLAIN]
    ),
    "hard_failure_first": GraphCase(graph("Sequence", step("failing", **HARD), then("double")), [PLAIN]),
    "hard_failure_second": GraphCase(
        graph("Sequence", step("double", **HARD), then("failing"), then("negate")), [PLAIN]
    ),
    "hard_refusal_first": GraphCase(graph("Sequence", step("refusing", **HARD), then("double")), [PLAIN]),
    "switch": GraphCase(
        graph(
            "Switch",
            step("double", condition="parameters.premium"),
            step("negate", condition="vip"),
            step("total", condition="parameters.gold"),
            step("texts", condition="instances"),
        ),
        [PREMIUM, REFUSED_PREMIUM, GOLD, TOP, PLAIN],
    ),
    "switch_to_a_failure": GraphCase(
        graph("Switch", step("refusing", condition="parameters.premium"), step("failing", condition="instances")),
        [PREMIUM, PLAIN],
    ),
    "ensemble": GraphCase(graph("Ensemble", step("double", "a", **HARD), step("total", "b", **HARD)), [PLAIN]),
    "ensemble_of_objects": GraphCase(
        graph("Ensemble", step("named", "a", **HARD), step("texts", "b", **HARD)), [PLAIN]
    ),
    "ensemble_with_a_soft_failure": GraphCase(
        graph("Ensemble", step("double", "a"), step("failing", "b"), step("negate", "c")), [PLAIN]
    ),
    "ensemble_with_a_hard_failure": GraphCase(
        graph("Ensemble", step("double", "a"), step("failing", "b", **HARD)), [PLAIN]
    ),
    "splitter_of_one": GraphCase(graph("Splitter", step("double", weight=100)), [PLAIN]),
    "nested": GraphCase(
        graph(
            "Ensemble",
            {"name": "first", "nodeName": "chain", **HARD},
            {"name": "second", "nodeName": "choice", **HARD},
            chain=node("Sequence", step("double", **HARD), then("total")),
            choice=node(
                "Switch", step("negate", condition="parameters.premium"), step("double", condition="instances")
            ),
        ),
        [PLAIN, PREMIUM],
    ),
}


def random_case(seed: int) -> GraphCase:
    """A graph of nested nodes without soft dependencies in sequences, which differ by design; and three requests."""
    rng = Random(seed)
    nodes: dict[str, Any] = {}

    def target(depth: int, name: str) -> dict[str, Any]:
        if depth and rng.random() < 0.4:
            inner = f"n{len(nodes)}"
            nodes[inner] = {}
            nodes[inner] = made(rng.choice(["Sequence", "Switch"]), depth - 1)
            return {"name": name, "nodeName": inner}
        return step(rng.choice(["double", "negate", "total", "labelled", "failing", "refusing"]), name)

    def made(router: str, depth: int) -> dict[str, Any]:
        steps = []
        count = rng.randint(1, 3)
        for index in range(count):
            reads = router == "Sequence" and index > 0
            one = target(0 if reads else depth, f"s{index}")
            if router == "Switch":
                last = index == count - 1
                one["condition"] = "instances" if last else rng.choice(["parameters.premium", "parameters.gold"])
            if router == "Sequence" or rng.random() < 0.5:
                one["dependency"] = "Hard"
            if reads:  # what no step reads is not imported
                one["mapPredictionsToInstances"] = rng.random() < 0.7
                if rng.random() < 0.4:
                    one["condition"] = rng.choice(["label", "predictions", "other"])
                one["data"] = "$request" if "condition" in one and rng.random() < 0.3 else "$response"
            steps.append(one)
        return node(router, *steps)

    nodes["root"] = made(rng.choice(["Sequence", "Switch", "Ensemble"]), 2)
    rows = [[round(rng.uniform(-9, 9), 3) for _ in range(rng.randint(1, 3))] for _ in range(rng.randint(1, 4))]
    parameters: list[dict[str, Any]] = [{}, {"premium": rng.choice([True, False, 0, "", "x"])}, {"gold": 2}]
    bodies = [{"instances": rows, **({"parameters": each} if each else {})} for each in parameters]
    return GraphCase({"nodes": nodes}, bodies)

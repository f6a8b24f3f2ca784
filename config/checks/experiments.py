"""Finds experiments without a metric, and settings of experiments without effect."""

from collections.abc import Iterator

from config.document import Document
from config.node import Node, names
from config.problem import Problem, closest


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report every invalid experiment, and metrics that no comparison reads."""
    routes = [route for model in root["models"] for route in model["routes"]]
    for experiment in (route["experiment"] for route in routes if "experiment" in route):
        yield from _metric(doc, root, experiment)
        yield from _times(doc, experiment)
        yield from _thompson(doc, experiment)
    read = any("experiment" in route for route in routes) or any(
        "of" in condition for route in routes for name in ("back_if", "on_if") for condition in route["rollout"][name]
    )
    if "feedback" in root and not read:
        message = "has no effect: no route has an experiment, or a rollout with a condition on feedback"
        yield doc.problem_with_key(root["feedback"].place, message)


def _metric(doc: Document, root: Node, experiment: Node) -> Iterator[Problem]:
    metric = experiment["metric"]
    if metric.text is not None and metric.text not in names(root["feedback"]):
        message = f'no metric of `feedback` is named "{metric.text}"'
        yield doc.problem(metric.place, message, closest(metric.text, names(root["feedback"])))


def _times(doc: Document, experiment: Node) -> Iterator[Problem]:
    baseline, longest = experiment["baseline"], experiment["longest"].read(float)
    before = (baseline.read(float) or 0.0) + (experiment["warmup"].read(float) or 0.0)
    if baseline.read(float) and experiment["sticky"].text in (None, "request"):
        message = "has no effect with `sticky: request`: no subject has values before the comparison. Use user or key"
        yield doc.problem_with_key(baseline.place, message)
    if longest is not None and longest <= before:
        yield doc.problem(experiment["longest"].place, "is over before the comparison begins")


def _thompson(doc: Document, experiment: Node) -> Iterator[Problem]:
    if experiment["decide"].text == "thompson":
        return
    for setting in (experiment[name] for name in ("floor", "every") if name in experiment):
        yield doc.problem_with_key(setting.place, "has no effect without `decide: thompson`: the shares stay")

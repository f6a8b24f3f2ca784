"""Rollouts that cannot end, experiments without a metric, arms that cannot be compared."""

from collections.abc import Iterator, Sequence

from config.checks.pipelines.walk import model_names, model_of, pipelines, takes_tensors, takes_tensors_at
from config.checks.references import arms_of
from config.document import Document, Node, names
from config.graph import cycle
from config.problem import Problem, closest
from config.schema.pipelines.outputs import TakesTensors
from config.schema.rollout import TIMED
from config.schema.text import is_glob, may_overlap


def check_experiments(doc: Document, root: Node) -> Iterator[Problem]:
    """Report every invalid experiment, and metrics that no comparison reads."""
    routes = [route for model in root["models"] for route in model["routes"]]
    for experiment in (route["experiment"] for route in routes if "experiment" in route):
        yield from _metric(doc, root, experiment)
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


FEWEST_SUBJECTS = 50
"""Tenants that a comparison by tenant needs: each is one subject, so that one tenant's trouble is not a difference."""


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report every invalid arm and every invalid condition."""
    for model in root["models"]:
        for route in model["routes"]:
            yield from _arms(doc, root, model, route)
            for compared in (route["rollout"], route["experiment"]):
                yield from _subjects(doc, root, model, compared)
                for name in ("back_if", "on_if", "guards"):
                    yield from _events(doc, root, compared, name)
    yield from _inner(doc, root)
    yield from _circular(doc, root)


def _arms(doc: Document, root: Node, model: Node, route: Node) -> Iterator[Problem]:
    yield from _alike(doc, route["rollout"], arms_of(route))
    names, tensors = model_names(root), takes_tensors(root)
    for arm in arms_of(route):
        called = arm["model"]
        if called.text is not None and model_of(called.text, names) is None:
            yield doc.problem(called.place, f'no model is named "{called.text}"', closest(called.text, names))
        elif called.text is not None and is_glob(names.get(called.text, "*")):
            yield doc.problem(called.place, "is served by a family: name a model that has one name")
        elif called.text is not None and "price" in _section(root, names[called.text]) and "price" not in model:
            message = (
                f'has a price, and "{model["name"].text}" has none: its clients pay the price of the model they name'
            )
            yield doc.problem(called.place, message)
        if "version" in arm and not _takes_tensors(arm, root, tensors):
            message = "has no effect: versions are for models of tensors; for a chat, use `rewrite: {model: NAME}`"
            yield doc.problem_with_key(arm["version"].place, message)
        if called.text is not None and "version" in arm:
            yield doc.problem_with_key(arm["version"].place, "has no effect beside `model`: its routes choose")


def _takes_tensors(arm: Node, root: Node, tensors: TakesTensors) -> bool:
    if arm["model"].text is not None:
        return tensors(arm["model"].text)
    return takes_tensors_at(arm["pool"], root)


def _section(root: Node, name: str) -> Node:
    return next(model for model in root["models"] if model["name"].text == name)


def _target(arm: Node) -> tuple[object, ...]:
    """The properties that distinguish an arm from another."""
    return arm.text or arm["pool"].text, arm["model"].text, arm["version"].text, arm["rewrite"].value


def _label(arm: Node) -> str | None:
    if arm["name"].text:
        return arm["name"].text
    target = arm.text or arm["pool"].text or arm["model"].text
    return f"{target}:{arm['version'].text}" if arm["version"].text else target


def _alike(doc: Document, rollout: Node, arms: Sequence[Node]) -> Iterator[Problem]:
    """Report arms that are equal, or that have the same name."""
    for i, arm in enumerate(arms):
        for j, before in enumerate(arms[:i]):
            named = "`from`" if "from" in rollout else f"arm {j + 1}"
            if _target(before) == _target(arm) != (None, None, None, None):
                nothing = "move" if "from" in rollout else "compare"
                yield doc.problem(arm.place, f"is the same as {named}: there is nothing to {nothing}")
            elif _label(before) == _label(arm):
                yield doc.problem(arm.place, f'has the name "{_label(arm)}", as {named} has: give it a `name`')


def _subjects(doc: Document, root: Node, model: Node, compared: Node) -> Iterator[Problem]:
    sticky = compared["sticky"]
    name = model["name"].text or "*"
    if sticky.text == "tenant":
        users = sum(any(may_overlap(g, name) for g in tenant["models"].texts()) for tenant in root["tenants"])
        if users < FEWEST_SUBJECTS:
            message = (
                f"compares {users} tenants, and needs {FEWEST_SUBJECTS}: each tenant is one subject. "
                "Use user, key or request"
            )
            yield doc.problem(sticky.place, message)


def _events(doc: Document, root: Node, compared: Node, name: str) -> Iterator[Problem]:
    seen: set[tuple[str | None, str]] = set()
    for condition in compared[name]:
        metric, bound = condition["metric"].text, condition["slower_than"]
        if metric in TIMED and bound.value is None:
            yield doc.problem(condition.place, f"needs a bound: {metric} with slower_than, such as 2s")
        if bound.text is not None and bound.text.startswith("p"):
            yield from _quantile(doc, compared, metric, bound)
        yield from _reported(doc, root, condition)
        key = repr((bound.value, condition["of"].value, condition["worse_than"].value))
        if (metric, key) in seen:
            yield doc.problem(condition.place, f"is given twice: {metric}")
        seen.add((metric, key))
        if (condition["above"].read(float) or 1.0) < 1:
            yield doc.problem(condition["above"].place, "is below 1x: a better arm would be taken back")


def _quantile(doc: Document, compared: Node, metric: str | None, bound: Node) -> Iterator[Problem]:
    """Report quantiles that are not measured: only the warm-up's times to the first byte are."""
    if metric == "total":
        yield doc.problem(bound.place, "is measured for first_byte only: give a time such as 5s")
    if metric == "first_byte" and compared["warmup"].read(float) == 0 and not compared["baseline"].read(float):
        yield doc.problem(bound.place, "is measured in the warm-up, which lasts 0s")


def _reported(doc: Document, root: Node, condition: Node) -> Iterator[Problem]:
    """Report conditions on values of clients that are never reported, or that have no bound."""
    of, worse = condition["of"], condition["worse_than"]
    if condition["metric"].text != "feedback":
        return
    if of.text is None:
        yield doc.problem(condition.place, "needs a metric of `feedback`: feedback with `of`, such as thumbs")
        return
    metric = next((metric for metric in root["feedback"] if metric["name"].text == of.text), None)
    if metric is None:
        suggestion = closest(of.text, names(root["feedback"]))
        yield doc.problem(of.place, f'no metric of `feedback` is named "{of.text}"', suggestion)
    elif metric["type"].text == "number" and worse.value is None:
        yield doc.problem(condition.place, "needs a bound: a number is bad if it is worse than `worse_than`")
    elif metric["type"].text != "number" and worse.value is not None:
        yield doc.problem_with_key(worse.place, f'has no effect: "{of.text}" is not a number')


def _inner(doc: Document, root: Node) -> Iterator[Problem]:
    """Report arms that are models, of models that pipelines call: their usage would count twice."""
    names = model_names(root)
    inner = {model_of(name, names): pipeline.model for pipeline in pipelines(root) for name in pipeline.config.models()}
    for model in root["models"]:
        caller = inner.get(model["name"].text)
        for arm in (arm for route in model["routes"] for arm in arms_of(route)):
            if arm["model"].text is not None and caller is not None:
                message = f'has no effect here: the pipeline "{caller}" calls this model, whose arms must be pools'
                yield doc.problem_with_key(arm["model"].place, message)


def _circular(doc: Document, root: Node) -> Iterator[Problem]:
    """Report models that call themselves by an arm of a rollout."""
    names = model_names(root)
    edges: dict[str, list[str]] = {}
    places: dict[tuple[str, str], Node] = {}
    for model in root["models"]:
        own = model["name"].text or ""
        arms = [arm["model"] for route in model["routes"] for arm in arms_of(route)]
        called = [(target, arm) for arm in arms if arm.text and (target := model_of(arm.text, names))]
        edges[own] = [target for target, _ in called]
        places |= {(own, target): arm for target, arm in called}
    if not places:
        return
    for pipeline in pipelines(root):
        models = (model_of(name, names) for name in pipeline.config.models())
        edges[pipeline.model] = edges.get(pipeline.model, []) + [model for model in models if model is not None]
    circle = cycle(edges)
    for caller, callee in zip((*circle[1:], *circle[:1]), circle, strict=True) if circle else ():
        arm = places.get((caller, callee)) or places.get((callee, caller))
        if arm is not None:
            yield doc.problem(arm.place, f"calls itself: {' → '.join([*reversed(circle), circle[-1]])}")
            return

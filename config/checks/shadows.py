"""Finds shadows that compare nothing, cannot be compared, or would have effects."""

from collections.abc import Iterator

from config.checks.pipelines.walk import (
    PlacedPipeline,
    model_names,
    model_of,
    nodes,
    pipelines,
    takes_tensors,
    takes_tensors_at,
)
from config.checks.references import targets
from config.document import Document, Node, names
from config.problem import Problem, closest
from config.schema.text import is_glob

OF_TEXT, OF_TENSORS = ("text", "tools"), ("tensors",)
_EFFECT = "leads to the step `{}`, whose call may have effects: copies must not"


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report every invalid shadow, also before rollouts."""
    first: dict[str, Node] = {}
    for model in root["models"]:
        for route in model["routes"]:
            tensors = _takes_tensors(route, root)
            if "shadow" in route:
                shadow = route["shadow"]
                yield from _beside(doc, route)
                yield from _named(doc, first, shadow["name"].text or _label(shadow["to"]), shadow)
                yield from _target(doc, root, model, route)
                yield from _copies(doc, root, shadow, tensors=tensors)
                yield from _spend(doc, root, model, shadow, shadow["to"])
            if "shadow_first" in route["rollout"]:
                copies = route["rollout"]["shadow_first"]
                yield from _named(doc, first, route["rollout"]["name"].text, copies)
                yield from _of_arms(doc, root, route["rollout"])
                yield from _copies(doc, root, copies, tensors=tensors)
                yield from _spend(doc, root, model, copies, route["rollout"]["to"])


def _beside(doc: Document, route: Node) -> Iterator[Problem]:
    for name in ("rollout", "experiment"):
        if name in route:
            message = f"has no effect beside `{name}`, whose arms answer differently themselves"
            yield doc.problem_with_key(route["shadow"].place, message)


def _named(doc: Document, first: dict[str, Node], label: str | None, shadow: Node) -> Iterator[Problem]:
    """Names are unique: they are the keys of the counts."""
    if label in first:
        line = doc.line(first[label].place)
        yield doc.problem(shadow.place, f'has the name "{label}", as the shadow on line {line} has: give it one')
    elif label is not None:
        first[label] = shadow


def _of_arms(doc: Document, root: Node, rollout: Node) -> Iterator[Problem]:
    """The arms of a rollout with copies have no effects. `from` answers copies too, as noise."""
    all_names = model_names(root)
    for name in ("from", "to"):
        called = rollout[name]["model"]
        own = model_of(called.text or "", all_names)
        if own is not None and (effect := _effect(root, own, all_names)):
            yield doc.problem(
                called.place, f"leads to the step `{effect}`, whose call may have effects: copies must not"
            )


def _label(to: Node) -> str | None:
    target = to["name"].text or to.text or to["pool"].text or to["model"].text
    return f"{target}:{to['version'].text}" if target and to["version"].text and not to["name"].text else target


def _target(doc: Document, root: Node, model: Node, route: Node) -> Iterator[Problem]:
    """The target exists, is another one, and has no effects."""
    to = route["shadow"]["to"]
    pool, called = to if to.text is not None else to["pool"], to["model"]
    pool_names, all_names = names(root["pools"]), model_names(root)
    if pool.text is not None and pool_names and pool.text not in pool_names:
        yield doc.problem(pool.place, f'no pool is named "{pool.text}"', closest(pool.text, pool_names))
        return
    own = {target.text for target in targets(route)}
    if pool.text is not None and own == {pool.text} and "version" not in to and "rewrite" not in to:
        yield doc.problem(pool.place, "is the pool of the route: there is nothing to compare")
    tensors = _takes_tensors(route, root)
    if called.text is not None:
        yield from _model(doc, root, model, called, all_names)
        copied = takes_tensors(root)(called.text)
    else:
        copied = takes_tensors_at(pool, root)
    if "version" in to and not copied:
        message = "has no effect: versions are for models of tensors; for a chat, use `rewrite: {model: NAME}`"
        yield doc.problem_with_key(to["version"].place, message)
    elif "version" in to and called.text is not None:
        yield doc.problem_with_key(to["version"].place, "has no effect beside `model`: its routes choose")
    if copied is not tensors and (called.text is None or model_of(called.text, all_names) is not None):
        kinds = ("tensors", "texts") if copied else ("texts", "tensors")
        yield doc.problem(to.place, f"answers with {kinds[0]}, and the route with {kinds[1]}")


def _model(doc: Document, root: Node, model: Node, called: Node, all_names: dict[str, str]) -> Iterator[Problem]:
    name = model_of(called.text or "", all_names)
    if name is None:
        yield doc.problem(called.place, f'no model is named "{called.text}"', closest(called.text or "", all_names))
    elif is_glob(name):
        yield doc.problem(called.place, "is served by a family: name a model that has one name")
    elif name == model["name"].text:
        yield doc.problem(called.place, "is the model of the route: there is nothing to compare")
    elif effect := _effect(root, name, all_names):
        yield doc.problem(called.place, _EFFECT.format(effect))


def _effect(root: Node, name: str, all_names: dict[str, str]) -> str:
    """The step of a pipeline that calls a program of the operator, also within the models that it names."""
    piped: dict[str, PlacedPipeline] = {pipeline.model: pipeline for pipeline in pipelines(root)}
    waiting, seen = [name], set[str]()
    while waiting:
        each = waiting.pop()
        if each in seen or each not in piped:
            continue
        seen.add(each)
        for placed in nodes(piped[each]):
            if getattr(placed.node, "call", None) is not None:
                return getattr(placed.node, "name", None) or each
        waiting += [own for model in piped[each].config.models() if (own := model_of(model, all_names)) is not None]
    return ""


def _takes_tensors(route: Node, root: Node) -> bool:
    return any(takes_tensors_at(pool, root) for pool in targets(route))


def _copies(doc: Document, root: Node, copies: Node, *, tensors: bool) -> Iterator[Problem]:
    """Report fields of copies without effect."""
    compare, workers = copies["compare"], root["workers"].read(int) or 1
    concurrency = copies["at_most"]["concurrency"]
    if "concurrency" in copies["at_most"] and (concurrency.read(int) or workers) < workers:
        message = f"is below `workers` ({workers}), and each worker may send one copy at least"
        yield doc.problem(concurrency.place, message)
    if (copies["samples"].read(int) or 0) > 0 and root["record"]["bodies"].text == "digest":
        yield doc.problem(copies["samples"].place, "would store texts, and `record` has `bodies: digest`")
    for name in OF_TEXT if tensors else OF_TENSORS:
        if name in compare:
            kind = "tensors" if tensors else "texts"
            yield doc.problem_with_key(compare[name].place, f"has no effect: the route answers with {kind}")
    yield from _judges(doc, root, compare)


def _spend(doc: Document, root: Node, model: Node, copies: Node, to: Node) -> Iterator[Problem]:
    """A bound of the cost needs the price of the copies."""
    spend = copies["at_most"]["spend"]
    if spend.value is None:
        return
    own = model_of(to["model"].text or "", model_names(root)) if to["model"].text else model["name"].text
    priced = next((each for each in root["models"] if each["name"].text == own), model)
    if "price" not in priced:
        yield doc.problem(spend.place, f'needs a price of the model "{own}": without one its copies cost nothing')


def _judges(doc: Document, root: Node, compare: Node) -> Iterator[Problem]:
    """The models that decide about texts exist, and take what they are given."""
    all_names, tensors = model_names(root), takes_tensors(root)
    embeds = {model["name"].text for model in root["models"] if "embeddings" in model}
    for test in compare["text"]:
        for kind in ("embedding", "judge"):
            named = test[kind]
            if named.text is None:
                continue
            own = model_of(named.text, all_names)
            if own is None:
                yield doc.problem(named.place, f'no model is named "{named.text}"', closest(named.text, all_names))
            elif is_glob(own):
                yield doc.problem(named.place, "is served by a family: name a model that has one name")
            elif tensors(own) and own not in embeds:
                yield doc.problem(named.place, "takes tensors, and is given texts")

"""Finds models and routes whose parts conflict, or have no effect."""

import math
from collections.abc import Iterator
from fnmatch import fnmatchcase

from config.checks.matching import token_range
from config.checks.references import pool_of, targets
from config.document import Document
from config.node import Node
from config.problem import Problem, closest
from config.schema.globs import is_glob


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report every invalid model and route."""
    pools = {name: pool for pool in root["pools"] if (name := pool["name"].text)}
    for model in root["models"]:
        yield from _family(doc, model)
        yield from _else(doc, model)
        for route in model["routes"]:
            yield from _when(doc, model, route["when"])
            yield from _model_sent(doc, pools, route)
            yield from _fallback(doc, route)


def _family(doc: Document, model: Node) -> Iterator[Problem]:
    if is_glob(model["name"].text or ""):
        for field in ("aliases", "versions"):
            if list(model[field]):
                message = "belong to a model with one name: a glob serves each name that clients write"
                yield doc.problem_with_key(model[field].place, message)


def _else(doc: Document, model: Node) -> Iterator[Problem]:
    routes = list(model["routes"])
    for i, route in enumerate(routes):
        if "else" not in route:
            continue
        if "when" in route:
            yield doc.problem_with_key(
                route["when"].place, "excludes `else`, which takes every request that no other route takes"
            )
        if i < len(routes) - 1:
            yield doc.problem(route["else"].place, "must be the last route: no route after it is tried")


def _when(doc: Document, model: Node, when: Node) -> Iterator[Problem]:
    for _, node in when.fields():
        if node.value in ((), {}):
            yield doc.problem(node.place, "is empty and matches nothing: add an entry, or remove it")
    yield from _names(doc, model, when)
    yield from _headers(doc, when["header"])
    yield from _numbers(doc, when)
    if "user" in when["role"].texts():
        yield doc.problem(when["role"].place, "has no effect: every principal has the role user")
    if "cost" in when and "price" not in model:
        yield doc.problem_with_key(when["cost"].place, "needs a price: the model has none")


def _names(doc: Document, model: Node, when: Node) -> Iterator[Problem]:
    name, aliases, versions = model["name"].text, model["aliases"].texts(), model["versions"].texts()
    if name is None or is_glob(name):
        return
    if "model" in when and not aliases:
        message = f'has no effect: only "{name}" is served here; it is for a model with aliases or a glob for a name'
        yield doc.problem_with_key(when["model"].place, message)
    else:
        yield from _unknown(doc, when["model"], [name, *aliases], "this model has no such name")
    if "version" in when and not versions:
        yield doc.problem_with_key(when["version"].place, "matches nothing: the model has no `versions`")
    else:
        yield from _unknown(doc, when["version"], versions, "this model has no such version")


def _unknown(doc: Document, globs: Node, choices: list[str], message: str) -> Iterator[Problem]:
    for glob in globs:
        if glob.text is not None and not any(fnmatchcase(name, glob.text) for name in choices):
            yield doc.problem(glob.place, message, closest(glob.text, choices))


def _headers(doc: Document, headers: Node) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for name, node in headers.fields():
        if name.lower() in seen:
            yield doc.problem_with_key(node.place, f"is the header {seen[name.lower()]} again: keep one")
        seen.setdefault(name.lower(), name)


def _numbers(doc: Document, when: Node) -> Iterator[Problem]:
    for field, noun in (("prompt_tokens", "prompt"), ("max_tokens", "answer")):
        tokens = token_range(when[field].text or "")
        if tokens and tokens[1] < tokens[0]:
            yield doc.problem(when[field].place, f"no {noun} is that short")
    if token_range(when["prompt_tokens"].text or "") == (0, math.inf):
        yield doc.problem(when["prompt_tokens"].place, "has no effect: every prompt is that long")


def _model_sent(doc: Document, pools: dict[str, Node], route: Node) -> Iterator[Problem]:
    """Report a rewrite of `model` for pools that set the name of their model themselves."""
    reached = [pools[pool.text] for pool in targets(route) if pool.text in pools]
    if "model" in route["rewrite"] and reached and all(map(_names_its_model, reached)):
        message = "has no effect: every pool that this route reaches has its own name for the model"
        yield doc.problem_with_key(route["rewrite"]["model"].place, message)


def _fallback(doc: Document, target: Node, passed: frozenset[str] = frozenset()) -> Iterator[Problem]:
    """Report fallbacks without effect, in a target and its nested ones. `passed` are the pools that have already
    failed."""
    for arm in target["split"]["arms"]:
        yield from _fallback(doc, arm, passed)
    arms = [arm for arm in target["split"]["arms"] if arm["weight"].value != 0]
    always = pool_of(target).text or (pool_of(arms[0]).text if len(arms) == 1 else None)
    passed = passed if always is None else passed | {always}
    for entry in target["fallback"]:
        pool = pool_of(entry)
        if pool.text in passed:
            yield doc.problem(pool.place, f'has no effect: "{pool.text}" is already a target of the route')
        if {"transport", "timeout"} <= set(entry["on"].texts()):
            yield doc.problem(entry["on"].place, "lists timeout without effect: transport includes it")
        yield from _fallback(doc, entry, passed)


def _names_its_model(pool: Node) -> bool:
    """Whether a pool sets the name of its model. A runtime of a language model has one model, a repository any
    number."""
    return "model" in pool or pool["runtime"]["kind"].text in ("llm", "vllm")

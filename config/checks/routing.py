"""Models and routes whose parts conflict, routes that never match, attempts that can never happen."""

import math
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from fnmatch import fnmatchcase

from config.checks.references import pool_of, targets
from config.document import Document, Node
from config.problem import Problem, closest
from config.schema.text import covers, is_glob
from config.schema.units import format_duration, parse_duration


def covers_when(wide: Node, narrow: Node) -> bool:
    """Whether ``wide`` certainly matches every request that ``narrow`` matches.

    Fields are compared separately, so True is certain, and some coverings are not detected.
    """
    return all(
        _COVERS[name](node, narrow[name]) for name, node in wide.fields() if name in _COVERS and node.value is not None
    )


def token_range(comparison: str) -> tuple[float, float] | None:
    """``>4000`` → ``(4001, inf)``: the least and the most tokens that match. None for an invalid comparison."""
    parts = re.fullmatch(r"([<>]=?)\s*(\d{1,9})", comparison)
    if parts is None:
        return None
    sign, bound = parts[1], int(parts[2])
    if sign[0] == ">":
        return bound + (sign == ">"), math.inf
    return 0, bound - (sign == "<")


def cost_range(comparison: str) -> tuple[str, Decimal] | None:
    """``>0.01 usd`` → ``(">", 0.01)``. None for an invalid comparison."""
    parts = re.fullmatch(r"([<>]=?)\s*(\d{1,12}(?:\.\d{1,12})?)\s*[A-Za-z]{3}", comparison)
    return None if parts is None else (parts[1], Decimal(parts[2]))


def _globs(wide: Node, narrow: Node) -> bool:
    texts = narrow.texts()
    return bool(texts) and all(any(covers(glob, text) for glob in wide.texts()) for text in texts)


def _pairs(wide: Node, narrow: Node) -> bool:
    return all(
        node.text is not None and (text := narrow[name].text) is not None and covers(node.text, text)
        for name, node in wide.fields()
    )


def _covers_headers(wide: Node, narrow: Node) -> bool:
    return _pairs(_lower(wide), _lower(narrow))


def _lower(headers: Node) -> Node:
    return Node({name.lower(): node.value for name, node in headers.fields()}, headers.place)


def _same(wide: Node, narrow: Node) -> bool:
    return wide.value == narrow.value


def _tokens(wide: Node, narrow: Node) -> bool:
    outer, inner = token_range(wide.text or ""), token_range(narrow.text or "")
    return outer is not None and inner is not None and outer[0] <= inner[0] and inner[1] <= outer[1]


def _costs(wide: Node, narrow: Node) -> bool:
    outer, inner = cost_range(wide.text or ""), cost_range(narrow.text or "")
    if outer is None or inner is None or outer[0][0] != inner[0][0]:
        return False
    if outer[1] == inner[1]:
        return outer[0] == inner[0] or outer[0].endswith("=")
    return (outer[1] < inner[1]) == (outer[0][0] == ">")


_COVERS: dict[str, Callable[[Node, Node], bool]] = {
    "tenant": _globs,
    "role": _globs,
    "key": _globs,
    "label": _pairs,
    "model": _globs,
    "version": _globs,
    "front": _globs,
    "header": _covers_headers,
    "stream": _same,
    "prompt_tokens": _tokens,
    "max_tokens": _tokens,
    "tools": _same,
    "json_schema": _same,
    "vision": _same,
    "cost": _costs,
    "time": _same,
}


def check_attempts(doc: Document, root: Node) -> Iterator[Problem]:
    """Report hedges that are too late."""
    for model in root["models"]:
        for route in model["routes"]:
            yield from _late(doc, route)


def _late(doc: Document, route: Node) -> Iterator[Problem]:
    delay = route["hedge"]["after"]
    with suppress(ValueError):  # a percentile
        after = parse_duration(delay.value)
        first_byte = route["timeout"]["first_byte"].read(float) or 0.0
        # A text that is not streamed may begin after `first_byte`.
        for name, least in (("whole", first_byte), ("total", 0.0)):
            end = route["timeout"][name].read(float)
            if end is not None and after >= max(end, least):
                message = f"has no effect: timeout.{name} ends the first attempt before, after {format_duration(end)}"
                yield doc.problem(delay.place, message)
                break


def is_alone(pool: Node) -> bool:
    """Whether a pool certainly has one endpoint only; discovery may add others."""
    return "runtime" in pool or ("discover" not in pool and len(list(pool["endpoints"])) == 1)


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report every invalid model and route."""
    pools = {name: pool for pool in root["pools"] if (name := pool["name"].text)}
    for model in root["models"]:
        for route in model["routes"]:
            yield from _when(doc, model, route["when"])
            yield from _model_sent(doc, pools, route)
            yield from _fallback(doc, route)


def _when(doc: Document, model: Node, when: Node) -> Iterator[Problem]:
    for _, node in when.fields():
        if node.value in ((), {}):
            yield doc.problem(node.place, "is empty and matches nothing: add an entry, or remove it")
    yield from _names(doc, model, when)
    yield from _numbers(doc, when)
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
    for name in ("model", "strip"):
        sent = route["rewrite"][name]
        if name in route["rewrite"] and reached and all(_names_its_model(pool, sent.text) for pool in reached):
            message = "has no effect: every pool that this route reaches has its own name for the model"
            yield doc.problem_with_key(route["rewrite"][name].place, message)


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
        yield from _fallback(doc, entry, passed)


def _names_its_model(pool: Node, sent: str | None) -> bool:
    """Whether a pool sets the name of its model, whatever name is `sent`. A runtime of a language model has one model
    and its adapters, a repository any number."""
    if sent is not None and sent in pool["runtime"]["adapters"]:
        return False
    return "model" in pool or pool["runtime"]["kind"].text in ("llm", "vllm")

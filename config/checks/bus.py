"""Bindings of message brokers: names that exist, and fields without effect."""

from collections.abc import Iterator
from urllib.parse import unquote

from config.document import Document, Node, names
from config.problem import Problem, closest
from config.schema.text import may_overlap


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report bindings that can answer no message, and fields without effect."""
    tenants, models = names(root["tenants"]), _model_names(root)
    consumed: dict[tuple[str, ...], str] = {}
    seen = set[str]()
    for binding in root["listen"]["bus"]:
        name = binding["name"]
        if name.text in seen:
            yield doc.problem(name.place, f'another binding is named "{name.text}"')
        seen.add(name.text or "")
        tenant = binding["tenant"]
        if tenant.text is not None and tenants and tenant.text not in tenants:
            yield doc.problem(tenant.place, f'no tenant is named "{tenant.text}"', closest(tenant.text, tenants))
        yield from _model(doc, binding, models)
        place = tuple(part.text or "" for part in (_url(binding), binding["topic"], binding["group"]))
        if place in consumed:
            message = f'is read by binding "{consumed[place]}" of the same group: each message reaches one of the two'
            yield doc.problem(binding["topic"].place, message)
        consumed[place] = name.text or ""


def advice(doc: Document, root: Node) -> Iterator[Problem]:
    """Warn of an order that holds within one process only."""
    for binding in root["listen"]["bus"]:
        if binding["order"].text == "key" and not _is_kafka(binding):
            message = "holds within one process: this broker gives messages of one key to any member of the group"
            yield doc.problem(binding["order"].place, message)


def _model_names(root: Node) -> list[str]:
    return [name for model in root["models"] for name in (model["name"].text, *model["aliases"].texts()) if name]


def _model(doc: Document, binding: Node, models: list[str]) -> Iterator[Problem]:
    """The model of a binding exists, by the field or by the path."""
    field = binding["model"] if "model" in binding else binding["path"]
    path = binding["path"].text or ""
    model = binding["model"].text if "model" in binding else None
    if model is None and path.startswith("/v2/models/"):
        model = unquote(path.removeprefix("/v2/models/").removesuffix("/infer"))
    if model and models and not any(may_overlap(model, name) for name in models):
        yield doc.problem(field.place, f'no model is named "{model}"', closest(model, models))


def _url(binding: Node) -> Node:
    broker = binding["broker"]
    return broker if broker.text is not None else broker["url"]


def _is_kafka(binding: Node) -> bool:
    return (_url(binding).text or "").startswith("kafka:")

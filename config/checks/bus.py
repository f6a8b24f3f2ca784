"""Bindings of message brokers: names that exist, and fields without effect."""

from collections.abc import Iterator, Mapping
from urllib.parse import unquote

from config.document import Document, Node, names
from config.problem import Problem, closest
from config.schema.text import may_overlap

_SQS = {"sqs": "SQS"}
_WITHOUT_COUNTS = {"kafka": "Kafka", "mqtt": "MQTT"}


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
        yield from _inert(doc, binding)
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


def _inert(doc: Document, binding: Node) -> Iterator[Problem]:
    broker = binding["broker"]
    if "deliveries" in binding and (broker_name := _of(binding, _WITHOUT_COUNTS)):
        message = f"has no effect: {broker_name} counts no deliveries"
        yield doc.problem_with_key(binding["deliveries"].place, message)
    if "start" in binding and _of(binding, {"mqtt": "MQTT"}):
        yield doc.problem_with_key(binding["start"].place, "has no effect: a new session of MQTT is empty")
    if "start" in binding and _is_rabbitmq(binding):
        yield doc.problem_with_key(binding["start"].place, "has no effect: a new queue of RabbitMQ is empty")
    if _of(binding, _SQS):
        for name in ("start", "group"):
            if name in binding:
                message = "has no effect: all processes that read a queue of SQS share its messages"
                yield doc.problem_with_key(binding[name].place, message)
        if "cancels" in binding:
            message = "needs another broker: a queue of SQS gives each message to one process only"
            yield doc.problem_with_key(binding["cancels"].place, message)
        if "server_name" in broker["tls"]:
            message = "has no effect: the library of SQS checks the certificate for the host of the URL"
            yield doc.problem_with_key(broker["tls"]["server_name"].place, message)
    if "mechanism" in broker and (not _is_kafka(binding) or "username" not in broker):
        message = "has no effect: it is for a Kafka broker with a username"
        yield doc.problem_with_key(broker["mechanism"].place, message)
    if binding["stream"].read(bool) and (binding["path"].text or "").startswith(("/v2/", "/v1/embeddings")):
        yield doc.problem_with_key(binding["stream"].place, "has no effect: the API of the path has no streams")


def _url(binding: Node) -> Node:
    broker = binding["broker"]
    return broker if broker.text is not None else broker["url"]


def _of(binding: Node, names: Mapping[str, str]) -> str | None:
    """The name of the broker, if its scheme is among `names`."""
    return names.get((_url(binding).text or "").partition(":")[0])


def _is_kafka(binding: Node) -> bool:
    return (_url(binding).text or "").startswith("kafka:")


def _is_rabbitmq(binding: Node) -> bool:
    return (_url(binding).text or "").startswith("amqp:")

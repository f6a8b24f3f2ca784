"""Bindings of message brokers that can answer no message: each with its line."""

import pytest

from tests.config.conftest import Complaints

FILE = """\
version: 1
listen:
  bus:
    - name: one
      broker: kafka://127.0.0.1:9092
      topic: requests
      tenant: acme
      model: chat
      reply: answers
      dead_letters: dead
    - name: two
      broker: {url: "redis://127.0.0.1:6379/0"}
      topic: tensors
      tenant: acme
      path: /v2/models/fraud/infer
      reply: {topic: answers, allowed: ["team.*"]}
      dead_letters: dead
      deliveries: 3
pools:
  - {name: v1, endpoints: [http://10.0.0.5:8000]}
  - {name: t1, protocol: oip-http, endpoints: [http://10.0.0.7:8000]}
  - name: far
    protocol: {name: bus, topic: work, reply: work.answers}
    endpoints: ["kafka://10.0.0.8:9092,10.0.0.9:9092"]
models:
  - {name: chat, routes: [{to: v1, fallback: [far]}]}
  - {name: fraud, routes: [{to: t1}]}
tenants: [{name: acme, models: ["*"]}]
"""
AT = "listen.bus"


def test_bindings_are_valid(complaints: Complaints) -> None:
    assert complaints(FILE) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("tenant: acme\n      model", "tenant: acm\n      model",
         f'7: {AT}[0].tenant: no tenant is named "acm" (did you mean "acme"?)'),
        ("model: chat", "model: chad", f'8: {AT}[0].model: no model is named "chad" (did you mean "chat"?)'),
        ("models/fraud/", "models/frau/", f'15: {AT}[1].path: no model is named "frau" (did you mean "fraud"?)'),
        ("name: two", "name: one", f'11: {AT}[1].name: another binding is named "one"'),
        ("tenant: acme\n      model: chat", "model: chat",
         f"4: {AT}[0]: name the tenant of the messages, or the `key_header` with their API key"),
        ("dead_letters: dead\n    - name: two", "dead_letters: requests\n    - name: two",
         f"4: {AT}[0]: answers and dead letters need topics other than that of the requests"),
        ("path: /v2/models/fraud/infer", "path: /v2/models/fraud/infer\n      stream: true",
         f"16: {AT}[1].stream: has no effect: the API of the path has no streams"),
        ("topic: requests", "topic: requests\n      deliveries: 3",
         f"7: {AT}[0].deliveries: has no effect: Kafka counts no deliveries"),
        ("reply: work.answers}", "reply: work.answers}\n    resume: text",
         "24: pools[2].resume: has no effect on workers behind a message broker"),
        ('["kafka://10.0.0.8:9092,10.0.0.9:9092"]', '["http://10.0.0.8:9092"]',
         "22: pools[2]: `protocol: bus` goes with endpoints that are message brokers, such as kafka://HOST:PORT"),
        ("http://10.0.0.5:8000", "nats://10.0.0.5:8000",
         "20: pools[0]: `protocol: bus` goes with endpoints that are message brokers, such as kafka://HOST:PORT"),
        ("reply: work.answers}", "reply: work}",
         "23: pools[2].protocol: requests, answers and cancellations need a topic each"),
        ("6379/0", "6379/0, mechanism: PLAIN",
         None),
        ("kafka://127", "http://127",
         f"5: {AT}[0].broker.url: expected amqp://HOST:PORT/VHOST, kafka://HOST:PORT, mqtt://HOST:PORT, "
         "nats://HOST:PORT, redis://HOST:PORT/0, redis+unix:/PATH or sqs://HOST:PORT, without a user"),
        ("kafka://127.0.0.1:9092", "sqs://sqs.eu-central-1.amazonaws.com\n      group: one",
         f"6: {AT}[0].group: has no effect: all processes that read a queue of SQS share its messages"),
        ("kafka://127.0.0.1:9092", "sqs://sqs.eu-central-1.amazonaws.com\n      cancels: stop",
         f"6: {AT}[0].cancels: needs another broker: a queue of SQS gives each message to one process only"),
        ("broker: kafka://127.0.0.1:9092",
         "broker: {url: sqs://sqs.eu-central-1.amazonaws.com, tls: {server_name: a}}",
         f"5: {AT}[0].broker.tls.server_name: has no effect: the library of SQS checks the certificate for the host of "
         "the URL"),
        ("kafka://10.0.0.8:9092,10.0.0.9:9092", "sqs://10.0.0.8:9324",
         "24: pools[2].endpoints[0].url: expected http://HOST:PORT, https://HOST:PORT or unix:/PATH, without a user, "
         "a query or a fragment"),
        ("kafka://127.0.0.1:9092", "mqtt://127.0.0.1\n      start: latest",
         f"6: {AT}[0].start: has no effect: a new session of MQTT is empty"),
        ("kafka://127.0.0.1:9092", "mqtt://127.0.0.1\n      deliveries: 3",
         f"6: {AT}[0].deliveries: has no effect: MQTT counts no deliveries"),
        ("kafka://127.0.0.1:9092", "amqp://127.0.0.1/v%2F1\n      start: latest",
         f"6: {AT}[0].start: has no effect: a new queue of RabbitMQ is empty"),
    ],
)  # fmt: skip
def test_a_mistake_has_its_line(complaints: Complaints, old: str, new: str, problem: str | None) -> None:
    text = FILE.replace(old, new, 1)
    assert text != FILE
    if problem is not None:
        assert complaints(text) == [problem]
    else:
        assert len(complaints(text)) == 1

"""Real brokers: one of each kind for a file of tests, and in it new topics for each test."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer

from adapters.brokers import kafka
from tests.support.brokers.broker import RealBroker
from tests.support.brokers.kafka import KafkaBroker
from tests.support.brokers.mqtt import MqttBroker
from tests.support.brokers.nats import NatsBroker
from tests.support.brokers.rabbitmq import RabbitBroker, RabbitServer, rabbitmq_server
from tests.support.brokers.redis import RedisBroker
from tests.support.brokers.sqs import SqsBroker, sqs_server

KINDS: dict[str, type[RealBroker]] = {
    "kafka": KafkaBroker,
    "mqtt": MqttBroker,
    "nats": NatsBroker,
    "rabbitmq": RabbitBroker,
    "redis": RedisBroker,
    "sqs": SqsBroker,
}


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitServer]:
    """A server that the tests of a file share: each has a virtual host of its own."""
    with rabbitmq_server(tmp_path_factory.mktemp("rabbitmq")) as server:
        yield server


@pytest.fixture(scope="module")
def sqs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a server that the tests of a file share."""
    with sqs_server(tmp_path_factory.mktemp("sqs")) as port:
        yield port


@pytest.fixture(autouse=True)
def short_kafka_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker of the tests lets a new member wait for half a session, and longer after a former member."""
    consumer = partial(AIOKafkaConsumer, session_timeout_ms=3000, heartbeat_interval_ms=500)
    monkeypatch.setattr(kafka, "AIOKafkaConsumer", consumer)


@pytest_asyncio.fixture(params=KINDS)
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RealBroker]:
    """A running broker with the topics of `binding`."""
    kind = KINDS[request.param]
    made: RealBroker
    if kind is RabbitBroker:
        made = RabbitBroker(tmp_path, request.getfixturevalue("rabbitmq"))
    elif kind is SqsBroker:
        made = SqsBroker(tmp_path, request.getfixturevalue("sqs"))
    else:
        made = kind(tmp_path)
    try:
        await made.start()
        await made.topics("requests", "answers", "dead")
        yield made
    finally:
        await asyncio.shield(made.close())

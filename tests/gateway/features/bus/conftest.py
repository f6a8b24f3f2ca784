"""Real brokers: one of each kind for a file of tests, and in it new topics for each test.

A broker's module is imported with its broker: plain tests need none.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer

from adapters.brokers import kafka

if TYPE_CHECKING:
    from tests.support.brokers.broker import RealBroker
    from tests.support.brokers.rabbitmq import RabbitServer

KINDS = {
    "kafka": "KafkaBroker",
    "mqtt": "MqttBroker",
    "nats": "NatsBroker",
    "rabbitmq": "RabbitBroker",
    "redis": "RedisBroker",
    "sqs": "SqsBroker",
}
SHARED = ("rabbitmq", "sqs")
"""Kinds whose server is that of a fixture."""


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator["RabbitServer"]:
    """A server that the tests of a file share: each has a virtual host of its own."""
    from tests.support.brokers.rabbitmq import rabbitmq_server

    with rabbitmq_server(tmp_path_factory.mktemp("rabbitmq")) as server:
        yield server


@pytest.fixture(scope="module")
def sqs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a server that the tests of a file share."""
    from tests.support.brokers.sqs import sqs_server

    with sqs_server(tmp_path_factory.mktemp("sqs")) as port:
        yield port


@pytest.fixture(autouse=True)
def short_kafka_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker of the tests lets a new member wait for half a session, and longer after a former member."""
    consumer = partial(AIOKafkaConsumer, session_timeout_ms=3000, heartbeat_interval_ms=500)
    monkeypatch.setattr(kafka, "AIOKafkaConsumer", consumer)


@pytest_asyncio.fixture(params=KINDS)
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator["RealBroker"]:
    """A running broker with the topics of `binding`."""
    name: str = request.param
    kind: Any = getattr(import_module(f"tests.support.brokers.{name}"), KINDS[name])
    made: RealBroker = kind(tmp_path, request.getfixturevalue(name)) if name in SHARED else kind(tmp_path)
    try:
        await made.start()
        await made.topics("requests", "answers", "dead")
        yield made
    finally:
        await asyncio.shield(made.close())

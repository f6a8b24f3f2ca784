"""A message that a real broker can never take, at each place of a batch: the others are published once."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import NoneType
from typing import Any

import pytest
import pytest_asyncio
from nats import connect

from adapters.brokers import nats
from adapters.brokers.base import BrokerClient, BrokerMessage, BrokerUnavailable, TopicRefused, make
from adapters.brokers.redis import RedisStreams
from config.schema.bus import BrokerConfig
from tests.support.brokers.broker import RealBroker
from tests.support.brokers.mqtt import MqttBroker
from tests.support.brokers.nats import NatsBroker
from tests.support.brokers.rabbitmq import RabbitBroker
from tests.support.brokers.redis import RedisBroker
from tests.support.brokers.rig import binding, bus_rig

BODY = b"poison"
LOGIN = {"username": "user", "password": "word"}


class DenyingNats(NatsBroker):
    """A server whose user may not publish to one subject."""

    def command(self) -> list[str]:
        settings = self.folder / "nats.conf"
        user = "user: user, password: word, permissions: {publish: {deny: [answers.denied]}}"
        settings.write_text(f"authorization: {{users: [{{{user}}}]}}\n")
        return [*super().command(), "-c", str(settings)]

    async def connect(self) -> None:
        self._client = await connect(self.url, user=LOGIN["username"], password=LOGIN["password"])
        self._stream = self._client.jetstream()


def denying_mqtt(folder: Path) -> MqttBroker:
    """A server whose clients may not publish to one topic."""
    broker, rights = MqttBroker(folder), folder / "rights"
    rights.write_text("topic readwrite #\ntopic deny answers.denied\n")
    rights.chmod(0o600)
    broker.settings = (f"acl_file {rights}",)
    return broker


REFUSING: dict[str, Callable[[Path], tuple[RealBroker, dict[str, str]]]] = {
    "redis": lambda folder: (RedisBroker(folder), {}),
    "nats": lambda folder: (DenyingNats(folder), LOGIN),
    "mqtt": lambda folder: (denying_mqtt(folder), {}),
}
HEADERS = {
    "surrogate": "\ud800",
    "nul": "a\0b",
    "control": "a\x01b",
    "line": "a\r\nb",
    "no character": "a\uffffb",
    "long": "x" * 70_000,
}
TOPICS = {
    "space": "answers x",
    "empty part": "answers..x",
    "wildcard": "answers.*",
    "wildcard of MQTT": "answers/#",
    "long": "answers." + "x" * 5000,
    "nul": "answers.a\0b",
    "line": "answers\r\nPING",
    "surrogate": "answers.\ud800",
    "absent": "nobody.has.this",
}
POISON = {
    **{f"header: {name}": BrokerMessage("answers", BODY, {"ce_x": value}) for name, value in HEADERS.items()},
    **{f"topic: {name}": BrokerMessage(topic, BODY, {}) for name, topic in TOPICS.items()},
}
REASONS = {"kafka": ["reply_topic_refused"], "nats": ["reply_topic_refused"], "redis": []}
"""Of a dead letter for a topic with a space: Redis has any stream, and others have no reader."""
SIZE = 3


@pytest_asyncio.fixture
async def client(broker: RealBroker) -> AsyncIterator[BrokerClient]:
    made = make(BrokerConfig.model_validate({"url": broker.url}))
    await made.open()
    yield made
    await made.aclose()


async def test_a_poison_message_is_the_only_one_that_is_not_published(broker: RealBroker, client: BrokerClient) -> None:
    good: list[bytes] = []
    for name, poison in POISON.items():
        for place in range(SIZE):
            bodies = [f"{name} {place} {at}".encode() for at in range(SIZE - 1)]
            batch = [BrokerMessage("answers", body, {"ce_id": "a"}) for body in bodies]
            ends = await client.publish([*batch[:place], poison, *batch[place:]])
            end = ends.pop(place)
            assert ends == [None] * (SIZE - 1), name
            assert not isinstance(end, BrokerUnavailable), (name, end)
            good += bodies
    await client.publish([BrokerMessage("answers", b"last", {})])
    seen = [each.body for each in await broker.read("answers", len(good) + 1) if each.body != BODY]
    assert sorted(seen) == sorted([*good, b"last"])


async def test_a_replyto_that_the_broker_refuses_is_a_dead_letter(broker: RealBroker, tmp_path: Path) -> None:
    bindings = [binding(broker, reply={"topic": "answers", "allowed": ["answers.*"]})]
    async with bus_rig(broker, tmp_path, bindings=bindings) as bus:
        ids = [str(number) for number in range(10)]
        await bus.send(*ids[:5])
        await bus.send("odd", replyto="answers.a b")
        await bus.send(*ids[5:])
        assert sorted(await bus.answers(10)) == ids
        await broker.settled("requests")
        await bus.until(lambda: bus.consumer.held == 0)
        assert bus.consumer.available
    assert len(await broker.messages("answers")) == 10
    reasons = [each.headers["headrace-dead-reason"] for each in await broker.messages("dead")]
    assert reasons == REASONS.get(broker.name, ["answer_unroutable"])


@pytest.mark.parametrize("kind", REFUSING)
async def test_a_topic_that_the_broker_refuses_ends_its_own_message_only(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A right that is missing, or a key of another type."""
    broker, login = REFUSING[kind](tmp_path)
    monkeypatch.setattr(nats, "ANSWERS_WITHIN", 0.5)  # NATS does not answer a forbidden publication
    try:
        await broker.start()
        await broker.topics("answers")
        made = make(BrokerConfig.model_validate({"url": broker.url, **login}))
        await made.open()
        if isinstance(made, RedisStreams):
            await made.run("SET", "answers.denied", "x")
        good, bad = BrokerMessage("answers", b"good", {}), BrokerMessage("answers.denied", BODY, {})
        for place in range(SIZE):
            batch = [good] * (SIZE - 1)
            ends = await made.publish([*batch[:place], bad, *batch[place:]])
            assert [type(end) for end in ends] == [TopicRefused if at == place else NoneType for at in range(SIZE)], (
                ends
            )
        await made.aclose()
        assert len(await broker.read("answers", SIZE * (SIZE - 1))) == SIZE * (SIZE - 1)
    finally:
        await broker.close()


async def test_a_full_queue_of_rabbitmq_ends_its_own_message_only(tmp_path: Path) -> None:
    broker = RabbitBroker(tmp_path)
    try:
        await broker.start()
        await broker.topics("answers")
        full: Any = {"x-max-length": 1, "x-overflow": "reject-publish"}
        await broker._sender.queue_declare("full", durable=True, arguments=full)
        made = make(BrokerConfig.model_validate({"url": broker.url}))
        batch = [BrokerMessage(topic, b"a", {}) for topic in ("answers", "full", "full", "answers")]
        ends = await made.publish(batch)
        await made.aclose()
        assert [type(end) for end in ends] == [NoneType, NoneType, BrokerUnavailable, NoneType]
        assert len(await broker.messages("answers")) == 2
    finally:
        await broker.close()

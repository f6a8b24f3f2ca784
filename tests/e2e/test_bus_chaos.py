"""Gateways and brokers are killed at random while messages arrive: every message is answered, and almost none twice."""

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiokafka.errors import KafkaError
from aiormq import AMQPError
from nats.errors import Error as NatsError
from redis.exceptions import RedisError

from adapters.http1.message import Response
from gateway.features.bus.consumer import ENDING
from tests.support.brokers.broker import RealBroker, cloud_event
from tests.support.brokers.fast_sqs import FastSqsBroker
from tests.support.brokers.kafka import KafkaBroker
from tests.support.brokers.mqtt import MqttBroker
from tests.support.brokers.nats import NatsBroker
from tests.support.brokers.rabbitmq import RabbitBroker
from tests.support.brokers.redis import RedisBroker
from tests.support.brokers.rig import binding, chat_body
from tests.support.brokers.sqs import SqsBroker
from tests.support.processes import GatewayProcess, gateway
from tests.support.upstreams import Upstream, upstream, whole

pytestmark = [pytest.mark.servers, pytest.mark.timeout(7200)]
KINDS: Mapping[str, type[RealBroker]] = {
    "kafka": KafkaBroker,
    "mqtt": MqttBroker,
    "nats": NatsBroker,
    "rabbitmq": RabbitBroker,
    "redis": RedisBroker,
    "sqs": SqsBroker,
}
CONCURRENCY = 16
GATEWAYS = 2


class Member:
    """A gateway that is started again after each kill."""

    def __init__(self, folder: Path, configuration: dict[str, Any]) -> None:
        folder.mkdir()
        self._folder = folder
        self._configuration = configuration
        self._exits = AsyncExitStack()
        self._process: GatewayProcess

    async def start(self) -> None:
        self._exits = AsyncExitStack()
        self._process = await self._exits.enter_async_context(gateway(self._folder, self._configuration))

    async def kill(self) -> None:
        await self._process.stop(signal.SIGKILL)
        await self._exits.aclose()
        await self.start()

    async def close(self) -> None:
        await self._exits.aclose()


def settings(broker: RealBroker, up: Upstream, folder: Path) -> dict[str, Any]:
    """Gateways that share a state database."""
    bus = binding(broker, concurrency=CONCURRENCY, takeover="2s")
    if broker.name not in ("kafka", "mqtt"):
        bus["deliveries"] = 1000
    return {
        "listen": {"http": "127.0.0.1:0", "admin": "127.0.0.1:0", "bus": [bus]},
        "state": {"database": f"sqlite:///{folder}/shared.db"},
        "pools": [{"name": "main", "endpoints": [up.url]}],
        "models": [{"name": "chat", "routes": [{"to": "main"}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }


async def interrupt(broker: RealBroker, dice: Random) -> None:
    """Kill the broker and start it again. Those of Kafka and SQS in the tests have no disk: they are frozen instead."""
    if broker.name in ("kafka", "sqs"):
        broker.signal(signal.SIGSTOP)
        await asyncio.sleep(dice.uniform(0.5, 3.0))
        broker.signal(signal.SIGCONT)
        return
    await broker.disconnect()
    broker.kill()
    await asyncio.sleep(dice.uniform(0.0, 1.0))
    await broker.start()


async def produce(broker: RealBroker, ids: list[str], running: asyncio.Event) -> None:
    """Send each message until the broker has it: some arrive twice."""
    for id_ in ids:
        while True:
            await running.wait()
            try:
                async with asyncio.timeout(30):
                    await broker.send("requests", chat_body(user=id_), cloud_event(id_))
                break
            except (KafkaError, NatsError, RedisError, AMQPError, RuntimeError, OSError, TimeoutError):
                await asyncio.sleep(0.1)


@asynccontextmanager
async def members(folder: Path, configuration: dict[str, Any]) -> AsyncIterator[list[Member]]:
    made = [Member(folder / f"gateway{number}", configuration) for number in range(GATEWAYS)]
    try:
        for member in made:
            await member.start()
        yield made
    finally:
        for member in made:
            await member.close()


async def run_with_kills(broker: RealBroker, folder: Path, seed: int, messages: int, kills: int) -> Counter[str]:
    """The number of answers by id."""
    dice, ids, running = Random(seed), [f"id-{number}" for number in range(messages)], asyncio.Event()
    running.set()
    async with upstream() as up:

        async def answer(body: dict[str, Any]) -> Response:
            await asyncio.sleep(dice.uniform(0.0, 0.02))
            return whole(body["user"])

        up.behaviour = answer
        async with members(folder, settings(broker, up, folder)) as gateways:
            producing = asyncio.create_task(produce(broker, ids, running))
            for _ in range(kills):
                await asyncio.sleep(dice.uniform(0.2, 2.0))
                if dice.random() < 0.3:
                    running.clear()
                    await interrupt(broker, dice)
                    running.set()
                else:
                    await dice.choice(gateways).kill()
            await producing
            await broker.settled("requests")
    answers = await broker.messages("answers")
    for each in answers:
        text = json.loads(each.body)["choices"][0]["message"]["content"]
        assert text == each.headers["ce_correlationid"]
    assert await broker.messages("dead") == []
    return Counter(each.headers["ce_correlationid"] for each in answers)


@pytest.mark.parametrize("kind", KINDS)
async def test_no_message_is_lost_when_gateways_and_the_broker_are_killed(kind: str, tmp_path: Path) -> None:
    # The SQS of the tests needs a tenth of a second of CPU time for a message: 200 arrive during all of the kills.
    await check(KINDS[kind](tmp_path), messages=200 if kind == "sqs" else 600, kills=4)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
async def test_no_message_of_many_is_lost(kind: str, tmp_path: Path) -> None:
    kinds = {**KINDS, "sqs": FastSqsBroker}  # the other server of SQS settles some 15 messages a second
    await check(kinds[kind](tmp_path), messages=100_000, kills=100)


async def check(broker: RealBroker, messages: int, kills: int) -> None:
    try:
        await broker.start()
        await broker.topics("requests", "answers", "dead")
        counts = await run_with_kills(broker, broker.folder, seed=1, messages=messages, kills=kills)
    finally:
        await broker.close()
    assert len(counts) == messages
    # A second answer needs a kill between the storage of the first one by the broker and its entry in the table.
    assert counts.total() - messages <= kills * CONCURRENCY * (1 + ENDING)
    assert max(counts.values()) <= 1 + kills

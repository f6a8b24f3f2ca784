"""SQS with the server of moto: FIFO queues, large messages, hidden messages, and queues that do not exist."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from adapters.brokers.base import (
    BrokerMessage,
    BrokerUnavailable,
    MessageRejected,
    MessageUnroutable,
    SubscriptionPlan,
)
from adapters.brokers.sqs.client import SqsClient, make
from config.schema.bus import BrokerConfig
from tests.support.brokers.sqs import SqsBroker, sqs_server

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def sqs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with sqs_server(tmp_path_factory.mktemp("sqs")) as port:
        yield port


@pytest_asyncio.fixture
async def broker(tmp_path: Path, sqs: int) -> AsyncIterator[SqsBroker]:
    made = SqsBroker(tmp_path, sqs)
    await made.start()
    try:
        await made.topics("requests", "answers", "orders.fifo")
        yield made
    finally:
        await made.close()


@pytest_asyncio.fixture
async def client(broker: SqsBroker) -> AsyncIterator[SqsClient]:
    made = client_of(broker)
    try:
        yield made
    finally:
        await made.aclose()


def client_of(broker: SqsBroker, **fields: str) -> SqsClient:
    keys = {"username": "key", "password": "secret-word", **fields}
    return make(BrokerConfig.model_validate({"url": broker.url, **keys}))


async def test_messages_of_queues(client: SqsClient) -> None:
    many = {f"ce_name{number}": str(number) for number in range(20)}
    fifo = [BrokerMessage("orders.fifo", b"\xff", many, key=b"k", id=id_) for id_ in ("1", "1", "2")]
    large = BrokerMessage("requests", b"x" * 2_000_000, {})
    ends = await client.publish([*fifo, large, BrokerMessage("requests", b"small", {})])
    assert [type(end) for end in ends] == [type(None)] * 3 + [MessageRejected, type(None)]
    subscription = await client.subscribe(SubscriptionPlan("orders.fifo", "headrace"))
    first, *others = await subscription.receive(10, 1.0)
    assert (first.body, first.headers) == (b"\xff", {**many, "ce_partitionkey": "k"})
    assert len(others) == 1  # the copy was dropped
    assert others[0].key == first.key != b""
    await subscription.release(others)
    await subscription.settle([first])
    (again,) = await subscription.receive(10, 1.0)
    assert (again.place, again.count) == (others[0].place, 2)
    await subscription.renew([again])
    assert await subscription.lag() == 1
    await subscription.settle([again])
    assert await subscription.lag() == 0


async def test_more_messages_than_one_call_has_are_published_and_settled(client: SqsClient) -> None:
    bodies = [str(number).encode() for number in range(23)]
    assert await client.publish([BrokerMessage("requests", body, {}) for body in bodies]) == [None] * 23
    subscription = await client.subscribe(SubscriptionPlan("requests", "headrace"))
    received = [each for _ in range(3) for each in await subscription.receive(64, 1.0)]
    assert [each.body for each in received] == bodies
    await subscription.settle(received)
    assert await subscription.lag() == 0


async def test_a_message_in_work_stays_hidden_while_it_is_renewed(client: SqsClient) -> None:
    await client.publish([BrokerMessage("requests", b"slow", {})])
    brief, long = [
        await client.subscribe(SubscriptionPlan("requests", "headrace", ack_wait=seconds)) for seconds in (1.0, 3600.0)
    ]
    held = await brief.receive(10, 1.0)
    await long.renew(held)
    assert await brief.receive(10, 2.0) == []  # a poll that is longer than the first hold
    await long.release(held)
    (again,) = await brief.receive(10, 1.0)
    assert (again.place, again.count) == (held[0].place, 2)


async def test_messages_of_a_cancelled_call_are_visible_at_once(client: SqsClient) -> None:
    plan = SubscriptionPlan("requests", "headrace", ack_wait=3600.0)
    leaving, other = await client.subscribe(plan), await client.subscribe(plan)
    receiving = asyncio.create_task(leaving.receive(10, 20.0))
    while leaving._poll is None:
        await asyncio.sleep(0)
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)
    await client.publish([BrokerMessage("requests", b"a", {})])
    await leaving.aclose()
    (again,) = await other.receive(10, 1.0)
    assert (again.body, again.count) == (b"a", 2)


async def test_queues_that_do_not_exist(client: SqsClient) -> None:
    with pytest.raises(BrokerUnavailable, match=r"the queue missing: .*NonExistentQueue") as raised:
        await client.subscribe(SubscriptionPlan("missing", "headrace"))
    assert "secret-word" not in str(raised.value)
    with pytest.raises(BrokerUnavailable, match="the queue dead"):
        await client.subscribe(SubscriptionPlan("requests", "headrace", retained=("answers", "dead")))
    with pytest.raises(BrokerUnavailable, match="the queue dead"):
        await client.publish([BrokerMessage("dead", b"", {})])
    chosen, answer = await client.publish([BrokerMessage("chosen", b"a", {}), BrokerMessage("answers", b"a", {})])
    assert isinstance(chosen, MessageUnroutable)
    assert answer is None


async def test_a_server_that_does_not_answer_as_sqs(broker: SqsBroker) -> None:
    client = client_of(broker, username="key/with/slashes")  # moto takes the call for another service
    with pytest.raises(BrokerUnavailable, match="the server is not one of SQS"):
        await client.subscribe(SubscriptionPlan("requests", "headrace"))
    await client.aclose()


async def test_a_server_that_is_not_there() -> None:
    client = make(BrokerConfig.model_validate({"url": "sqs://127.0.0.1:1", "username": "a", "password": "secret-word"}))
    with pytest.raises(BrokerUnavailable, match="EndpointConnectionError") as raised:
        await client.publish([BrokerMessage("requests", b"", {})])
    assert "secret-word" not in str(raised.value)
    await client.aclose()

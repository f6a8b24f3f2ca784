"""The client of RabbitMQ with a real server: nothing is acknowledged, discarded or sent ahead in silence."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiormq.base import FutureStore

from adapters.brokers.base import (
    BrokerDelivery,
    BrokerMessage,
    BrokerSubscription,
    BrokerUnavailable,
    MessageRejected,
    MessageUnroutable,
    SubscriptionPlan,
)
from adapters.brokers.rabbitmq import connection
from adapters.brokers.rabbitmq.client import RabbitClient, make
from adapters.errors import Unavailable
from adapters.types import Deadline
from adapters.upstreams.bus.client import BusClient
from config.schema.bus import BrokerConfig
from config.schema.protocols.bus import BusProtocol
from tests.adapters.brokers.rabbitmq.conftest import LARGEST, TlsServer
from tests.support.brokers.rabbitmq import RabbitBroker

PLAN = SubscriptionPlan("work", "headrace", ahead=8, retained=("answers", "dead"))


@asynccontextmanager
async def client(broker: RabbitBroker, **fields: Any) -> AsyncIterator[RabbitClient]:
    made = make(BrokerConfig(**{"url": broker.url, **fields}))
    try:
        await made.open()
        yield made
    finally:
        await made.aclose()


async def test_a_call_that_the_library_rejects_without_a_reason_is_a_loss_of_the_channel() -> None:
    calls = FutureStore(asyncio.get_running_loop())
    call = calls.create_future()
    await calls.reject_all(None)  # as at the end of a connection
    with pytest.raises(BrokerUnavailable, match="RabbitMQ: Exception"):
        async with connection.answering():
            await call


async def test_a_mistake_in_a_call_is_no_loss_of_the_channel() -> None:
    with pytest.raises(KeyError):
        async with connection.answering():
            raise KeyError("a mistake")


async def received(subscription: BrokerSubscription, count: int, most: int = 8) -> list[BrokerDelivery]:
    """The next messages; a loss of the connection is repaired."""
    made = list[BrokerDelivery]()
    async with asyncio.timeout(300):
        while len(made) < count:
            try:
                made += await subscription.receive(min(most, count - len(made)), 0.2)
            except BrokerUnavailable:
                await asyncio.sleep(0.05)
    return made


async def lost(receive: Callable[[], Awaitable[object]]) -> None:
    """Receive until the loss is reported."""
    async with asyncio.timeout(300):
        while True:
            try:
                await receive()
            except BrokerUnavailable:
                return


async def publish(broker: RabbitBroker, count: int, topic: str = "work") -> None:
    for number in range(count):
        await broker.send(topic, str(number).encode(), {"n": str(number)}, message_id=f"m{number}")


def bodies(deliveries: Sequence[BrokerDelivery]) -> list[int]:
    return sorted(int(delivery.body) for delivery in deliveries)


async def waiting(broker: RabbitBroker, queue: str, count: int) -> None:
    """Wait until so many messages of a queue are with no member."""
    query = f"ra:leader_query({{'{broker.host}_{queue}', node()}}, fun rabbit_fifo:query_messages_ready/1)"
    async with asyncio.timeout(300):
        while int(await broker.server.evaluate(f"{{ok, {{_, N}}, _}} = {query}, N")) != count:
            await asyncio.sleep(0.05)


async def close_connections(broker: RabbitBroker) -> None:
    """The server closes all connections, as an operator or a failing node does."""
    close = 'rabbit_networking:close_connections([P || P <- rabbit_networking:connections()], <<"closed by a test">>)'
    await broker.disconnect()
    await broker.server.evaluate(close)
    await broker.connect()


@pytest.mark.servers
async def test_a_missing_queue_is_a_quorum_queue_of_the_group(broker: RabbitBroker) -> None:
    async with client(broker) as made:
        first = await made.subscribe(PLAN)
        second = await made.subscribe(PLAN._replace(group="audit"))
        assert await made.publish([BrokerMessage("work", b"0", {})]) == [None]
        assert bodies(await received(first, 1)) == [0]
        assert bodies(await received(second, 1)) == [0]
        assert (await broker.unsettled("work"), await broker.unsettled("work", "audit")) == (1, 1)
        assert (await first.lag(), await second.lag()) == (1, 1)


@pytest.mark.servers
async def test_a_settled_message_is_gone_and_a_released_one_returns_counted(broker: RabbitBroker) -> None:
    async with client(broker) as made:
        subscription = await made.subscribe(PLAN)
        await publish(broker, 3)
        deliveries = await received(subscription, 3)
        assert [delivery.count for delivery in deliveries] == [1, 1, 1]
        await subscription.settle(deliveries[:1])
        await subscription.release(deliveries[1:])
        again = await received(subscription, 2)
        assert [delivery.count for delivery in again] == [2, 2]
        assert {delivery.place for delivery in again} == {delivery.place for delivery in deliveries[1:]}
        await subscription.settle(again)
        await broker.settled("work")


@pytest.mark.servers
async def test_a_message_that_no_queue_takes_is_reported(broker: RabbitBroker) -> None:
    async with client(broker) as made:
        await broker.topics("named")
        ends = await made.publish([BrokerMessage(topic, b"0", {}) for topic in ("nowhere", "named")])
        assert isinstance(ends[0], MessageUnroutable)
        assert ends[1] is None
        assert len(await broker.messages("named")) == 1


@pytest.mark.servers
async def test_retained_topics_have_queues(broker: RabbitBroker) -> None:
    async with client(broker) as made:
        await made.subscribe(PLAN)
        assert await made.publish([BrokerMessage("dead", b"0", {}), BrokerMessage("answers", b"1", {})]) == [None, None]
        assert await made.publish([BrokerMessage("dead", b"2", {})]) == [None]
        assert [each.body for each in await broker.messages("dead")] == [b"0", b"2"]
        assert [each.body for each in await broker.messages("answers")] == [b"1"]


@pytest.mark.servers
async def test_a_message_that_is_too_large_is_rejected_alone(broker: RabbitBroker) -> None:
    async with client(broker) as made:
        await broker.topics("answers")
        sizes = (10, LARGEST + 1, 20, LARGEST + 2, 30)
        ends = await made.publish([BrokerMessage("answers", b"x" * size, {}, id=str(size)) for size in sizes])
        assert [isinstance(end, MessageRejected) for end in ends] == [False, True, False, True, False]
        assert {len(each.body) for each in await broker.messages("answers")} == {10, 20, 30}


@pytest.mark.servers
async def test_publications_of_one_id_are_reported_each(broker: RabbitBroker) -> None:
    async with client(broker) as made:
        ends = await made.publish([BrokerMessage("nowhere", b"0", {}, id="same")] * 20)
        assert all(isinstance(end, MessageUnroutable) for end in ends)


@pytest.mark.servers
async def test_the_broker_sends_no_more_than_there_are_free_places(broker: RabbitBroker) -> None:
    async with client(broker) as one, client(broker) as two:
        first, second = await one.subscribe(PLAN), await two.subscribe(PLAN)
        await publish(broker, 8)
        mine = await received(first, 2, most=2)
        await waiting(broker, "work", 6)
        others = await received(second, 6)
        assert bodies(mine + others) == list(range(8))


@pytest.mark.servers
async def test_a_member_without_places_stops_reading(broker: RabbitBroker) -> None:
    async with client(broker) as one, client(broker) as two:
        first, second = await one.subscribe(PLAN), await two.subscribe(PLAN)
        assert await first.receive(8, 0.1) == []  # from now on the broker may send 8 messages
        assert await broker.consumers("work") == 1
        async with asyncio.timeout(300):
            while await broker.consumers("work"):
                assert await first.receive(0, 0.1) == []
        await publish(broker, 8)
        assert bodies(await received(second, 8)) == list(range(8))


@pytest.mark.servers
async def test_a_tag_of_a_lost_channel_settles_nothing(broker: RabbitBroker) -> None:
    async with client(broker) as made:
        subscription = await made.subscribe(PLAN)
        await publish(broker, 6)
        old = await received(subscription, 3, most=3)
        await close_connections(broker)
        new = await received(subscription, 6)
        assert bodies(new) == list(range(6))
        assert {delivery.count for delivery in new} == {1, 2}
        with pytest.raises(BrokerUnavailable):
            await subscription.settle(old)
        assert await broker.unsettled("work") == 6
        await subscription.settle(new)
        await broker.settled("work")


@pytest.mark.servers
async def test_a_message_that_is_in_work_for_too_long_returns(broker: RabbitBroker) -> None:
    """The broker closes a channel whose message is not acknowledged within `consumer_timeout`."""
    change = (
        "[application:set_env(rabbit, N, V) || {{N, V}} <- [{{consumer_timeout, {}}}, {{channel_tick_interval, {}}}]]"
    )
    await broker.server.evaluate(change.format(500, 100))
    try:
        async with client(broker) as made:
            subscription = await made.subscribe(PLAN)
            await publish(broker, 1)
            old = await received(subscription, 1)
            await lost(lambda: subscription.receive(0, 0.1))
            await broker.server.evaluate(change.format(1_800_000, 60_000))
            (new,) = await received(subscription, 1)
            assert (old[0].count, new.count, new.place) == (1, 2, old[0].place)
            await subscription.settle([new])
            await broker.settled("work")
    finally:
        await broker.server.evaluate(change.format(1_800_000, 60_000))


@pytest.mark.servers
async def test_a_publication_over_a_lost_connection_is_repeated_by_the_caller(broker: RabbitBroker) -> None:
    async with client(broker) as made:
        await broker.topics("answers")
        assert await made.publish([BrokerMessage("answers", b"0", {})]) == [None]
        await close_connections(broker)
        async with asyncio.timeout(300):
            while True:
                try:
                    assert await made.publish([BrokerMessage("answers", b"1", {})]) == [None]
                    break
                except BrokerUnavailable:
                    await asyncio.sleep(0.05)
        assert {each.body for each in await broker.messages("answers")} == {b"0", b"1"}


@pytest.mark.servers
async def test_a_broker_without_memory_has_each_message_twice_at_most(
    broker: RabbitBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.topics("answers")
    await broker.server.evaluate("rabbit_alarm:set_alarm({{resource_limit, memory, node()}, []})")
    async with client(broker) as made:
        monkeypatch.setattr(connection, "ANSWERS_WITHIN", 0.5)
        try:
            for _ in range(4):
                with pytest.raises(BrokerUnavailable):
                    await made.publish([BrokerMessage("answers", b"0", {})])
        finally:
            monkeypatch.undo()
            await broker.server.evaluate("rabbit_alarm:clear_alarm({resource_limit, memory, node()})")
        assert await made.publish([BrokerMessage("answers", b"0", {})]) == [None]
    assert 1 <= len(await broker.messages("answers")) <= 2


@pytest.mark.servers
async def test_a_deleted_queue_is_created_again(broker: RabbitBroker) -> None:
    async with client(broker) as made:
        subscription = await made.subscribe(PLAN)
        assert await subscription.receive(1, 0.1) == []
        delete = f'{{ok, Q}} = rabbit_amqqueue:lookup({{resource, <<"{broker.host}">>, queue, <<"work">>}})'
        await broker.server.evaluate(f'{delete}, rabbit_amqqueue:delete(Q, false, false, <<"test">>), ok')
        await lost(lambda: subscription.receive(1, 0.1))
        assert await subscription.receive(1, 0.1) == []
        await publish(broker, 1)
        assert bodies(await received(subscription, 1)) == [0]


@pytest.mark.servers
async def test_each_reader_of_an_inbox_has_all_messages(broker: RabbitBroker) -> None:
    async with client(broker) as made:
        inboxes = [await made.listen("answers") for _ in range(2)]
        assert await made.publish([BrokerMessage("answers", b"0", {"ce_id": "1"})]) == [None]
        for inbox in inboxes:
            (delivery,) = await inbox.receive(300)
            assert (delivery.body, delivery.headers) == (b"0", {"ce_id": "1"})
        await inboxes[0].aclose()
        await close_connections(broker)
        await lost(lambda: inboxes[1].receive(0.1))


@pytest.mark.servers
async def test_a_request_without_a_worker_fails_at_once(broker: RabbitBroker) -> None:
    section = BusProtocol(name="bus", topic="work", reply="answers.one")
    bus = BusClient(make(BrokerConfig(url=broker.url)), section, 8, 300.0)
    try:
        with pytest.raises(Unavailable):
            await bus.request(
                b"POST",
                b"/v1/chat/completions",
                b"",
                b"{}",
                Deadline(asyncio.get_running_loop().time() + 300.0, 300.0, 300.0),
            )
    finally:
        await bus.aclose()


@pytest.mark.servers
async def test_the_user_and_tls_reach_the_server(broker: RabbitBroker, tls_server: TlsServer) -> None:
    await broker.server.evaluate('rabbit_auth_backend_internal:add_user(<<"me">>, <<"p@ss:/word">>, <<"test">>)')
    grant, right = "rabbit_auth_backend_internal:set_permissions", '<<".*">>'
    await broker.server.evaluate(f'{grant}(<<"me">>, <<"{broker.host}">>, {right}, {right}, {right}, <<"test">>)')
    url = f"amqp://127.0.0.1:{tls_server.port}/{broker.host}"
    tls = {"ca": str(tls_server.certificate)}
    async with client(broker, url=url, username="me", password="p@ss:/word", tls=tls) as made:
        await made.subscribe(PLAN)
        assert await made.publish([BrokerMessage("work", b"0", {})]) == [None]
    for fields in ({"password": "wrong", "tls": tls}, {"password": "p@ss:/word", "tls": {}}):
        with pytest.raises(BrokerUnavailable):
            await make(BrokerConfig(**{"url": url, "username": "me", **fields})).open()


@pytest.mark.servers
async def test_another_server_of_the_cluster_is_taken(broker: RabbitBroker, unused_tcp_port: int) -> None:
    url = f"amqp://127.0.0.1:{unused_tcp_port},127.0.0.1:{broker.port}/{broker.host}"
    async with client(broker, url=url) as made:
        await made.subscribe(PLAN)


async def test_no_server_is_reported(unused_tcp_port: int, tmp_path: Path) -> None:
    made = make(BrokerConfig(url=f"amqp://127.0.0.1:{unused_tcp_port}"))
    with pytest.raises(BrokerUnavailable, match=r"^RabbitMQ: "):
        await made.open()
    await made.aclose()

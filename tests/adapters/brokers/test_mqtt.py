"""MQTT 5 with a real mosquitto: no message is lost between sessions, and properties are headers."""

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import uvloop
from paho.mqtt.client import MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from adapters.brokers.base import (
    BrokerDelivery,
    BrokerMessage,
    BrokerSubscription,
    BrokerUnavailable,
    MessageRejected,
    MessageUnroutable,
    SubscriptionPlan,
)
from adapters.brokers.mqtt import connection as connections
from adapters.brokers.mqtt.client import MqttClient, make
from adapters.brokers.mqtt.connection import Connection, ConnectionPlan
from adapters.brokers.mqtt.member import LEFT, MOST_CONTINUED, MqttMember
from adapters.brokers.mqtt.session import MqttSession, properties_of
from adapters.wire.cloudevents import format_time, parse
from config.schema.bus import BrokerConfig
from tests.support.brokers.broker import cloud_event
from tests.support.brokers.mqtt import MqttBroker

SESSION_TAKEN_OVER = 0x8E
CONNACK = bytes.fromhex("2003000000")
MESSAGE = bytes.fromhex("32070001740001006d")  # at QoS 1, with the packet identifier 1
RESET_AT_CLOSE = struct.pack("ii", 1, 0)
PLAN = SubscriptionPlan("requests", "team/a", ahead=8, ack_wait=1.0)


@pytest_asyncio.fixture
async def broker(tmp_path: Path) -> AsyncIterator[MqttBroker]:
    made = MqttBroker(tmp_path)
    try:
        await made.start()
        yield made
    finally:
        await asyncio.shield(made.close())


@pytest_asyncio.fixture
async def client(broker: MqttBroker) -> AsyncIterator[MqttClient]:
    made = make(BrokerConfig(url=broker.url))
    try:
        yield made
    finally:
        await made.aclose()


async def received(member: BrokerSubscription, count: int) -> list[BrokerDelivery]:
    """The next `count` messages, in spite of short losses of the connection."""
    made = list[BrokerDelivery]()
    async with asyncio.timeout(300):
        while len(made) < count:
            try:
                made += await member.receive(count - len(made), 0.5)
            except BrokerUnavailable:
                await asyncio.sleep(0.05)
    return made


async def join(client: MqttClient) -> MqttMember:
    made = await client.subscribe(PLAN)
    assert isinstance(made, MqttMember)
    return made


async def die(member: MqttMember) -> None:
    """End a member as a killed process does: its sockets close, and nothing is sent."""
    for task in list(member._tasks):
        task.cancel()
    for connection in (member._own.connection, member._records._connection):
        assert connection is not None
        connection._paho._sock_close()
        connection._end("killed")


@pytest.mark.servers
async def test_messages_are_acknowledged_in_their_order(client: MqttClient, broker: MqttBroker) -> None:
    member = await join(client)
    await client.publish([BrokerMessage("requests", b"%d" % number, {}) for number in range(4)])
    first, *others = await received(member, 4)
    await member.settle(others)
    assert await broker.unsettled("requests", "") == 4  # the first one is in work
    await member.settle([first])
    async with asyncio.timeout(300):
        while await broker.unsettled("requests", ""):
            await asyncio.sleep(0.05)
    await member.aclose()


@pytest.mark.servers
async def test_messages_in_work_are_recognised_after_a_lost_connection(client: MqttClient, broker: MqttBroker) -> None:
    member = await join(client)
    await client.publish([BrokerMessage("requests", b"%d" % number, {}) for number in range(3)])
    held = await received(member, 3)
    await member.settle(held[1:2])
    await broker.disconnect()
    broker.kill()
    await broker.start()
    async with asyncio.timeout(300):
        while not member._own.connected:
            await asyncio.sleep(0.02)
    await client.publish([BrokerMessage("requests", b"after", {})])
    (after,) = await received(member, 1)
    assert after.body == b"after"
    await member.settle([after, held[0], held[2]])
    async with asyncio.timeout(300):
        while await broker.unsettled("requests", ""):
            await asyncio.sleep(0.05)
    await member.aclose()


@pytest.mark.servers
@pytest.mark.parametrize("end", ["killed", "left"])
async def test_another_member_continues_the_session_of_a_member_that_is_gone(
    client: MqttClient, broker: MqttBroker, end: str
) -> None:
    gone = await join(client)
    await client.publish([BrokerMessage("requests", b"%d" % number, {}) for number in range(20)])
    held = await received(gone, 3)
    await gone.settle(held[:1])
    await (die(gone) if end == "killed" else gone.aclose())
    await client.publish([BrokerMessage("requests", b"while nothing is there", {})])
    other = await join(client)
    expected = {b"%d" % number for number in range(1, 20)} | {b"while nothing is there"}
    bodies = list[bytes]()
    while not expected.issubset(bodies):
        (delivery,) = await received(other, 1)
        bodies.append(delivery.body)
        await other.settle([delivery])
    settled_too = [b"0"] if end == "killed" else []  # its acknowledgement may not have been sent
    assert sorted(bodies) in (sorted(expected), sorted([*expected, *settled_too]))
    async with asyncio.timeout(300):
        while await broker.unsettled("requests", "") or other._records.mine != {other._own.client_id}:
            await asyncio.sleep(0.05)
    assert not other._records.gone()
    await other.aclose()


async def test_a_member_with_waiting_messages_continues_few_sessions_at_once() -> None:
    member = MqttMember(BrokerConfig(url="mqtt://127.0.0.1:1"), PLAN)
    member._records._seen = {f"session{number}": (0.0, LEFT) for number in range(3 * MOST_CONTINUED)}
    assert len(member._continuable()) == MOST_CONTINUED
    member._continued = {"a", "b"}
    assert len(set(member._continuable())) == MOST_CONTINUED  # none of them has messages
    member._deliver(BrokerDelivery("requests", b"", {}, place="p", handle=None))
    assert len(member._continuable()) == MOST_CONTINUED - 2
    member._continued |= set(member._continuable())
    assert member._continuable() == []


@pytest.mark.servers
async def test_a_member_that_is_wrongly_taken_for_dead_has_its_session_again(
    client: MqttClient, broker: MqttBroker
) -> None:
    slow, other = await join(client), await join(client)
    await client.publish([BrokerMessage("requests", b"%d" % number, {}) for number in range(2)])
    (held,), (others,) = await received(slow, 1), await received(other, 1)
    other._records.mine.add(slow._own.client_id)
    await other._continue(slow._own.client_id)  # ends when `slow` connects again
    assert slow._own.client_id not in other._records.mine
    await slow.settle([held])
    await other.settle([others])
    async with asyncio.timeout(300):
        while await broker.unsettled("requests", ""):
            await asyncio.sleep(0.05)
    await slow.aclose()
    await other.aclose()


@pytest.mark.servers
async def test_a_member_begins_another_session_after_a_takeover(client: MqttClient, broker: MqttBroker) -> None:
    slow = await join(client)
    await client.publish([BrokerMessage("requests", b"a", {})])
    (held,) = await received(slow, 1)
    first, connection = slow._own.client_id, slow._own.connection
    assert connection is not None
    connection._paho._sock_close()  # mosquitto 2.0 closes the connection without the reason
    connection._disconnected(None, None, None, ReasonCode(PacketTypes.DISCONNECT, identifier=SESSION_TAKEN_OVER), None)
    async with asyncio.timeout(300):
        while slow._own.client_id == first or not slow._own.connected:
            await asyncio.sleep(0.02)
    await slow.settle([held])  # the message is one of the other session now
    (again,) = await received(slow, 1)
    assert again.body == b"a"
    await slow.settle([again])
    async with asyncio.timeout(300):
        while await broker.unsettled("requests", ""):
            await asyncio.sleep(0.05)
    await slow.aclose()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("acknowledges", [True, False])
def test_a_connection_that_is_reset_behind_unread_messages_is_lost(
    run: Callable[[Coroutine[Any, Any, None]], None], acknowledges: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "KEEPALIVE", 3600)  # the missing answer to a ping would reveal it too

    async def reset(server: socket.socket) -> None:
        received = list[MQTTMessage]()
        url = f"mqtt://127.0.0.1:{server.getsockname()[1]}"
        connection = Connection(BrokerConfig(url=url), ConnectionPlan("x", acks=True), received.append)
        opening = asyncio.create_task(connection.open())
        peer, _ = await asyncio.to_thread(server.accept)
        peer.sendall(CONNACK)
        await opening
        peer.sendall(3 * MESSAGE)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
        peer.close()  # before the loop reads the messages
        while not received:
            await asyncio.sleep(0)
        if acknowledges:
            connection.ack(1)
        await connection.lost.wait()
        connection.ack(1)
        with pytest.raises(BrokerUnavailable):
            await connection.publish("t", b"m", None)
        await connection.close()

    async def bounded(server: socket.socket) -> None:
        async with asyncio.timeout(60):
            await reset(server)

    with socket.create_server(("127.0.0.1", 0)) as server:
        run(bounded(server))


def test_another_message_with_the_packet_identifier_of_a_former_one_is_delivered() -> None:
    delivered = list[bytes]()
    session = MqttSession(BrokerConfig(url="mqtt://h:1"), "x", 8, lambda each: delivered.append(each.body))
    for number, (body, dup) in enumerate([(b"one", False), (b"one", True), (b"two", True)], 1):
        session._number = number
        message = MQTTMessage(mid=7, topic=b"requests")
        message.payload, message.dup, message.properties = body, dup, None
        session._received(message)
    assert delivered == [b"one", b"two"]


@pytest.mark.servers
async def test_properties_are_headers(client: MqttClient, broker: MqttBroker) -> None:
    inbox = await client.listen("headers")
    deadline = time.time() + 100
    sent = {
        **cloud_event("one", correlationid="c", replyto="answers/x", deadline=format_time(deadline), traceparent="t"),
        "content-type": "application/json",
        "authorization": "Bearer k",
        "headrace-dead-reason": "r",
    }
    assert await client.publish([BrokerMessage("headers", b"{}", sent, key=b"k")]) == [None]
    (delivery,) = await inbox.receive(60)
    assert delivery.headers == {**sent, "ce_partitionkey": "k"}
    properties = properties_of(BrokerMessage("headers", b"", sent))
    assert (properties.ResponseTopic, properties.CorrelationData) == ("answers/x", b"c")
    assert properties.MessageExpiryInterval in (99, 100)
    await inbox.aclose()


@pytest.mark.servers
async def test_properties_of_a_sender_without_attributes_are_attributes(client: MqttClient) -> None:
    inbox = await client.listen("plain")
    properties = properties_of(BrokerMessage("plain", b"", {"ce_specversion": "1.0"}))
    properties.ResponseTopic, properties.CorrelationData = "answers/y", b"\xff7"
    properties.MessageExpiryInterval = 50
    await (await client._publisher.open()).publish("plain", b"", properties)
    (delivery,) = await inbox.receive(60)
    assert delivery.headers["ce_replyto"] == "answers/y"
    assert delivery.headers["ce_correlationid"] == "\\xff7"
    assert 0 < (parse(delivery.headers["ce_deadline"]) or 0) - time.time() <= 51
    await inbox.aclose()


@pytest.mark.servers
async def test_messages_that_the_broker_refuses(tmp_path: Path) -> None:
    class Small(MqttBroker):
        settings = ("max_packet_size 2000",)

    broker = Small(tmp_path)
    try:
        await broker.start()
        await broker.topics("read")
        client = make(BrokerConfig(url=broker.url))
        large = BrokerMessage("read", b"x" * 3000, {})
        invalid = BrokerMessage("read", b"", {"name": "x" * 70_000, "content-type": "text/plain"})
        unread = BrokerMessage("unread", b"", {})
        ends = await client.publish([large, BrokerMessage("read", b"good", {}), invalid, unread])
        assert [type(end) for end in ends] == [MessageRejected, type(None), MessageRejected, MessageUnroutable]
        assert [each.body for each in await broker.read("read", 1)] == [b"good"]
        await client.aclose()
    finally:
        await broker.close()


@pytest.mark.servers
async def test_a_broker_that_refuses_the_password(tmp_path: Path) -> None:
    class Closed(MqttBroker):
        settings = ("password_file /dev/null",)
        anonymous = "false"

        async def connect(self) -> None:
            self._topics = []

        async def disconnect(self) -> None:
            return

    broker = Closed(tmp_path)
    try:
        await broker.start()
        config = BrokerConfig.model_validate({"url": broker.url, "username": "u", "password": "secret-word"})
        with pytest.raises(BrokerUnavailable, match="refuses the connection: Not authorized") as raised:
            await make(config).open()
        assert "secret-word" not in str(raised.value)
    finally:
        await broker.close()


async def test_a_broker_that_is_not_there() -> None:
    client = make(BrokerConfig(url="mqtt://127.0.0.1:1"))
    with pytest.raises(BrokerUnavailable, match="ConnectionRefusedError"):
        await client.publish([BrokerMessage("a", b"", {})])
    with pytest.raises(BrokerUnavailable):
        await client.subscribe(PLAN)
    with pytest.raises(BrokerUnavailable):
        await client.listen("a")

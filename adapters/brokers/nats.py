"""NATS JetStream, by nats-py: pull consumers with explicit acknowledgements."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import BadHeaderError, BadSubjectError, MaxPayloadError
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeout
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import BadRequestError, NoStreamResponseError, NotFoundError

from adapters.brokers.base import (
    BrokerDelivery,
    BrokerMessage,
    BrokerUnavailable,
    MessageRejected,
    PublishEnd,
    SubscriptionPlan,
    TopicRefused,
    credentials_of,
    publish_each,
    servers_of,
    tls_of,
)
from config.schema.bus import BrokerConfig

CONNECT = 5.0
ANSWERS_WITHIN = 10.0
MESSAGE_ID = "Nats-Msg-Id"
LONGEST_SUBJECT = 2048
"""Bytes. A line of the protocol has 4096 at most, and other parts beside the subject."""
MOST_DENIED = 1000
_DENIAL = re.compile(r'(?i)permissions violation for publish to "(.+)"')
_DURABLE = re.compile(r"[^A-Za-z0-9_-]")


def make(config: BrokerConfig) -> "NatsClient":
    """The client of one cluster."""
    return NatsClient(config)


class NatsClient:
    """One connection."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._client: Client | None = None
        self._stream: Any = None
        self._denied: dict[str, str] = {}
        """The reports of the server about subjects that this user may not publish to."""

    async def open(self) -> None:
        if self._client is not None:
            return
        user, password = credentials_of(self._config)
        login = {"token": password} if user is None else {"user": user, "password": password}
        tls = tls_of(self._config)
        try:
            async with asyncio.timeout(2 * CONNECT):
                self._client = await nats.connect(
                    [f"{'tls' if tls else 'nats'}://{server}" for server in servers_of(self._config)],
                    connect_timeout=int(CONNECT),
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=1,
                    error_cb=self._note,
                    tls=tls,
                    **login,
                )
        except (NatsError, OSError, TimeoutError) as error:
            raise unavailable(error) from None
        self._stream = self._client.jetstream(timeout=ANSWERS_WITHIN)

    async def subscribe(self, plan: SubscriptionPlan) -> "NatsSubscription":
        assert self._client is not None
        start = DeliverPolicy.ALL if plan.start == "earliest" else DeliverPolicy.NEW
        config = ConsumerConfig(
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=plan.ack_wait,
            deliver_policy=start,
            max_ack_pending=max(1000, 4 * plan.ahead),
            max_deliver=-1,
        )
        durable = _DURABLE.sub("_", plan.group)
        try:
            stream = await self._stream.find_stream_name_by_subject(plan.topic)
            pulled = await self._stream.pull_subscribe(plan.topic, durable=durable, stream=stream, config=config)
        except NotFoundError:
            raise BrokerUnavailable(f"NATS: no stream of JetStream has the subject {plan.topic}") from None
        except (NatsError, OSError, TimeoutError) as error:
            raise unavailable(error) from None
        return NatsSubscription(self._client, pulled)

    async def listen(self, topic: str) -> "NatsInbox":
        if self._client is None:
            raise BrokerUnavailable("NATS: not connected")
        try:
            subscribed = await self._client.subscribe(topic)
            await self._client.flush(int(ANSWERS_WITHIN))
        except (NatsError, OSError, TimeoutError) as error:
            raise unavailable(error) from None
        return NatsInbox(subscribed)

    async def publish(self, messages: Sequence[BrokerMessage]) -> list[PublishEnd]:
        if self._stream is None:
            raise BrokerUnavailable("NATS: not connected")
        return await publish_each("NATS", messages, self._publish)

    async def _publish(self, message: BrokerMessage) -> PublishEnd:
        topic = message.topic
        if len(topic.encode()) > LONGEST_SUBJECT:  # the server would close the connection
            return TopicRefused(f"NATS: a subject has at most {LONGEST_SUBJECT} bytes")
        headers = {_outgoing(name): value for name, value in message.headers.items()}
        if message.id:
            headers[MESSAGE_ID] = message.id
        try:
            await self._stream.publish(topic, message.body, headers=headers)
        except (MaxPayloadError, BadHeaderError, BadRequestError) as error:
            return MessageRejected(f"NATS: {error}")
        except BadSubjectError:
            return TopicRefused(f"NATS: {topic[:128]} is not a subject")
        except NoStreamResponseError as error:
            return await self._without_stream(topic) or unavailable(error)
        except NatsTimeout as error:
            return TopicRefused(f"NATS: {self._denied[topic]}") if topic in self._denied else unavailable(error)
        except (NatsError, OSError, TimeoutError) as error:
            return unavailable(error)
        self._denied.pop(topic, None)
        return None

    async def _without_stream(self, topic: str) -> TopicRefused | None:
        """The refusal of a subject that no stream has; None if that is not certain."""
        try:
            await self._stream.find_stream_name_by_subject(topic)
        except NotFoundError:
            return TopicRefused(f"NATS: no stream of JetStream has the subject {topic[:128]}")
        except (NatsError, OSError, TimeoutError):
            return None  # a cluster that elects a leader
        return None

    async def _note(self, error: Exception) -> None:
        """The server reports a forbidden subject beside the publication, which then has no answer. The library itself
        reconnects after other errors, and the next call raises them."""
        if (denial := _DENIAL.search(str(error))) is not None and len(self._denied) < MOST_DENIED:
            self._denied[denial[1]] = str(error)

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


class NatsSubscription:
    """One member of a durable consumer."""

    def __init__(self, client: Client, pulled: Any) -> None:
        self._client = client
        self._pulled = pulled

    async def receive(self, most: int, patience: float) -> list[BrokerDelivery]:
        if not most:
            await asyncio.sleep(patience)
            return []
        try:
            return [self._delivery(message) for message in await self._pulled.fetch(most, timeout=patience)]
        except NatsTimeout:
            return []
        except (NatsError, OSError, TimeoutError) as error:
            raise unavailable(error) from None

    def _delivery(self, message: Msg) -> BrokerDelivery:
        headers: Mapping[str, str] = message.headers or {}
        about = message.metadata
        return BrokerDelivery(
            message.subject,
            message.data,
            {_incoming(name): value for name, value in headers.items()},
            place=f"{about.stream}/{about.sequence.stream}",
            handle=message,
            count=about.num_delivered or 0,
        )

    async def settle(self, deliveries: Sequence[BrokerDelivery]) -> None:
        await self._each("ack", deliveries)

    async def renew(self, deliveries: Sequence[BrokerDelivery]) -> None:
        await self._each("in_progress", deliveries)

    async def release(self, deliveries: Sequence[BrokerDelivery]) -> None:
        await self._each("nak", deliveries)

    async def _each(self, action: str, deliveries: Sequence[BrokerDelivery]) -> None:
        try:
            for delivery in deliveries:
                await getattr(delivery.handle, action)()
            await self._client.flush(int(ANSWERS_WITHIN))
        except (NatsError, OSError, TimeoutError) as error:
            raise unavailable(error) from None

    async def lag(self) -> int | None:
        try:
            info = await self._pulled.consumer_info()
        except (NatsError, OSError, TimeoutError):
            return None
        return int(info.num_pending or 0) + int(info.num_ack_pending or 0)

    async def aclose(self) -> None:
        with suppress(NatsError, OSError, TimeoutError):  # the connection is closed
            await self._pulled.unsubscribe()


class NatsInbox:
    """A plain subscription, which receives the messages of streams too."""

    def __init__(self, subscribed: Any) -> None:
        self._subscribed = subscribed

    async def receive(self, patience: float) -> list[BrokerDelivery]:
        try:
            message = await self._subscribed.next_msg(timeout=patience)
        except NatsTimeout:
            return []
        except (NatsError, OSError, TimeoutError) as error:
            raise unavailable(error) from None
        headers: Mapping[str, str] = message.headers or {}
        named = {_incoming(name): value for name, value in headers.items()}
        return [BrokerDelivery(message.subject, message.data, named, place="", handle=None)]

    async def aclose(self) -> None:
        with suppress(NatsError, OSError, TimeoutError):  # the connection is closed
            await self._subscribed.unsubscribe()


def _incoming(name: str) -> str:
    name = name.lower()
    return f"ce_{name[3:]}" if name.startswith("ce-") else name


def _outgoing(name: str) -> str:
    return f"ce-{name[3:]}" if name.startswith("ce_") else name


def unavailable(error: BaseException) -> BrokerUnavailable:
    """The error for callers."""
    return BrokerUnavailable(f"NATS: {type(error).__name__}: {error}"[:300])

"""Calls of an SQS endpoint. A topic is a queue."""

import asyncio
import json
import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from hashlib import sha256
from typing import Any, NamedTuple

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from adapters.brokers.base import BrokerMessage, BrokerUnavailable, credentials_of, servers_of
from config.schema.bus import BrokerConfig

CONNECT, ANSWERS_WITHIN = 5.0, 10.0
CONNECTIONS = 64
FIFO = ".fifo"
SMALLEST_LIMIT = 262_144
"""Bytes of a message that every queue without a limit of its own accepts."""
_AMAZON = re.compile(r"(?:^|\.)sqs\.([a-z0-9-]+)\.")
_NO_QUEUE_NAME = re.compile(r"[^A-Za-z0-9_-]")
_ABSENT = {"NonExistentQueue", "QueueDoesNotExist", "AccessDenied", "InvalidAddress", "InvalidParameterValue"}


class SqsQueue(NamedTuple):
    """A queue that exists."""

    url: str
    largest: int
    """The largest message in bytes."""
    is_fifo: bool


class QueueAbsent(BrokerUnavailable):
    """The queue does not exist, or not for this access key."""


def queue_name(topic: str) -> str:
    """The name of the queue of a topic."""
    name = topic.removesuffix(FIFO)
    return _NO_QUEUE_NAME.sub("_", name) + topic[len(name) :]


class SqsConnection:
    """A pool of connections."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._exits = AsyncExitStack()
        self._sqs: Any = None
        self._queues: dict[str, SqsQueue] = {}
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        async with self._opening:
            if self._sqs is not None:
                return
            try:
                self._sqs = await self._exits.enter_async_context(self._client())
            except (BotoCoreError, OSError) as error:
                raise unavailable(error) from None

    def _client(self) -> Any:
        (server, *_) = servers_of(self._config)
        region = _AMAZON.search(server)
        user, password = credentials_of(self._config)
        tls = self._config.tls
        session: Any = get_session()
        return session.create_client(
            "sqs",
            endpoint_url=f"{'http' if tls is None and region is None else 'https'}://{server}",
            region_name=region[1] if region else "us-east-1",
            aws_access_key_id=user,
            aws_secret_access_key=password,
            verify=tls.ca if tls is not None and tls.ca is not None else True,
            config=AioConfig(
                connect_timeout=CONNECT,
                read_timeout=ANSWERS_WITHIN,
                max_pool_connections=CONNECTIONS,
                retries={"total_max_attempts": 1},
                client_cert=None if tls is None or tls.cert is None else (tls.cert, tls.key),
            ),
        )

    async def call(self, operation: str, **fields: Any) -> Any:
        """One call. Raises `BrokerUnavailable`; an error of SQS about the call is `ClientError`."""
        await self.open()
        try:
            return await getattr(self._sqs, operation)(**fields)
        except ClientError:
            raise
        except (BotoCoreError, ResponseParserError, OSError, TimeoutError) as error:
            raise unavailable(error) from None

    async def queue(self, topic: str) -> SqsQueue:
        """The queue of a topic. Raises `QueueAbsent` and `BrokerUnavailable`."""
        if (stored := self._queues.get(topic)) is not None:
            return stored
        name = queue_name(topic)
        try:
            url = (await self.call("get_queue_url", QueueName=name)).get("QueueUrl")
            if url is None:
                raise BrokerUnavailable(f"SQS: the queue {name}: the answer has no URL: the server is not one of SQS")
            about = await self.call("get_queue_attributes", QueueUrl=url, AttributeNames=["MaximumMessageSize"])
        except ClientError as error:
            kind = QueueAbsent if code_of(error) in _ABSENT else BrokerUnavailable
            raise kind(f"SQS: the queue {name}: {error}"[:300]) from None
        largest = int(about.get("Attributes", {}).get("MaximumMessageSize", SMALLEST_LIMIT))
        made = self._queues[topic] = SqsQueue(url, largest, name.endswith(FIFO))
        return made

    async def aclose(self) -> None:
        self._sqs = None
        await self._exits.aclose()


def code_of(error: ClientError) -> str:
    """The code of an error of SQS, without the prefix of older protocols."""
    return str(error.response.get("Error", {}).get("Code", "")).rpartition(".")[2]


def unavailable(error: BaseException) -> BrokerUnavailable:
    """The error for callers."""
    return BrokerUnavailable(f"SQS: {type(error).__name__}: {error}"[:300])


# Headers and bodies ↔ attributes and texts of SQS.
#
# A message has ten attributes at most, with restricted names and values: headers that do not fit are one attribute as
# JSON. A body is a text: other bytes are Base64, and an attribute states it.

MOST_ATTRIBUTES = 10
PACKED, ENCODING = "headrace-headers", "headrace-encoding"
_NAME = re.compile(r"(?!(?i:aws|amazon)\.)[A-Za-z0-9_-]{1,200}")
_REFUSED = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def encode(body: bytes, headers: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """The text and the attributes of a message."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = ""
    pairs = dict(headers)
    if not text or _REFUSED.search(text):
        text, pairs[ENCODING] = b64encode(body).decode() or "=", "base64"
    if len(pairs) > MOST_ATTRIBUTES or not all(map(_fits, pairs, pairs.values())):
        encoding = pairs.pop(ENCODING, None)
        pairs = {PACKED: json.dumps(pairs), **({} if encoding is None else {ENCODING: encoding})}
    return text, {name: {"DataType": "String", "StringValue": value} for name, value in pairs.items()}


def decode(text: str, attributes: Mapping[str, Any]) -> tuple[bytes, dict[str, str]]:
    """The body and the headers of a message."""
    headers = {name: each["StringValue"] for name, each in attributes.items() if "StringValue" in each}
    body = text.encode()
    if headers.pop(ENCODING, None) == "base64":
        try:
            body = b64decode(text, validate=True)
        except ValueError:
            body = b"" if text == "=" else body
    if (packed := headers.pop(PACKED, None)) is not None:
        headers |= _unpacked(packed)
    return body, {name.lower(): value for name, value in headers.items()}


def size_of(text: str, attributes: Mapping[str, Any]) -> int:
    """The bytes that SQS counts."""
    parts = (
        len(name.encode()) + len(each["DataType"]) + len(each["StringValue"].encode())
        for name, each in attributes.items()
    )
    return len(text.encode()) + sum(parts)


def _fits(name: str, value: str) -> bool:
    return bool(value) and _NAME.fullmatch(name) is not None and not _REFUSED.search(value)


def _unpacked(text: str) -> dict[str, str]:
    try:
        pairs = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(pairs, dict):
        return {}
    return {name: value for name, value in pairs.items() if isinstance(value, str)}


# Messages as entries of batches.

MOST = 10
"""Messages of one call."""
KEY = "ce_partitionkey"


def entry_of(queue: SqsQueue, message: BrokerMessage, at: int) -> tuple[dict[str, Any], int]:
    """An entry with the id `at`, and its size in bytes."""
    key = message.key.decode("utf-8", "backslashreplace")
    headers = {**message.headers, **({KEY: key} if key else {})}
    text, attributes = encode(message.body, headers)
    made = {"Id": str(at), "MessageBody": text, "MessageAttributes": attributes}
    if queue.is_fifo:
        unique = message.id or secrets.token_hex(16)
        made["MessageGroupId"] = sha256((key or unique).encode()).hexdigest()
        made["MessageDeduplicationId"] = sha256(unique.encode()).hexdigest()
    return made, size_of(text, attributes)


def batches(places: Sequence[int], sizes: dict[int, int], largest: int) -> Iterator[list[int]]:
    """Groups of at most ten messages, and of at most the size of the largest one."""
    batch, size = list[int](), 0
    for at in places:
        if batch and (len(batch) == MOST or size + sizes[at] > largest):
            yield batch
            batch, size = [], 0
        batch.append(at)
        size += sizes[at]
    if batch:
        yield batch

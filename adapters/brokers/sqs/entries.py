"""Messages as entries of batches."""

import secrets
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

from adapters.brokers.base import BrokerMessage
from adapters.brokers.sqs.connection import SqsQueue
from adapters.brokers.sqs.envelope import encode, size_of

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

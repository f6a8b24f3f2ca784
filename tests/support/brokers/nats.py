"""NATS: nats-server with JetStream on disk."""

import sys
from collections.abc import Mapping
from pathlib import Path

import nats
from nats.errors import TimeoutError as NatsTimeout
from nats.js.api import ConsumerConfig, DeliverPolicy, StreamConfig

from tests.support.brokers.broker import RealBroker, Seen


class NatsBroker(RealBroker):
    name = "nats"

    @property
    def url(self) -> str:  # type: ignore[override]
        return f"nats://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        program = str(Path(sys.executable).with_name("nats-server"))
        return [program, "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.folder / "jetstream")]

    async def connect(self) -> None:
        self._client = await nats.connect(self.url)
        self._stream = self._client.jetstream()

    async def disconnect(self) -> None:
        await self._client.close()

    async def topics(self, *names: str) -> None:
        for name in names:
            await self._stream.add_stream(StreamConfig(name=name.replace(".", "-"), subjects=[name]))

    async def send(self, topic: str, body: bytes, headers: Mapping[str, str], key: bytes = b"") -> None:
        fields = {name.replace("ce_", "ce-", 1): value for name, value in headers.items()}
        if key:
            fields["ce-partitionkey"] = key.decode()
        await self._stream.publish(topic, body, headers=fields)

    async def messages(self, topic: str) -> list[Seen]:
        count = (await self._stream.stream_info(topic.replace(".", "-"))).state.messages
        config = ConsumerConfig(deliver_policy=DeliverPolicy.ALL)
        pulled = await self._stream.pull_subscribe(topic, config=config)
        seen = list[Seen]()
        try:
            while len(seen) < count:
                try:
                    batch = await pulled.fetch(count - len(seen), timeout=5)
                except NatsTimeout:
                    continue
                for message in batch:
                    fields = {_attribute(n.lower()): v for n, v in (message.headers or {}).items()}
                    seen.append(Seen(message.data, fields, fields.get("ce_partitionkey", "").encode()))
                    await message.ack()
        finally:
            await pulled.unsubscribe()
        return seen

    async def unsettled(self, topic: str, group: str) -> int:
        info = await self._stream.consumer_info(topic.replace(".", "-"), group)
        return int(info.num_pending or 0) + int(info.num_ack_pending or 0)


def _attribute(name: str) -> str:
    return f"ce_{name[3:]}" if name.startswith("ce-") else name

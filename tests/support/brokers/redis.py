"""Redis with an append-only file."""

import asyncio
from collections.abc import Mapping
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from tests.support.brokers.broker import RealBroker, Seen
from tests.support.debian import binary


class RedisBroker(RealBroker):
    name = "redis"

    @property
    def url(self) -> str:  # type: ignore[override]
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        program = binary("redis-server", "redis-server")
        durable = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        return [program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), *durable]

    async def connect(self) -> None:
        self._redis: Redis = Redis.from_url(self.url, protocol=2)
        async with asyncio.timeout(300):
            while True:
                try:
                    await self._redis.execute_command("PING")  # type: ignore[no-untyped-call]
                    return
                except RedisError:  # it reads its file
                    await asyncio.sleep(0.05)

    async def disconnect(self) -> None:
        await self._redis.aclose()

    async def send(self, topic: str, body: bytes, headers: Mapping[str, str], key: bytes = b"") -> None:
        fields: dict[Any, Any] = {"data": body, **headers, **({"key": key} if key else {})}
        await self._redis.xadd(topic, fields)

    async def messages(self, topic: str) -> list[Seen]:
        seen, last = list[Seen](), "-"
        while True:
            entries: Any = await self._redis.xrange(topic, last, count=1000)
            if not entries:
                return seen
            for _, fields in entries:
                body, key = fields.pop(b"data"), fields.pop(b"key", b"")
                seen.append(Seen(body, {name.decode(): value.decode() for name, value in fields.items()}, key))
            last = f"({entries[-1][0].decode()}"

    async def unsettled(self, topic: str, group: str) -> int:
        for each in await self._redis.xinfo_groups(topic):
            if each["name"] == group.encode():
                return int(each["lag"] or 0) + int(each["pending"])
        raise AssertionError(f"{topic} has no group {group}")

"""The table of ids in Redis: one key for each id, which ends by itself."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from redis.asyncio import ConnectionPool, Redis
from redis.exceptions import RedisError

from gateway.features.bus.done.table import DoneTableUnavailable

SCRIPT = (Path(__file__).parent / "redis_table.lua").read_text()
CONNECT, ANSWERS_WITHIN = 1.0, 5.0


class RedisDoneTable:
    """The ids of one binding. `owner` names this process."""

    def __init__(self, redis: Redis, binding: str, owner: str, window: float, takeover: float) -> None:
        self._prefix = f"headrace:bus:{{{binding}}}:"
        self._owner = owner
        self._window = max(1, int(window * 1000))
        self._takeover = max(1, int(takeover * 1000))
        self._script = redis.register_script(SCRIPT)

    async def claim(self, ids: Sequence[str]) -> list[float]:
        return [float(end) if end <= 0 else end / 1000 for end in await self._run("claim", ids, self._takeover)]

    async def renew(self, ids: Sequence[str]) -> list[bool]:
        return [end == 0 for end in await self._run("renew", ids, self._takeover)]

    async def finish(self, ids: Sequence[str]) -> None:
        await self._run("finish", ids, self._window)

    async def release(self, ids: Sequence[str]) -> None:
        await self._run("release", ids, self._takeover)

    async def sweep(self) -> None:
        """Redis deletes keys that have ended."""

    async def _run(self, step: str, ids: Sequence[str], milliseconds: int) -> list[int]:
        try:
            ends: Any = await self._script([self._prefix + id_ for id_ in ids], [step, self._owner, milliseconds])
        except (RedisError, OSError, TimeoutError) as error:
            raise DoneTableUnavailable(f"Redis: {type(error).__name__}: {error}"[:300]) from None
        return list(ends)


def open_redis(url: str) -> Redis:
    """The connections to the Redis of the state."""
    pool = ConnectionPool.from_url(
        url, protocol=2, socket_connect_timeout=CONNECT, socket_timeout=ANSWERS_WITHIN, max_connections=64
    )
    return Redis(connection_pool=pool)

"""The bindings of one process."""

import asyncio
import logging
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from adapters.brokers.base import BrokerLibraryMissing, make
from adapters.lasting import lasting
from config.schema.bus import BindingConfig
from config.schema.config import Config
from gateway.errors import StartError
from gateway.features.bus.consumer import BindingConsumer
from gateway.features.bus.done.sql_table import SqlDoneTable, SqlIds
from gateway.features.bus.done.table import DoneTable
from gateway.features.stored.keeper import Keeper
from gateway.request.core import Core
from gateway.state.opened import Opened

if TYPE_CHECKING:
    from redis.asyncio import Redis  # needs an extra

log = logging.getLogger(__name__)


class BusPlane:
    """`run` until cancelled; `drain`, then `aclose`. Each process of the gateway is a member of each group."""

    def __init__(self, config: Config, core: Core, keeper: Keeper | None, pepper: Callable[[], bytes]) -> None:
        """Raises `StartError` if the library of a broker is missing."""
        self._config = config
        self._core = core
        self._owner = secrets.token_hex(16)
        self._threads = ThreadPoolExecutor(1, "bus")
        self._ids = Opened(lambda: SqlIds(config.state.database, pepper()))
        self._redis: Redis | None = None
        self._running: asyncio.Task[object] | None = None
        try:
            self.consumers = [
                BindingConsumer(binding, make(binding.broker), core, keeper, self._table(binding))
                for binding in config.listen.bus
            ]
        except BrokerLibraryMissing as error:
            raise StartError(f"listen.bus: {error}") from None

    async def run(self) -> None:
        """Consume until cancelled."""
        self._running = asyncio.current_task()
        async with asyncio.TaskGroup() as group:
            for consumer in self.consumers:
                group.create_task(lasting(f"bus {consumer.binding.name}", consumer.run))

    async def drain(self, seconds: float) -> bool:
        """Receive no further message, and wait for those in work. True if all ended within `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(consumer.drain() for consumer in self.consumers))
            return True
        return False

    async def aclose(self) -> None:
        """Release what is in work, and close all connections."""
        if self._running is not None:
            self._running.cancel()
        await asyncio.gather(*(consumer.aclose() for consumer in self.consumers))
        if self._redis is not None:
            await self._redis.aclose(close_connection_pool=True)
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._ids.close()

    def _table(self, binding: BindingConfig) -> DoneTable:
        """The table of ids: in Redis if the state has one, else in the state database."""
        state, window, takeover = self._config.state, binding.window, binding.takeover
        if state.redis is None:
            return SqlDoneTable(self._ids, self._threads, binding.name, self._owner, window, takeover, self._core.wall)
        from gateway.features.bus.done.redis_table import RedisDoneTable, open_redis

        if self._redis is None:
            self._redis = open_redis(state.redis)
        return RedisDoneTable(self._redis, binding.name, self._owner, window, takeover)

"""Gateways that share a real Redis, each with a ledger and nothing else."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis

from config.schema.config import ClientModelConfig
from gateway.limits.ledger import Ledger, Reservation
from gateway.limits.remote.allowance import RemoteAllowance
from gateway.limits.remote.redis_ledger import RedisLedger
from policies.facts import Facts
from tests.gateway.limits.timed_ledger import dollars, tenant, used
from tests.support.redis import RedisServer
from tests.support.waiting import until

PATIENT = 30.0
"""A timeout that only a Redis that is ill exceeds, however busy the machine."""


class Gateway:
    """One of several."""

    def __init__(self, server: RedisServer, limits: Any, timeout: float = PATIENT, models: Any = ()) -> None:
        loop = asyncio.get_running_loop()
        self.clock = loop.time
        self.server = server
        self.redis = RedisLedger(server.url, timeout, random.Random(1), loop.time, time.time)
        self.ledger = Ledger(redis=self.redis)
        kinds = [ClientModelConfig.model_validate(model) for model in models]
        self.ledger.configure([tenant(limits)], self.clock(), kinds)
        self._running = asyncio.create_task(self.redis.run())

    async def reserve(
        self, tokens: int = 1, usd: float = 0, user: str | None = None, model: str = "chat"
    ) -> Reservation:
        now, facts = self.clock(), Facts("acme", "k1", model, {}, False, tokens, user, "r")
        allowances = self.ledger.allowances(facts, model, now)
        if "acme" in self.ledger.awaited:
            return await self.ledger.reserve_exactly(facts, allowances, used(tokens), dollars(usd), now)
        return self.ledger.reserve(facts, allowances, used(tokens), dollars(usd), now)

    def settle(self, held: Reservation, tokens: int = 0, usd: float = 0) -> None:
        held.settle(used(tokens), dollars(usd), self.clock())

    @property
    def allowance(self) -> RemoteAllowance:
        account = self.ledger.accounts["acme"].always[0]
        assert isinstance(account, RemoteAllowance)
        return account

    async def row(self) -> dict[str, float]:
        """The Redis row of the tenant's first limit, once current: `n` requests in flight, the remainders elsewhere."""
        await self.refreshed()
        client = Redis.from_url(self.server.url, decode_responses=True)
        fields = await client.hgetall(self.allowance.key)
        await client.aclose()
        return {str(name): float(value) for name, value in fields.items()}

    async def refreshed(self) -> None:
        """Until Redis knows of everything."""
        await until(lambda: self.redis.up and not self.redis.unsent)

    async def until(self, *, up: bool) -> None:
        await until(lambda: self.redis.up == up)

    async def die(self) -> None:
        """Without a word."""
        self._running.cancel()
        await asyncio.wait([self._running])

    async def aclose(self) -> None:
        await self.redis.aclose()
        await self.die()


@asynccontextmanager
async def gateways(
    number: int, server: RedisServer, limits: Any, timeout: float = PATIENT, models: Any = ()
) -> AsyncIterator[list[Gateway]]:
    """`count` connected gateways."""
    made = [Gateway(server, limits, timeout, models) for _ in range(number)]
    try:
        for one in made:
            await one.until(up=True)
        yield made
    finally:
        for one in made:
            await one.die()

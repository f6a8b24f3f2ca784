"""All running endpoints: the endpoints in use, and the draining ones."""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING

from adapters.upstreams.dial import file_times
from config.schema.config import PoolConfig
from gateway.traffic.fleet.desired import DesiredEndpoint
from gateway.traffic.fleet.member import (
    PoolMember,
    RuntimeSource,
    make,
    make_replica,
    source_of,
    source_of_replica,
)
from gateway.traffic.fleet.runtime import Runtimes

if TYPE_CHECKING:  # for pools with accounts
    from gateway.traffic.accounts.account import ProviderAccount

POLL_SECONDS = 0.05
NOTHING: Mapping[str, float] = {}


class Members:
    """Creates new members, retains existing ones, and drains the others."""

    def __init__(
        self, rng: Random, runtimes: Runtimes, account: "Callable[[PoolConfig, str], ProviderAccount | None]"
    ) -> None:
        """`account` returns the account of an endpoint, from its pool as it applies to it and its id."""
        self._rng = rng
        self._account = account
        self._runtimes = runtimes
        self._used: list[PoolMember] = []
        self._leaving: dict[PoolMember, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[PoolMember]:
        return iter(self._used)

    @property
    def leaving(self) -> list[PoolMember]:
        """The draining members: they receive no new requests and have not ended."""
        return list(self._leaving)

    def gather(self, pool: PoolConfig, listed: Sequence[DesiredEndpoint], new: list[PoolMember]) -> list[PoolMember]:
        """One member for each desired endpoint. Created and reactivated members are added to `new`. Raises
        `FleetError`."""
        here = {member.endpoint.id: member for member in self._used if member.pool == pool.name}
        leaving = {member.endpoint.id: member for member in self._leaving if member.pool == pool.name}
        times = file_times(pool.tls)
        gathered = []
        for one in listed:
            source = source_of(pool, one.target, times)
            member = here.get(one.id)
            if member is None or member.source != source:
                member = leaving.get(one.id)
                if member is not None and member.source == source:
                    self._leaving.pop(member).cancel()
                else:
                    account = self._account(pool.at(one.target.account), one.id)
                    member = make(pool, one.id, one.target, source, account)
                    member.watch(self._rng)
                new.append(member)
            gathered.append(member)
        return gathered

    def replicas(self, pool: PoolConfig, new: list[PoolMember]) -> list[PoolMember]:
        """The members of a pool's runtime, one for each replica. Created and reactivated members are added to `new`."""
        assert pool.runtime is not None
        listed = self._runtimes.replicas(pool.name, pool.runtime)
        return [self._replica(pool, source_of_replica(pool, *each), new) for each in listed.items()]

    def _replica(self, pool: PoolConfig, source: RuntimeSource, new: list[PoolMember]) -> PoolMember:
        for member in self._used:
            if member.pool == pool.name and member.source == source:
                return member
        for member in self._leaving:
            if member.pool == pool.name and member.source == source:
                self._leaving.pop(member).cancel()
                new.append(member)
                return member
        taken = {member.endpoint.id for member in (*self._used, *self._leaving, *new)}
        numbers = itertools.count(source.replica)
        id_ = next(id_ for number in numbers if (id_ := f"{pool.name}/{number}") not in taken)
        member = make_replica(pool, id_, source, self._runtimes)
        new.append(member)
        member.watch(self._rng)
        return member

    def keep(self, members: list[PoolMember], warm: Mapping[str, float] = NOTHING) -> None:
        """Set the members in use, and retire all others: those of a `warm` pool after its seconds."""
        current, now = set(members), asyncio.get_running_loop().time()
        for member in self._used:
            if member not in current:
                member.warm_until = now + warm.get(member.pool, 0.0)
                self.retire(member)
        self._used = members

    def retire(self, member: PoolMember) -> None:
        """Stop a member when its last request has ended, and its time as a warm one. Until then it is probed, and can
        be reactivated."""
        task = asyncio.create_task(self._end(member))
        self._leaving[member] = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self, member: PoolMember) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, member.warm_until - loop.time()))
        while member.endpoint.in_flight:  # noqa: ASYNC110 - rare, and a slow look costs a request nothing
            await asyncio.sleep(POLL_SECONDS)
        del self._leaving[member]
        await member.stop()

    async def aclose(self) -> None:
        """Stop everything now."""
        await self._runtimes.leave()
        members, self._used = [*self._used, *self._leaving], []
        for task in self._leaving.values():
            task.cancel()
        self._leaving = {}
        await asyncio.gather(*(member.stop() for member in members))
        for task in self._tasks:
            task.cancel()
        self._runtimes.close()

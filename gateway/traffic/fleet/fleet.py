"""All endpoints: preserved across reloads, added, removed."""

import asyncio
import logging
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from random import Random
from typing import TYPE_CHECKING, Any, TypeGuard

from adapters.base import Adapter
from config.schema.config import Config, PoolConfig
from gateway.traffic.cold import ColdStart
from gateway.traffic.discovery.target import DiscoveredEndpoint, DiscoveryError
from gateway.traffic.endpoint import Endpoint
from gateway.traffic.fleet.desired import DesiredEndpoint, Overrides, desired
from gateway.traffic.fleet.member import (
    FleetError,
    PoolMember,
    RuntimeSource,
    check_functions,
    endpoint_id,
    tls_of,
)
from gateway.traffic.fleet.members import NOTHING, POLL_SECONDS, Members
from gateway.traffic.fleet.runtime import NoRuntimes, Runtimes
from gateway.traffic.meter import PoolMeter
from gateway.traffic.pool import Pool
from gateway.traffic.pool_state import PoolState, pool_state, several_models
from gateway.traffic.queue import PoolQueue
from gateway.traffic.standing import AccountMemory, PoolStanding

if TYPE_CHECKING:  # for pools with accounts, and for those whose endpoints, or protocols, are discovered
    from adapters.detection.auto import AutoAdapter
    from gateway.traffic.accounts.account import ProviderAccount
    from gateway.traffic.accounts.table import AccountTable
    from gateway.traffic.discovery.discoverer import Discoverer

log = logging.getLogger(__name__)


def is_auto(adapter: Adapter) -> "TypeGuard[AutoAdapter]":
    """Whether an endpoint detects its protocol. The module is imported only for a pool that does."""
    module = sys.modules.get("adapters.detection.auto")
    return module is not None and isinstance(adapter, module.AutoAdapter)


def detected(member: PoolMember) -> dict[str, Any] | None:
    """The detected protocol of an endpoint; None before detection, and for a pool with a configured protocol."""
    adapter = member.endpoint.adapter
    if not is_auto(adapter) or adapter.detection is None or adapter.protocol is None:
        return None
    detection, protocol = adapter.detection, adapter.protocol
    written = protocol.model_dump(mode="json", exclude_defaults=True) | {"name": protocol.name}
    return {"system": detection.system, "version": detection.version, "protocol": written}


def _dials_tls(pool: PoolConfig) -> bool:
    """Whether a pool has TLS files for endpoints of `https://`, or will discover such endpoints."""
    if pool.discover is not None:
        return pool.discover.scheme == "https"
    return pool.tls is not None and any(one.url.startswith("https://") for one in pool.endpoints)


def disagree(members: Iterable[PoolMember]) -> bool:
    """Whether two members speak different protocols."""
    protocols = [detection["protocol"] for member in members if (detection := detected(member)) is not None]
    return any(one != protocols[0] for one in protocols)


def watch(pool: str, member: PoolMember, members: Callable[[], list[PoolMember]]) -> None:
    """Log the detected protocol of an endpoint, and a difference among the pool's endpoints."""
    adapter = member.endpoint.adapter
    if not is_auto(adapter):
        return

    def report() -> None:
        assert adapter.detection is not None
        assert adapter.protocol is not None
        detection = adapter.detection
        log.info(
            "endpoint %s is %s %s: %s", member.endpoint.id, detection.system, detection.version, adapter.protocol.name
        )
        if disagree(members()):
            log.warning("pool %s: its endpoints speak different protocols: GET /admin/pools lists them", pool)

    adapter.on_detection = report


@dataclass(slots=True)
class Change:
    """A configuration, its pools' sources, and the members and discoverers created for it."""

    config: Config
    discoverers: "dict[str, Discoverer]" = field(default_factory=dict)
    new: list[PoolMember] = field(default_factory=list)
    begun: "list[Discoverer]" = field(default_factory=list)


class Fleet:
    """Builds the pools of a configuration from running and new members, and changes them at runtime.

    Call `prepare`, optionally `ready`, then `commit` or `abandon`. Until `commit` no running member changes.
    """

    def __init__(self, rng: Random, clock: Callable[[], float], runtimes: Runtimes | None = None) -> None:
        self.overrides: dict[str, Overrides] = {}
        self.discoverers: dict[str, Discoverer] = {}
        self.pools: dict[str, Pool] = {}
        self.configs: dict[str, PoolConfig] = {}
        self.meters: dict[str, PoolMeter] = {}
        """The counts of each pool whose number of endpoints is decided here."""
        self.colds: dict[str, ColdStart] = {}
        """The starts of the pools that scale to zero."""
        self._sleeping: dict[str, frozenset[str]] = {}
        """Addresses of endpoints that sleep or will sleep, by pool."""
        self.clock = clock
        self.account_memory = AccountMemory()
        """Where the pauses and quotas of accounts are; shared by the workers of a gateway."""
        self._accounts: AccountTable | None = None
        self.secret = secrets.token_bytes(32)
        """The key of the endpoints' ids. The deployment's own secret, once loaded, makes the ids stable."""
        self._rng = rng
        self._members = Members(rng, runtimes or NoRuntimes(), self._account)
        self._states: dict[str, PoolState] = {}
        self._several: frozenset[str] = frozenset()
        """The pools that receive requests for several models."""
        self._queues: dict[str, PoolQueue] = {}

    def __iter__(self) -> Iterator[PoolMember]:
        return iter(self._members)

    def endpoint_id(self, pool: str, url: str) -> str:
        """The id of an endpoint of the pool at an address, without an account of its own."""
        return endpoint_id(self.secret, pool, DiscoveredEndpoint(url))

    def _account(self, pool: PoolConfig, id_: str) -> "ProviderAccount | None":
        """The account of an endpoint; None in a pool without accounts. Another key has a quota of its own."""
        if not pool.has_accounts:
            return None
        from gateway.traffic.accounts.account import ProviderAccount
        from gateway.traffic.accounts.table import AccountTable

        if self._accounts is None:
            memory = self.account_memory
            self._accounts = AccountTable(memory.fd, workers=memory.workers, me=memory.me)
        made = () if pool.credentials is None else pool.credentials.secrets
        given = (pool.key, *made, *(header.secret for header in pool.headers))
        # The text of credentials has all but their secrets.
        parts = (repr(pool.credentials), *("" if each is None else each.get_secret_value() for each in given))
        digest = blake2b("\0".join(parts).encode(), digest_size=8, key=self.secret).hexdigest()
        return ProviderAccount(f"{id_}\0{digest}", self._accounts, self.clock)

    def members_of(self, pool: str) -> list[PoolMember]:
        """The members of one pool."""
        return [member for member in self._members if member.pool == pool]

    def leaving(self, pool: str) -> list[PoolMember]:
        """The draining members of a pool."""
        return [member for member in self._members.leaving if member.pool == pool]

    def endpoints(self) -> Iterator[tuple[str, Endpoint]]:
        """`(pool, endpoint)` for each endpoint in use."""
        return ((member.pool, member.endpoint) for member in self._members)

    def queues(self) -> Iterator[PoolQueue]:
        """The queues of all pools, and those of removed pools that have waiting requests."""
        return iter(self._queues.values())

    # ── a new configuration ───────────────────────────────────────────────────────────────────────────

    def prepare(self, config: Config) -> Change:
        """Create the missing members of `config`. Raises `FleetError`, and then nothing new is left."""
        change = Change(config)
        try:
            for pool in config.pools:
                self._prepare(change, pool)
        except BaseException:
            self.abandon(change)
            raise
        return change

    def _prepare(self, change: Change, pool: PoolConfig) -> None:
        if _dials_tls(pool):
            tls_of(pool, pool.protocol.name, renews=True)  # fail now, not when an endpoint is discovered
        if pool.discover is not None:
            change.discoverers[pool.name] = self._discoverer(change, pool)
        self._gather(pool, self._desired(pool, change.discoverers.get(pool.name)), change.new)

    def _discoverer(self, change: Change, pool: PoolConfig) -> "Discoverer":
        assert pool.discover is not None
        existing = self.discoverers.get(pool.name)
        if existing is not None and existing.config == pool.discover:
            return existing
        from gateway.traffic.discovery.discoverer import Discoverer

        try:
            made = Discoverer(pool.name, pool.discover, self.clock, self._rng)
        except DiscoveryError as error:
            raise FleetError(f"pool {pool.name}: discover: {error}") from None
        change.begun.append(made)
        made.start()
        return made

    async def discovered(self, change: Change) -> bool:
        """Wait for the first report of each new source, up to a limit. Returns whether all have reported."""
        return all(await asyncio.gather(*(discoverer.first() for discoverer in change.begun)))

    async def ready(self, change: Change) -> None:
        """Wait until each new runtime is ready and each new source has reported. Raises `FleetError` if one fails."""
        if not await self.discovered(change):
            for name, discoverer in change.discoverers.items():
                if discoverer.error:
                    raise FleetError(f"pool {name}: discover: {discoverer.error}")
        for member in change.new:
            if member.runtime is None or self._adds(member, change):
                continue
            seconds = member.runtime.config.start_timeout
            try:
                async with asyncio.timeout(seconds):
                    while member.endpoint.health != "healthy":  # noqa: ASYNC110 - the probe's pace decides anyway
                        await asyncio.sleep(POLL_SECONDS)
            except TimeoutError:
                raise FleetError(f"pool {member.pool}: its runtime was not ready within {seconds:g} s") from None
            await check_functions(member)

    def _adds(self, member: PoolMember, change: Change) -> bool:
        """Whether a new replica joins others of the same server: the pool serves without it."""
        running = (each.source for each in self._members if each.pool == member.pool and each not in change.new)
        servers = [source.server for source in running if isinstance(source, RuntimeSource)]
        return isinstance(member.source, RuntimeSource) and member.source.server in servers

    def commit(self, change: Change, warm: Mapping[str, float] = NOTHING) -> dict[str, Pool]:
        """Apply a prepared configuration. Members in no pool end after their last request; those of a removed pool that
        is in `warm` end after its seconds, and the pool can return with them until then."""
        pools = change.config.pools
        for name, discoverer in self.discoverers.items():
            if change.discoverers.get(name) is not discoverer:
                discoverer.stop()
        self.discoverers = change.discoverers
        self.configs = {pool.name: pool for pool in pools}
        self.overrides = {name: self.overrides.get(name, Overrides()) for name in self.configs}
        self._several = several_models(change.config)
        zone, near = change.config.zone, change.config.near_zones
        self._states = {p.name: pool_state(p, zone, near, self._states.get(p.name)) for p in pools}
        members = [member for member in (*self._members, *change.new) if member.pool in self.configs]
        self._members.keep(members, {pool: seconds for pool, seconds in warm.items() if pool not in self.configs})
        self._commit_queues(change.config)
        self._commit_meters(change.config)
        self.pools = {pool.name: self._pool(pool) for pool in pools}
        for name, discoverer in self.discoverers.items():
            discoverer.on_change = partial(self.refresh, name)
        return self.pools

    def _commit_queues(self, config: Config) -> None:
        """Apply the queues. A removed pool still serves its waiting requests and those in flight."""
        written = {pool.name: pool.line for pool in config.pools}
        for name, queue in list(self._queues.items()):
            if name in written and written[name] is None:
                queue.close()
            if not queue.line.size and written.get(name) is None:
                self._queues.pop(name).stop()
        for name, section in written.items():
            if section is None:
                continue
            if (existing := self._queues.get(name)) is not None:
                existing.configure(section, config.tenants)
            else:
                self._queues[name] = PoolQueue(name, section, config.tenants, self.clock)

    def _commit_meters(self, config: Config) -> None:
        scaled = {pool.name: pool.scaling for pool in config.pools if pool.scaling is not None}
        self.meters = {name: self.meters.get(name, PoolMeter()) for name in scaled}
        from_zero = {name: rules for name, rules in scaled.items() if rules.min == 0}
        self.colds = {
            name: self.colds.get(name) or ColdStart(name, replicas, self.clock) for name, replicas in from_zero.items()
        }
        for name, rules in scaled.items():
            self.meters[name].wait = rules.wait
        for name, replicas in from_zero.items():
            self.colds[name].config = replicas
        sleeps = {pool.name for pool in config.pools if pool.sleeps}
        self._sleeping = {name: urls for name, urls in self._sleeping.items() if name in sleeps}

    def _pool(self, config: PoolConfig) -> Pool:
        pool = Pool(
            config.name,
            self._settle(config),
            self._states[config.name].picker,
            max_in_flight=config.max_in_flight,
            panic=config.balance.panic,
            queue=self._queues.get(config.name),
            meter=self.meters.get(config.name),
            cold=self.colds.get(config.name),
            accounts=config.has_accounts,
            rng=self._rng,
            clock=self.clock,
        )
        pool.leaving = self._drained(config.name)
        return pool

    def report(self, standing: PoolStanding) -> None:
        """Apply the state of a pool's replicas. Requests do not wait for a start that fails."""
        if (cold := self.colds.get(standing.pool)) is not None:
            cold.report(standing)
            if standing.failure and (queue := self._queues.get(standing.pool)) is not None:
                queue.changed()
        sleeping = frozenset(standing.sleeping)
        if sleeping != self._sleeping.get(standing.pool, frozenset()):
            self._sleeping[standing.pool] = sleeping
            self.refresh(standing.pool)

    def _drained(self, name: str) -> list[Endpoint]:
        return [member.endpoint for member in self._members if member.pool == name and member.drained]

    def abandon(self, change: Change) -> None:
        """Discard a prepared configuration, and stop all that was created for it."""
        for discoverer in change.begun:
            discoverer.stop()
        for member in change.new:
            self._members.retire(member)

    # ── while it runs ─────────────────────────────────────────────────────────────────────────────────

    def refresh(self, name: str) -> None:
        """Apply a pool's desired endpoints."""
        config, pool = self.configs.get(name), self.pools.get(name)
        if config is not None and pool is not None:
            self.overrides[name].trim(self.clock())
            pool.endpoints = self._settle(config, joins=bool(pool.endpoints))
            pool.leaving = self._drained(name)

    def _settle(self, config: PoolConfig, *, joins: bool = False) -> list[Endpoint]:
        """Create, retain and retire members by the pool's desired endpoints. Returns the endpoints that it may pick.

        A failure is logged, and the old members remain. With `joins`, new members must pass a health check first.
        """
        name, new = config.name, list[PoolMember]()
        listed = self._desired(config, self.discoverers.get(name))
        try:
            members = self._gather(config, listed, new)
        except FleetError as error:
            log.error("pool %s: the endpoints are unchanged: %s", name, error)
            for member in new:
                self._members.retire(member)
            return [member.endpoint for member in self._members if member.pool == name and not member.drained]
        if joins and config.probe is not None:
            for member in new:
                member.endpoint.join()
        self._members.keep([*(member for member in self._members if member.pool != name), *members])
        for one, member in zip(listed, members, strict=False):  # replicas are not listed
            self._equip_listed(member, one, config)
        for member in members:
            self._equip(member, config)
        endpoints = [member.endpoint for member in members if not member.drained]
        if (outliers := self._states[name].outliers) is not None:
            outliers.peers = endpoints
        return endpoints

    def _gather(self, pool: PoolConfig, listed: list[DesiredEndpoint], new: list[PoolMember]) -> list[PoolMember]:
        return self._members.gather(pool, listed, new) if pool.runtime is None else self._members.replicas(pool, new)

    def _equip_listed(self, member: PoolMember, one: DesiredEndpoint, config: PoolConfig) -> None:
        if member.drained and not one.drained:
            member.endpoint.came_back()
        member.origin, member.drained, member.account = one.origin, one.drained, one.target.account
        member.endpoint.zone = one.target.zone
        member.endpoint.configure(one.target.weight, config.balance.slow_start)
        watch(config.name, member, partial(self.members_of, config.name))

    def _equip(self, member: PoolMember, config: PoolConfig) -> None:
        endpoint, balance = member.endpoint, config.balance
        if member.runtime is not None:
            endpoint.configure(1.0, balance.slow_start)
        endpoint.outliers = self._states[config.name].outliers
        one_model = config.at(member.account).model_name is not None
        endpoint.several = not one_model and config.name in self._several
        if config.has_accounts:
            from gateway.traffic.accounts.endpoint import AccountEndpoint

            if isinstance(endpoint, AccountEndpoint):
                endpoint.account.configure(None if member.account is None else member.account.limits)
        endpoint.breaker.failures, endpoint.breaker.open_for = config.breaker.failures, config.breaker.open_for
        member.scrape(balance.signals if balance.by == "load" else None, config, self._rng)

    def _desired(self, pool: PoolConfig, discoverer: "Discoverer | None") -> list[DesiredEndpoint]:
        targets = discoverer.targets if discoverer is not None else ()
        name = partial(endpoint_id, self.secret, pool.name)
        sleeping = self._sleeping.get(pool.name, frozenset())
        return desired(pool, name, targets, self.overrides.get(pool.name, Overrides()), self.clock(), sleeping)

    async def aclose(self) -> None:
        """Stop everything now."""
        self.configs, self.pools = {}, {}
        for queue in self._queues.values():
            queue.stop()
        for discoverer in self.discoverers.values():
            discoverer.stop()
        await self._members.aclose()

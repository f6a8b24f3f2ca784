"""A whole gateway on a network in memory: its listener, its fleet, its ledger, and servers with moods."""

from collections.abc import Sequence
from random import Random
from typing import Any

from adapters.http1.server import Limits, Server
from adapters.offload.jobs import CodecCall
from config.schema.config import Config
from gateway.auth.keys import ApiKey, KeyRecord, Principal, digest
from gateway.auth.table import KeyTable
from gateway.features.pipelines.graphs import PIPELINES
from gateway.features.rollouts.live import LiveComparisons
from gateway.features.shadow.comparer import AnswerComparer
from gateway.features.shadow.plane import ShadowPlane
from gateway.fronts.errors import openai_refusal
from gateway.limits.account import Account
from gateway.process.client_fronts import client_fronts
from gateway.request.core import Core
from gateway.request.snapshot import Snapshot, build, with_keys
from gateway.telemetry import Metrics, Telemetry
from gateway.traffic.endpoint import Endpoint
from gateway.traffic.fleet.fleet import Fleet
from gateway.traffic.plan_state import PlanState
from policies.rollouts.tally import ShareOrder, StratumTally
from tests.simulation.deciding import MemoryDecider, MemoryStore
from tests.simulation.servers import ScriptedServer
from tests.simulation.shares import WatchedShares
from tests.simulation.virtual import Address, VirtualLoop
from tests.simulation.watch import Watch, WatchedLedger, WatchedPool
from tests.support.gateways import PEPPER, Lines

GATEWAY: Address = ("127.0.0.1", 8080)
# Seconds before the end of an hour of the calendar: budgets roll over in the middle of a story.
STARTS = 1_800_000_000 // 3600 * 3600 - 8.0
SEND_TIMEOUT = 3.0
KEYS = {
    f"t{tenant}/k{key}": ApiKey(id_, f"hr-{id_}-{'s' * 43}")
    for tenant in range(3)
    for key in range(2)
    for id_ in ["abc"[tenant] + "xy"[key] + "z" * 10]
}


class InlineComparer(AnswerComparer):
    """Compares answers of every size at once: there is no other process."""

    async def _run(self, call: CodecCall) -> Any:
        return call.function(*call.args, **call.kwargs)


class World:
    """Begin with `start`, end with `stop`."""

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self.loop = loop
        self.rng = Random(seed)
        self.servers = [ScriptedServer(loop, f"s{i}", i + 1, Random(seed * 100 + i)) for i in range(6)]
        self.watch = Watch()
        self.pools: dict[str, WatchedPool] = {}
        """The pools in force."""
        self.generations: list[float] = []
        """When each configuration came into force."""
        self.configs: list[Config] = []
        self.endpoints: dict[str, Endpoint] = {}
        """All that there ever were."""
        self.all_keys = KEYS
        self.live_keys = dict(KEYS)
        self.revoked: dict[str, float] = {}
        self.ledger = WatchedLedger(lambda: STARTS + loop.time())
        self.plan_state = PlanState()
        self.rollouts = LiveComparisons(b"secret")
        self.watched_shares = WatchedShares(self.rollouts, loop.time)
        self.fleet = Fleet(self.rng, loop.time)
        self.fleet.secret = bytes(32)  # the ids of endpoints decide hashes: a seed plays the same story each time
        self.shadows = ShadowPlane(self.fleet, Random(f"{seed} copies"), loop.time)
        self.shadows.copies._comparer = InlineComparer()
        self.store = MemoryStore(Random(f"{seed} store"), self.shadows.live)
        self.decider = MemoryDecider(lambda: self.configs[-1], self._exchange, self.store, loop.time)
        self.log = Lines()
        self.metrics = Metrics()
        self.core: Core
        self.server: Server

    async def start(self, written: dict[str, Any]) -> None:
        config = Config.model_validate(written)
        pools = self._commit(config)
        snapshot = self._build(config, pools)
        self.core = Core(snapshot, self.ledger, Telemetry(self.metrics, self.log, batch=1), self.rng, self.loop.time)
        self.server = Server(client_fronts(self.core), Limits(send_timeout=SEND_TIMEOUT), openai_refusal)
        await self.server.listen_tcp(*GATEWAY)

    async def reload(self, written: dict[str, Any]) -> None:
        config = Config.model_validate(written)
        pools = self._commit(config)
        self.core.snapshot = self._build(config, pools)

    def _build(self, config: Config, pools: Any) -> Snapshot:
        self.rollouts.configure(config)
        self.shadows.configure(config, {})
        self.watched_shares.look()
        live, shadows = self.rollouts.by_name, self.shadows.live.by_name
        return build(
            config, self._keys(), pools, self.rng, self.loop.time,
            plan_state=self.plan_state, salt=bytes(32), rollouts=live, shadows=shadows,
            graphs=PIPELINES, watches=(self.shadows.copies.watch,),
        )  # fmt: skip

    async def _exchange(self, orders: Sequence[ShareOrder]) -> list[StratumTally]:
        """Exchange counts and orders, as a gateway of one process does."""
        counts = self.rollouts.take()
        self.rollouts.apply(orders)
        self.watched_shares.look()
        await self.shadows._pools.trim()
        return counts

    def _commit(self, config: Config) -> Any:
        """Commit like the gateway's own reload: without awaits, so that no request sees half of it."""
        change = self.fleet.prepare(config)
        self.ledger.configure(config.tenants, self.loop.time())
        pools = self.fleet.commit(change)
        self.generations.append(self.loop.time())
        self.configs.append(config)
        self.watch.generation = len(self.generations)
        for pool in pools.values():
            self.endpoints |= {f"{e.id} of {len(self.generations)}": e for e in pool.endpoints}
        self.pools = {name: WatchedPool(pool, self.watch) for name, pool in pools.items()}
        return self.pools

    def _keys(self) -> KeyTable:
        records = {
            key.id: KeyRecord(Principal(name.split("/")[0], key.id), digest(PEPPER, key.plaintext))
            for name, key in self.live_keys.items()
            if name.split("/")[0] in {tenant.name for tenant in self.configs[-1].tenants}
        }
        return KeyTable(PEPPER, records)

    def revoke(self, name: str) -> None:
        if self.live_keys.pop(name, None) is not None:
            self.revoked[name] = self.loop.time()
            self.core.snapshot = with_keys(self.core.snapshot, self._keys())

    async def stop(self) -> None:
        await self.server.aclose()
        await self.shadows.aclose()
        self.core.telemetry.flush()
        await self.fleet.aclose()

    def accounts(self) -> list[Account]:
        return list(self.ledger.accounts.values())

    def generation_at(self, at: float) -> int:
        """The oldest configuration that may have answered a request of that time."""
        return sum(began < at for began in self.generations)

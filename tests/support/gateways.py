"""A gateway's core over scripted upstreams: everything real except the network and the servers behind it."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import yaml

from adapters.fake import FakeAdapter
from adapters.http1.server import Limits, Server
from adapters.requests import ChatRequest, ExplainRequest, InferRequest
from adapters.wire.oip.bodies import HttpPayload
from adapters.wire.openai import chat as wire
from config.schema.config import Config
from gateway.auth.keys import KeyRecord, Principal, digest, new_key
from gateway.auth.table import KeyTable
from gateway.features.explain.header import explained
from gateway.features.guards.observer import Guards
from gateway.features.guards.table import GuardTable
from gateway.features.pipelines.graphs import PIPELINES
from gateway.features.rollouts.live import LiveComparisons
from gateway.features.shadow.live import LiveShadows
from gateway.fronts.errors import openai_refusal
from gateway.limits.ledger import Ledger
from gateway.process.client_fronts import client_fronts
from gateway.request.core import Core
from gateway.request.snapshot import RouteWatch, build, with_keys
from gateway.telemetry import AccessLog, Metrics, Record, Telemetry
from gateway.telemetry.access_log import Line
from gateway.traffic.endpoint import Endpoint
from gateway.traffic.plan_state import PlanState
from gateway.traffic.pool import Pool
from gateway.traffic.queue import PoolQueue
from policies.balancing.pickers import picker
from policies.breaker import Breaker
from policies.limits.limits import Rated

PEPPER = b"p" * 32


def config(**changes: Any) -> Config:
    """A small valid configuration: pool `main`, model `chat`, tenant `acme`."""
    base: dict[str, Any] = {
        "version": 1,
        "pools": [{"name": "main", "endpoints": ["http://127.0.0.1:9"]}],
        "models": [{"name": "chat", "routes": [{"to": "main"}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }
    return Config.model_validate({**base, **changes})


def written_config(**changes: Any) -> Config:
    """The same as the text of a file, so that it has lines."""
    return config(**changes).written_at({}, {}, yaml.safe_dump({"version": 1, **changes}, sort_keys=False))


class Lines(AccessLog):
    """An access log whose lines stay in memory."""

    def __init__(self) -> None:
        super().__init__("stdout")
        self.records: list[Record] = []
        self.lines: list[Line] = []

    def write(self, record: Record) -> None:
        self.records.append(record)
        self.lines.append(self._line(record))


class Rig:
    """A `Core` whose pools hold fakes, and a key of the first tenant."""

    def __init__(
        self,
        configuration: Config,
        adapters: Mapping[str, list[FakeAdapter]],
        seed: int = 0,
        plan_state: PlanState | None = None,
    ) -> None:
        clock = asyncio.get_running_loop().time
        rng = random.Random(seed)
        self.adapters = adapters
        self.endpoints = {
            name: [Endpoint(f"{name}/{i}", adapter, _breaker(configuration, name)) for i, adapter in enumerate(fakes)]
            for name, fakes in adapters.items()
        }
        self.queues = {
            pool.name: PoolQueue(pool.name, pool.queue, configuration.tenants, clock)
            for pool in configuration.pools
            if pool.queue is not None
        }
        pools = {
            pool.name: Pool(
                pool.name,
                self.endpoints[pool.name],
                picker(pool.balance),
                max_in_flight=pool.max_in_flight,
                panic=pool.balance.panic,
                queue=self.queues.get(pool.name),
                rng=rng,
                clock=clock,
            )
            for pool in configuration.pools
        }
        self.key = new_key()
        self.principal = Principal(configuration.tenants[0].name, self.key.id)
        self.ledger = Ledger()
        self.ledger.configure(configuration.tenants, clock(), configuration.models)
        self.log = Lines()
        self.metrics = Metrics()
        self.rollouts = LiveComparisons()
        self.rollouts.configure(configuration)
        self.shadows = LiveShadows()
        self.shadows.configure(configuration)
        self.pools = pools
        guards = GuardTable(configuration, lambda: b"pepper" * 8)
        self.watches: list[RouteWatch] = [Guards(guards).watch] if configuration.guards else []
        snapshot = build(
            configuration,
            self._keys(),
            pools,
            rng,
            clock,
            plan_state=plan_state,
            rollouts=self.rollouts.by_name,
            shadows=self.shadows.by_name,
            graphs=PIPELINES,
            watches=self.watches,
            guards_answers=guards.guards_answers,
            restored=guards.restored,
        )
        self.core = Core(snapshot, self.ledger, Telemetry(self.metrics, self.log, batch=1), rng, clock)
        self.core.watchers = (explained,)

    def _keys(self) -> KeyTable:
        return KeyTable(PEPPER, {self.key.id: KeyRecord(self.principal, digest(PEPPER, self.key.plaintext))})

    def hold(self, **changes: Any) -> None:
        """From now on the key comes with these fields of a `Principal`."""
        self.principal = replace(self.principal, **changes)
        self.core.snapshot = with_keys(self.core.snapshot, self._keys())

    def record(self) -> Record:
        made = Record("req-1", "chat", "127.0.0.1", self.core.clock())
        made.tenant, made.key = self.principal.tenant, self.principal.key_id
        return made

    def left(self, unit: Rated) -> float:
        """The rest of the first tenant's first limit for all of its requests."""
        allowance = self.ledger.accounts[self.principal.tenant].always[0]
        return allowance.buckets[unit].remaining(self.core.clock())

    async def until_idle(self) -> None:
        """Wait until no request is under way."""
        async with asyncio.timeout(300):
            while any(account.in_flight for account in self.ledger.accounts.values()):
                await asyncio.sleep(0.005)

    def assert_idle(self) -> None:
        """No resource is held: what every test ends with."""
        for name, endpoints in self.endpoints.items():
            for endpoint in endpoints:
                assert endpoint.in_flight == 0, name
        for queue in self.queues.values():
            assert queue.line.size == 0, queue.name
        for account in self.ledger.accounts.values():
            assert account.in_flight == 0
            assert account.reserved_tokens == 0
        for fakes in self.adapters.values():
            for fake in fakes:
                assert fake.in_flight == 0
        assert self.core.memory.process.held == 0


def infer(model: str = "chat", **fields: Any) -> InferRequest:
    """A request of tensors that is not decoded."""
    return InferRequest(model=model, payload=HttpPayload(body=b"{}"), **fields)


def explain(model: str = "chat", **fields: Any) -> ExplainRequest:
    """The same, for an explanation."""
    return ExplainRequest(model=model, payload=HttpPayload(body=b"{}"), **fields)


def _breaker(configuration: Config, pool: str) -> Breaker:
    config = next(p for p in configuration.pools if p.name == pool).breaker
    return Breaker(config.failures, config.open_for)


def chat(model: str = "chat", **fields: Any) -> ChatRequest:
    """A decoded chat request."""
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}], **fields}
    return wire.decode_chat(wire._encode(body))


@asynccontextmanager
async def listening(rig: Rig, *, max_body: int = 10_000) -> AsyncIterator[str]:
    """Its data listener; afterwards nothing is counted any more, and every request has come to its one end."""
    server = Server(client_fronts(rig.core), Limits(max_body=max_body), openai_refusal)
    host, port = await server.listen_tcp("127.0.0.1", 0)
    try:
        yield f"http://{host}:{port}"
    finally:
        await server.aclose()
    rig.assert_idle()
    assert all(record.ended for record in rig.log.records)

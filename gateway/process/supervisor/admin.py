"""The admin API of a supervisor: reports of all workers merged into one, and changes applied to all workers."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from aiohttp import web
from prometheus_client.registry import Collector

from adapters.types import Order
from config.schema.config import Config
from gateway.admin.front import make_app
from gateway.admin.lifecycle import Lifecycle
from gateway.auth.certificates import PeerCertificate
from gateway.auth.identity import Identity
from gateway.auth.keys import ApiKey, Principal
from gateway.auth.store import KeyStore
from gateway.process.admin_backend import HostBackend
from gateway.process.host import HostFeatures
from gateway.process.supervisor import states
from gateway.process.supervisor.messages import CountOrder, calls_path, encode
from gateway.process.supervisor.process import Reply, WorkerLost, WorkerProcess
from gateway.process.supervisor.runtimes import SharedRuntimes
from gateway.process.supervisor.workers import Workers
from gateway.request.core import ORDER_SECONDS
from gateway.telemetry.merge import SampleTally
from gateway.traffic.fleet.operations import NotDone, Operation

if TYPE_CHECKING:
    from gateway.features.batches.service import BatchService

Replies = list[tuple[WorkerProcess, Reply]]


class SupervisorBackend(HostBackend):
    """The `AdminBackend` of a supervisor."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        host: HostFeatures,
        identity: Identity,
        workers: Workers,
        runtimes: SharedRuntimes,
        tally: SampleTally,
    ) -> None:
        super().__init__(lifecycle, host)
        self.batches = _batches(lifecycle.config, identity)
        self._identity = identity
        self._workers = workers
        self._runtimes = runtimes
        self._tally = tally

    def close(self) -> None:
        """Close the database of batches."""
        if self.batches is not None:
            self.batches.close()

    @property
    def store(self) -> KeyStore:
        """The database of keys and the audit log."""
        return self._identity.store

    @property
    def http_address(self) -> tuple[str, int]:
        """The address of the HTTP listeners."""
        return self._workers.http_address

    @property
    def demo(self) -> ApiKey | None:
        """The demo key."""
        return self._identity.demo

    def authenticate(self, token: str | None, certificate: PeerCertificate | None, now_utc: float) -> Principal:
        """The holder of a credential. Raises `CredentialError`."""
        return self._identity.credentials().authenticate(token, certificate, now_utc)

    def holder(self, key_id: str, now_utc: float) -> Principal | None:
        """The principal of a valid key."""
        return self._identity.keys.holder(key_id, now_utc)

    async def readiness(self) -> tuple[bool, dict[str, Any]]:
        """Ready if at least half of the slots have a worker that is ready."""
        workers, required = self._workers.ready, len(self._workers.slots)
        reports = [msgspec.json.decode(reply.body) for _, reply in await _get(workers, "/readiness")]
        missing = {model for report in reports for model in report["models_without_endpoint"]}
        if not reports:
            missing = {model.name for model in self.config.models}
        accepting = self._workers.accepting
        ready = accepting and 0 < required <= 2 * sum(report["status"] == "ready" for report in reports)
        status = "ready" if ready else "not ready" if accepting or not self.lifecycle.loaded else "draining"
        accepting = accepting and any(report["accepting"] for report in reports)
        return ready, {"status": status, "accepting": accepting, "models_without_endpoint": sorted(missing)}

    async def metrics(self) -> Collector:
        """Every metric of all workers, including those that have ended."""
        await self.host.refresh()
        for worker, reply in await _get(self._workers.everyone, "/metrics"):
            if worker.pid is not None:  # otherwise its final metrics are counted already
                self._tally.take(worker.serial, reply.body)
        return self._tally.registry

    async def state(self) -> dict[str, Any]:
        """The merged state of the workers, and the workers themselves."""
        replies = await _get(self._workers.everyone, "/state")
        views = [msgspec.json.decode(reply.body) for _, reply in replies]
        current = {tenant["tenant"] for view in views for tenant in view["tenants"]}
        views.append({"tenants": [tenant for tenant in self._workers.spent if tenant["tenant"] in current]})
        merged = states.merged(views) if replies else {}
        self._add_runtimes(merged.get("endpoints", ()))
        return {
            **merged,
            "accepting": self._workers.accepting,
            "configuration": self.lifecycle.describe(),
            "workers": [*self._slots(), *(_described(worker) for worker in self._workers.leaving)],
            "replicas": self.host.replicas(),
        }

    async def load(self) -> dict[str, Any]:
        """The merged load of the workers, and the workers themselves."""
        replies = await _get(self._workers.everyone, "/load")
        merged = states.merged([msgspec.json.decode(reply.body) for _, reply in replies]) if replies else {}
        self._add_runtimes(merged.get("endpoints", ()))
        workers = [*self._slots(), *(_described(worker) for worker in self._workers.leaving)]
        replicas = self.host.replicas()
        return {**merged, "accepting": self._workers.accepting, "workers": workers, "replicas": replicas}

    async def minutes(self) -> dict[str, Any]:
        """What ended in the last complete minutes in all workers, by their number (Unix time // 60)."""
        replies = await _get(self._workers.everyone, "/minutes")
        minutes: dict[str, Any] = states.merged([msgspec.json.decode(reply.body) for _, reply in replies] or [{}])
        return minutes

    async def pools(self) -> list[dict[str, Any]]:
        """Every pool with its endpoints."""
        replies = await _get(self._workers.ready, "/pools")
        pools: list[dict[str, Any]] = (
            states.merged([msgspec.json.decode(r.body) for _, r in replies]) if replies else []
        )
        for pool in pools:
            self._add_runtimes(pool["endpoints"])
        self.host.annotate(pools)
        return pools

    async def operate(self, operation: Operation) -> dict[str, Any]:
        """Change a pool in all workers. Returns the endpoint after the change. Raises `NotDone`."""
        async with self._workers.lock:
            try:
                reply = await self._workers.operate(encode(operation))
            except WorkerLost:
                raise NotDone(503, "no_worker", "no worker process is ready: retry later") from None
        if reply.status != 200:
            raise _not_done(reply)
        endpoint: dict[str, Any] = msgspec.json.decode(reply.body)
        return endpoint

    async def count(self, principal: Principal, size: int) -> None:
        """Count a request against the limits of its tenant through one worker. Raises `NotDone`."""
        order = CountOrder(principal.tenant, principal.subject, principal.team, size)
        await self._through_one("/count", encode(order), seconds=10.0)

    async def order(self, model: str, order: Order, body: bytes) -> None:
        """Load or unload a model through one worker, as all workers share the servers. Raises `NotDone`."""
        await self._through_one(f"/order/{order}?model={quote(model, safe='')}", body, seconds=ORDER_SECONDS + 10)

    async def _through_one(self, path: str, body: bytes, *, seconds: float) -> None:
        try:
            reply = await self._workers.ready[0].call("POST", path, body, seconds=seconds)
        except (IndexError, WorkerLost):
            raise NotDone(503, "no_worker", "no worker process responded: retry later") from None
        if reply.status != 200:
            raise _not_done(reply)

    def calls_socket(self) -> str | None:
        """The private socket of a worker for the console's requests to models."""
        ready = self._workers.ready
        return calls_path(random.choice(ready).message.control) if ready else None

    def _add_runtimes(self, endpoints: Sequence[dict[str, Any]]) -> None:
        """Add the runtimes' process ids and restarts: workers have only the runtimes' addresses."""
        for endpoint in endpoints:
            if "replica" not in endpoint:
                continue
            runtime = self._runtimes.get(endpoint["pool"], endpoint["replica"])
            if runtime is not None:
                endpoint |= {"pid": runtime.pid, "restarts": runtime.restarts}

    def _slots(self) -> list[dict[str, Any]]:
        slots = []
        for slot in self._workers.slots:
            empty = {"slot": slot.number, "pid": None, "state": "waiting", "seconds": 0.0}
            described = empty if slot.worker is None else _described(slot.worker)
            slots.append({**described, "restarts": slot.restarts, "last_end": slot.last_end})
        return slots


def _batches(config: Config, identity: Identity) -> "BatchService | None":
    """Files and batches for lists and cancellations. The workers run the lines."""
    if config.batches is None:
        return None
    from gateway.features.batches.service import BatchService

    return BatchService(config.batches, config.state.database, lambda: identity.pepper, time.time)


def supervisor_app(backend: SupervisorBackend, restart: Callable[[], bool]) -> web.Application:
    """The admin API of one gateway, and the restart of the workers."""
    app = make_app(backend)

    async def handle_restart(_: web.Request) -> web.Response:
        if restart():
            return web.json_response({"status": "restarting"}, status=202)
        return web.json_response({"status": "restarting already"}, status=409)

    app.router.add_post("/admin/restart", handle_restart)
    return app


def _not_done(reply: Reply) -> NotDone:
    error = msgspec.json.decode(reply.body)
    return NotDone(reply.status, error["code"], error["message"])


def _described(worker: WorkerProcess) -> dict[str, Any]:
    seconds = round(time.monotonic() - worker.since, 1)
    return {"slot": worker.slot, "pid": worker.pid, "state": worker.state, "seconds": seconds}


async def _get(workers: Sequence[WorkerProcess], path: str) -> Replies:
    """Request a report from each worker. Omits workers that fail or refuse."""
    replies = await asyncio.gather(*(worker.call("GET", path) for worker in workers), return_exceptions=True)
    for reply in replies:
        if isinstance(reply, BaseException) and not isinstance(reply, WorkerLost):
            raise reply
    answered = zip(workers, replies, strict=True)
    return [(worker, reply) for worker, reply in answered if isinstance(reply, Reply) and reply.status == 200]

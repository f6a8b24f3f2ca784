"""The operators' door of the supervisor: what one gateway would tell, told of all workers together."""

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from aiohttp import web

from adapters.types import Order
from config.schema.config import Config
from gateway.auth.audit import Act
from gateway.auth.certificates import PeerCertificate
from gateway.auth.keys import Principal
from gateway.auth.store import KeyStore
from gateway.core import ORDER_SECONDS
from gateway.fronts.admin.front import make_app
from gateway.supervisor import states
from gateway.supervisor.orders import encode
from gateway.supervisor.process import Reply, WorkerLost, WorkerProcess
from gateway.traffic.operations import NotDone, Operation

if TYPE_CHECKING:
    from gateway.supervisor.supervisor import Supervisor

Replies = list[tuple[WorkerProcess, Reply]]


def supervisor_app(supervisor: "Supervisor") -> web.Application:
    """The aiohttp application of the admin listener: that of one gateway, and what only several workers need."""
    app = make_app(SupervisorBackend(supervisor))

    async def restart(_: web.Request) -> web.Response:
        if supervisor.restart():
            return web.json_response({"status": "restarting"}, status=202)
        return web.json_response({"status": "restarting already"}, status=409)

    app.router.add_post("/admin/restart", restart)
    return app


class SupervisorBackend:
    """An `AdminBackend`."""

    def __init__(self, supervisor: "Supervisor") -> None:
        self._supervisor = supervisor

    @property
    def config(self) -> Config:
        """The one in force."""
        return self._supervisor.config

    @property
    def store(self) -> KeyStore:
        """Where keys and the audit log are."""
        return self._supervisor.identity.store

    def authenticate(self, token: str | None, certificate: PeerCertificate | None, now_utc: float) -> Principal:
        """Who asks. Raises `CredentialError`."""
        return self._supervisor.identity.credentials().authenticate(token, certificate, now_utc)

    def note(self, act: Act) -> None:
        """For the audit log."""
        if self._supervisor.trail is not None:
            self._supervisor.trail.note(act)

    async def readiness(self) -> tuple[bool, dict[str, Any]]:
        """Whether at least half of the slots have a worker that is ready."""
        workers, wanted = self._supervisor.workers.ready, len(self._supervisor.workers.slots)
        told = [msgspec.json.decode(reply.body) for _, reply in await _ask(workers, "/readiness")]
        missing = {model for one in told for model in one["models_without_endpoint"]}
        if not told:
            missing = {model.name for model in self.config.models}
        accepting = self._supervisor.accepting
        ready = accepting and 0 < wanted <= 2 * sum(one["status"] == "ready" for one in told)
        status = "ready" if ready else "not ready" if accepting or not self._supervisor.loaded else "draining"
        return ready, {"status": status, "models_without_endpoint": sorted(missing)}

    async def exposition(self) -> bytes:
        """Every metric, of those that are gone too."""
        for worker, reply in await _ask(self._supervisor.workers.everyone, "/metrics"):
            if worker.pid is not None:  # else its end has been counted
                self._supervisor.tally.take(worker.serial, reply.body)
        return self._supervisor.tally.exposition()

    async def state(self) -> dict[str, Any]:
        """The workers' states as one, and the workers."""
        supervisor = self._supervisor
        replies = await _ask(supervisor.workers.everyone, "/state")
        views = [msgspec.json.decode(reply.body) for _, reply in replies]
        known = {tenant["tenant"] for view in views for tenant in view["tenants"]}
        views.append({"tenants": [tenant for tenant in supervisor.workers.spent if tenant["tenant"] in known]})
        told = states.merged(views) if replies else {}
        self._tell_runtimes(told.get("endpoints", ()))
        return {
            **told,
            "accepting": supervisor.accepting,
            "configuration": {
                "file": str(supervisor.path),
                "loaded": supervisor.loaded,
                "last_error": supervisor.last_error,
            },
            "workers": [*self._slots(), *(_described(worker) for worker in supervisor.workers.leaving)],
        }

    async def pools(self) -> list[dict[str, Any]]:
        """Every pool with its endpoints."""
        replies = await _ask(self._supervisor.workers.ready, "/pools")
        pools: list[dict[str, Any]] = (
            states.merged([msgspec.json.decode(r.body) for _, r in replies]) if replies else []
        )
        for pool in pools:
            self._tell_runtimes(pool["endpoints"])
        return pools

    async def operate(self, operation: Operation) -> dict[str, Any]:
        """Change a pool in all workers; the endpoint as it is then. Raises `NotDone`."""
        workers = self._supervisor.workers
        async with workers.lock:
            try:
                reply = await workers.operate(encode(operation))
            except WorkerLost:
                raise NotDone(503, "no_worker", "no worker serves: try again") from None
        told: dict[str, Any] = msgspec.json.decode(reply.body)
        if reply.status != 200:
            raise NotDone(reply.status, told["code"], told["message"])
        return told

    async def order(self, model: str, order: Order, body: bytes) -> None:
        """Have one worker forward the order, to which every worker's servers are the same. Raises `NotDone`."""
        path = f"/order/{order}?model={quote(model, safe='')}"
        try:
            reply = await self._supervisor.workers.ready[0].ask("POST", path, body, seconds=ORDER_SECONDS + 10)
        except (IndexError, WorkerLost):
            raise NotDone(503, "no_worker", "no worker answered: try again") from None
        if reply.status != 200:
            told = msgspec.json.decode(reply.body)
            raise NotDone(reply.status, told["code"], told["message"])

    def _tell_runtimes(self, endpoints: Sequence[dict[str, Any]]) -> None:
        """Workers know only the addresses of runtimes."""
        for endpoint in endpoints:
            if "pid" in endpoint and (runtime := self._supervisor.runtimes.get(endpoint["pool"])) is not None:
                endpoint |= {"pid": runtime.pid, "restarts": runtime.restarts}

    def _slots(self) -> list[dict[str, Any]]:
        slots = []
        for slot in self._supervisor.workers.slots:
            empty = {"slot": slot.number, "pid": None, "state": "waiting", "seconds": 0.0}
            described = empty if slot.worker is None else _described(slot.worker)
            slots.append({**described, "restarts": slot.restarts, "last_end": slot.last_end})
        return slots


def _described(worker: WorkerProcess) -> dict[str, Any]:
    seconds = round(time.monotonic() - worker.since, 1)
    return {"slot": worker.slot, "pid": worker.pid, "state": worker.state, "seconds": seconds}


async def _ask(workers: Sequence[WorkerProcess], path: str) -> Replies:
    """What those answer who do."""
    replies = await asyncio.gather(*(worker.ask("GET", path) for worker in workers), return_exceptions=True)
    for reply in replies:
        if isinstance(reply, BaseException) and not isinstance(reply, WorkerLost):
            raise reply
    answered = zip(workers, replies, strict=True)
    return [(worker, reply) for worker, reply in answered if isinstance(reply, Reply) and reply.status == 200]

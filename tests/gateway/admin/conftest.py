"""The operators' door over a real socket, with a real key database behind it and no gateway."""

import asyncio
import io
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from adapters.types import Order
from config.schema.config import Config
from config.schema.identity import GrantConfig
from gateway.admin.front import make_app
from gateway.admin.lifecycle import Lifecycle
from gateway.auth.audit import Act, Actor
from gateway.auth.certificates import Certificates, PeerCertificate
from gateway.auth.credentials import Credentials
from gateway.auth.keys import ApiKey, Principal
from gateway.auth.store import KeyStore
from gateway.auth.table import KeyTable
from gateway.auth.tokens import Tokens
from gateway.features.alerts.writer import AlertWriter
from gateway.features.batches.service import BatchService
from gateway.features.journal.files import WaitingFiles
from gateway.features.live.board import LiveBoard
from gateway.features.quota.report import StorageReport
from gateway.features.requests.writer import RequestWriter
from gateway.features.rollouts.decider import Decider
from gateway.features.usage.writer import UsageWriter
from gateway.telemetry.families import Families
from gateway.traffic.fleet.operations import NotDone, Operation
from policies.rollouts.tally import ShareOrder, StratumTally
from tests.support.gateways import PEPPER, config

ROOT = Actor("cli:root@here")
TENANTS = [{"name": "acme", "models": ["*"]}, {"name": "beta/eu", "models": ["chat"]}]


class StubBackend:
    """An `AdminBackend` with a fixed state that records acts."""

    def __init__(self, configuration: Config, folder: Path) -> None:
        self.config = configuration
        self.lifecycle = Lifecycle(folder / "headrace.yaml", configuration)
        self.store = KeyStore(f"sqlite:///{folder}/state/state.db", PEPPER)
        self.decider = Decider(lambda: self.config, self._exchange, lambda: PEPPER)
        files = WaitingFiles(lambda: self.config)
        self.usage = UsageWriter(lambda: self.config, lambda: PEPPER, files)
        self.requests = RequestWriter(lambda: self.config, files)
        self.batches: BatchService | None = None
        self.alerts = AlertWriter(lambda: self.config, lambda: PEPPER, self.usage)
        self.storage = StorageReport(lambda: self.config, lambda: PEPPER)
        self.live = LiveBoard(lambda: self.config, lambda: PEPPER, self)
        self.http_address = ("127.0.0.1", 8080)
        self.demo: ApiKey | None = None
        self.acts: list[Act] = []
        self.counted: list[tuple[str, int]] = []
        self.operations: list[Operation] = []
        self.orders: list[tuple[Order, str, bytes]] = []
        self.ready = True

    async def _exchange(self, orders: Sequence[ShareOrder]) -> list[StratumTally]:
        return []

    def key(self, tenant: str = "acme", **grant: Any) -> str:
        """One more key's plaintext."""
        made = self.store.create(tenant, by=ROOT, now=time.time(), grant=GrantConfig.model_validate(grant))
        return made.plaintext

    def authenticate(self, token: str | None, certificate: PeerCertificate | None, now_utc: float) -> Principal:
        table = KeyTable.build(self.config, PEPPER, self.store.read_live(now_utc).records.values())
        tokens = Tokens((), time.monotonic)
        tenants = [tenant.name for tenant in self.config.tenants]
        credentials = Credentials(table, tokens, Certificates(self.config.tenants), tenants)
        return credentials.authenticate(token, certificate, now_utc)

    def holder(self, key_id: str, now_utc: float) -> Principal | None:
        live = self.store.read_live(now_utc)
        return KeyTable.build(self.config, PEPPER, live.records.values()).holder(key_id, now_utc)

    async def count(self, principal: Principal, size: int) -> None:
        self.counted.append((principal.tenant, size))

    def note(self, act: Act) -> None:
        self.acts.append(act)

    def calls_socket(self) -> str | None:
        return None

    async def readiness(self) -> tuple[bool, dict[str, Any]]:
        return self.ready, {"status": "ready" if self.ready else "not ready"}

    async def metrics(self) -> Collector:
        requests = CounterMetricFamily("headrace_requests", "Requests.", 1)
        seconds = HistogramMetricFamily("headrace_seconds", "Seconds.")
        seconds.add_metric([], [("1.0", 1, Exemplar({"trace_id": "ab" * 16}, 0.5)), ("+Inf", 2)], 4.0)
        return Families([requests, seconds])

    async def state(self) -> dict[str, Any]:
        spent = [{"key": "k1", "amount": "2 usd"}]
        return {"tenants": [{"tenant": "acme", "in_flight": 3, "limits": [{"requests": "10/min"}], "spent": spent}]}

    async def load(self) -> dict[str, Any]:
        return {}

    async def minutes(self) -> dict[str, Any]:
        return {}

    async def pools(self) -> list[dict[str, Any]]:
        return [{"pool": "main"}]

    async def operate(self, operation: Operation) -> dict[str, Any]:
        if operation.pool != "main":
            raise NotDone(404, "no_such_pool", "no such pool")
        self.operations.append(operation)
        return {"endpoint": operation.endpoint}

    async def order(self, model: str, order: Order, body: bytes) -> None:
        if model != "chat":
            raise NotDone(404, "model_not_found", f"The model `{model}` does not exist.")
        self.orders.append((order, model, body))


class AdminDoor:
    """A listening door and a plain client."""

    def __init__(self, backend: StubBackend, url: str, http: aiohttp.ClientSession) -> None:
        self.backend = backend
        self.url = url
        self._http = http

    async def send(
        self, method: str, path: str, key: str | None = None, body: Any = None, **headers: str
    ) -> tuple[int, Any]:
        """Status and JSON, of a request as `curl` would send it with these headers."""
        sent = {"content-type": "application/json"} if method in ("POST", "PUT", "PATCH") else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            sent["authorization"] = f"Bearer {key}"
        data = None if body is None else io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
        async with self._http.request(method, self.url + path, data=data, headers=sent) as response:
            self.headers = response.headers
            text = await response.text()
            is_json = response.content_type == "application/json"
            return response.status, await response.json() if is_json else text


OpenDoor = Callable[..., AbstractAsyncContextManager[AdminDoor]]


@pytest.fixture
def admin_door(tmp_path: Path) -> OpenDoor:
    @asynccontextmanager
    async def open_door(
        add: Callable[[web.Application], None] = lambda _: None, **auth: bool
    ) -> AsyncIterator[AdminDoor]:
        state = {"database": f"sqlite:///{tmp_path}/state/state.db"}
        backend = StubBackend(config(tenants=TENANTS, auth={"admin": auth}, state=state), tmp_path)
        app = make_app(backend)
        add(app)
        runner = web.AppRunner(app, access_log=None, lingering_time=0.5)  # of a body that is not read
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        try:
            async with aiohttp.ClientSession() as http:
                yield AdminDoor(backend, f"http://{host}:{port}", http)
        finally:
            await runner.cleanup()
            await backend.storage.aclose()
            await asyncio.to_thread(backend.store.close)

    return open_door

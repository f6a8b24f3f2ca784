"""The batches of one process: the service of its fronts and the runner of its tasks."""

import asyncio
from collections.abc import Callable

from config.schema.config import Config
from gateway.features.batches.calls import LineCalls
from gateway.features.batches.gate import Gate
from gateway.features.batches.providers import Providers
from gateway.features.batches.runner import BatchRunner
from gateway.features.batches.service import BatchService
from gateway.features.batches.storage import StorageError
from gateway.features.batches.tasks import TaskLeases
from gateway.features.batches.work import BatchContext, DurableWork, is_final
from gateway.features.stored.keeper import Keeper
from gateway.request.core import Core
from gateway.state.errors import StateError
from gateway.state.insist import Insistence


class BatchPlane:
    """`run` until cancelled, then `aclose`. A process that serves requests also runs lines."""

    def __init__(self, config: Callable[[], Config], core: Core, pepper: Callable[[], bytes]) -> None:
        first = config()
        assert first.batches is not None
        self.service = BatchService(first.batches, first.state.database, pepper, core.wall, core.storage_quota)
        self.gate = Gate(lambda: core.snapshot, core.clock, first.batches.concurrency, first.batches.reserve)
        self.service.waits = self.gate.waits_of
        self.providers = Providers(lambda: core.snapshot)
        self._config = config
        self._core = core
        self._runner: BatchRunner | None = None
        self._draining = False

    async def run(self, keeper: Keeper | None) -> None:
        """Run tasks until cancelled."""
        if self._runner is None:  # a second run continues the tasks of the first one
            insist = Insistence("batches", StateError, StorageError, meanwhile="no line runs", ends=is_final)
            self._runner = BatchRunner(await insist("opening the storage", lambda: self._made(keeper)))
        self.service.created = self._runner.wake
        if not self._draining:
            await self._runner.run()

    @property
    def progress(self) -> list[tuple[str, str, int, int]]:
        """Tenant, state, lines and ended lines of each unfinished batch, as they were read last."""
        return [] if self._runner is None else self._runner.progress

    def drain(self) -> None:
        """Begin no further line."""
        self._draining = True
        if self._runner is not None:
            self._runner.drain()

    async def aclose(self) -> None:
        """Release the tasks, and close the database."""
        if self._runner is not None:
            await self._runner.aclose()
        await self.providers.aclose()
        self.service.close()

    async def _made(self, keeper: Keeper | None) -> BatchContext:
        service, loop = self.service, asyncio.get_running_loop()
        store = await loop.run_in_executor(service.threads, service.store)
        storage = await loop.run_in_executor(service.threads, service.storage, loop)
        leases = TaskLeases(store.database, self._core.clock, service.config.takeover)
        return BatchContext(
            durable=DurableWork(storage, store, leases, service.threads),
            config=service.config,
            gate=self.gate,
            calls=LineCalls(self._core, keeper),
            providers=self.providers,
            seals=service.seals,
            wall=service.wall,
            max_line=self._config().http.max_body,
            token_limit=self._token_limit,
            counts_usage=lambda: self._config().usage is not None,
        )

    def _token_limit(self, tenant: str) -> int | None:
        standing = self._core.snapshot.standings.get(tenant)
        return None if standing is None else standing.batches.enqueued_tokens

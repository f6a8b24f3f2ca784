"""The server as a process: listen, load, serve, drain."""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from adapters.http1.budget import Budget
from adapters.http1.server import Limits as HttpLimits
from adapters.http1.server import Server as HttpServer
from adapters.http2.accepted import Server as GrpcServer
from adapters.http2.call import Limits as GrpcLimits
from adapters.process import MAX_CONNECTIONS, clients_that_fit
from config.stores import StoreAddress
from runtimes.access import keyed
from runtimes.process import CannotStart, in_thread, listen, precedes, serve, stop_signal
from runtimes.spans import SpanBuffer
from runtimes.tensor.api.control import Control
from runtimes.tensor.api.grpc import GrpcDoor
from runtimes.tensor.api.http import HttpDoor
from runtimes.tensor.api.log_settings import LogSettings
from runtimes.tensor.api.metrics import Metrics
from runtimes.tensor.api.refusals import http_refusal
from runtimes.tensor.api.restrictions import Restriction, Restrictions
from runtimes.tensor.api.service import InferenceService
from runtimes.tensor.api.shared_memory import SharedMemory
from runtimes.tensor.api.trace import Tracer, TraceSettings
from runtimes.tensor.catalogue.repository import add
from runtimes.tensor.ensembles.processes import placement as ensemble_placement
from runtimes.tensor.ensembles.scheduler import EnsembleSchedulers
from runtimes.tensor.instances import placement
from runtimes.tensor.instances.services import ModelServices
from runtimes.tensor.models.loading import Parts
from runtimes.tensor.models.manager import ManagerOptions, ModelManager
from runtimes.tensor.models.records import ModelTable
from runtimes.tensor.models.repository import Repository, RepositoryError
from runtimes.tensor.schedulers import make_scheduler
from runtimes.tensor.scheduling.cached import ResponseStore
from runtimes.tensor.scheduling.clock import clock
from runtimes.tensor.stores import PulledStore, StoreOptions, Stores, stores_of
from runtimes.traced_handler import TracedHandler
from runtimes.wheels import ModelUnavailable

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Models and listeners: HTTP and gRPC each have a port of `host`, a Unix socket, both or neither."""

    repositories: tuple[Path | StoreAddress, ...]
    models: ManagerOptions
    stores: StoreOptions | None = None
    """For the repositories that are pulled."""
    added: tuple[str, ...] = ()
    """Models of the catalogue that the first repository gets before the models are loaded."""
    host: str = "127.0.0.1"
    http_port: int | None = None
    grpc_port: int | None = None
    http_socket: Path | None = None
    grpc_socket: Path | None = None
    max_body: int = 64 << 20
    """Bytes of one request, compressed or not."""
    max_held: int = 2 << 30
    """Bytes that request bodies may hold at once, over HTTP and gRPC together."""
    cache_size: int = 64 << 20
    """Bytes of stored responses, of all models that have a response cache."""
    shared_memory: tuple[str, ...] = ()
    """Globs of the keys that clients may use; shared memory is disabled without any."""
    restrict: tuple[Restriction, ...] = ()
    trace_file: str = ""
    drain_seconds: float = 30.0
    exit_with_parent: bool = False
    key: str = ""
    """The key that HTTP requests need; none if empty."""


def run(options: ServerOptions, logs: LogSettings) -> int:
    """Serve until a signal stops the server. Returns the exit status of the process."""
    return serve(_serve(options, logs))


async def _serve(options: ServerOptions, logs: LogSettings) -> int:
    store, table = ResponseStore(options.cache_size), ModelTable()
    ensembles = EnsembleSchedulers(table.describe, store)
    schedulers = functools.partial(make_scheduler, store=store, ensembles=ensembles)
    services = ModelServices()
    starts = (
        functools.partial(placement.start, services=services),
        functools.partial(
            ensemble_placement.start, describe=table.describe, folder_of=table.folder_of, services=services
        ),
    )
    parts = Parts(placement.complete, starts[0], schedulers, starts[1])
    roots, pulled = stores_of(options.repositories)
    repository = Repository(*roots)
    manager = ModelManager(repository, parts, options.models, table)
    stores = Stores(pulled, options.stores) if pulled and options.stores is not None else None
    server = _Server(options, manager, logs, services, pulled)
    ensembles.calls = server.service
    following: asyncio.Task[None] | None = None
    try:
        stop = stop_signal(exit_with_parent=options.exit_with_parent)
        await server.listen()
        if stores is not None:
            repository.refresh = stores.pull
        if await _added(options, stop) and await _loaded(manager, stores, stop):
            if stores is not None and options.models.mode == "poll":
                following = asyncio.create_task(stores.follow(options.models.poll_seconds), name="pull repositories")
            server.control.ready = True
            gc.freeze()  # exclude the modules, which stay loaded, from every later collection
            log.info("serving %d models", len({name for name, record in manager.table.records() if record.usable}))
            await stop.wait()
        server.control.ready = False
        log.info("draining for up to %g s", options.drain_seconds)
        await server.drain()
    except CannotStart as error:
        log.error("%s", error)
        return 1
    finally:
        if following is not None:
            following.cancel()
        await server.aclose()
        if stores is not None:
            await stores.aclose()
    return 0


async def _added(options: ServerOptions, stop: asyncio.Event) -> bool:
    """Add the models of the catalogue to the repository. False if `stop` was set first. Raises `CannotStart`."""
    for name in options.added:
        folder = options.repositories[0]
        assert isinstance(folder, Path)
        adding = in_thread(functools.partial(add, name, folder, progress=True), f"add {name}")
        if not await precedes(adding, stop):
            return False
        try:
            log.info("the repository has %s", adding.result())
        except ModelUnavailable as error:
            raise CannotStart(f"cannot add {name}: {error}") from None
    return True


async def _pulled_and_loaded(manager: ModelManager, stores: Stores | None) -> None:
    if stores is not None:
        await stores.start()
        stores.bind(manager)
    await manager.start()
    if stores is not None:
        stores.report()


async def _loaded(manager: ModelManager, stores: Stores | None, stop: asyncio.Event) -> bool:
    """Load the models. False if `stop` was set first. Raises `CannotStart`."""
    loading = asyncio.ensure_future(_pulled_and_loaded(manager, stores))
    if not await precedes(loading, stop):
        loading.cancel()
        with suppress(asyncio.CancelledError):
            await loading
        return False
    try:
        loading.result()
    except RepositoryError as error:
        raise CannotStart(str(error)) from None
    return True


class _Server:
    """Both listeners, and the objects behind them."""

    def __init__(
        self,
        options: ServerOptions,
        manager: ModelManager,
        logs: LogSettings,
        services: ModelServices,
        stores: tuple[PulledStore, ...],
    ) -> None:
        self._options = options
        self._manager = manager
        self._memory = SharedMemory(options.shared_memory)
        self._tracer = Tracer(TraceSettings(options.trace_file))
        self.control = Control(manager, self._memory, self._tracer, logs)
        self.service = service = InferenceService(manager, self._memory, self._tracer, logs)
        services.bind(service, manager)
        restrictions = Restrictions(options.restrict)
        size = options.max_body
        http = HttpDoor(service, self.control, Metrics(manager, services.metrics, stores), restrictions)
        clients = clients_that_fit(MAX_CONNECTIONS, files_each=2)  # one of each listener
        budget = Budget(options.max_held)
        traced = keyed(TracedHandler(http, SpanBuffer(clock(asyncio.get_running_loop()))), options.key)
        self._http = HttpServer(traced, HttpLimits(max_body=size, max_connections=clients), http_refusal, budget)
        grpc_limits = GrpcLimits(max_message=size, max_connections=clients)
        self._grpc = GrpcServer(GrpcDoor(service, self.control, restrictions), grpc_limits, budget)

    async def listen(self) -> None:
        """Start the listeners. From then on requests are answered, also while models load. Raises `CannotStart`."""
        options = self._options
        await listen(self._http, options.http_socket, options.host, options.http_port, "HTTP")
        await listen(self._grpc, options.grpc_socket, options.host, options.grpc_port, "gRPC", scheme="")

    async def drain(self) -> None:
        """Wait until requests in flight have ended."""
        seconds = self._options.drain_seconds
        await asyncio.gather(self._http.drain(seconds), self._grpc.drain(seconds))

    async def aclose(self) -> None:
        await asyncio.gather(self._http.aclose(), self._grpc.aclose())
        await self._manager.aclose()
        await self._tracer.aclose()
        self._memory.unregister()

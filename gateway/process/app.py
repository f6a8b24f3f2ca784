"""A gateway of one process: the data plane, the admin listener, and reloads of the configuration."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from adapters.temporary import TemporaryFolder
from config.loader import ConfigError
from config.schema.config import Config
from config.watcher import Watcher
from gateway.admin.front import make_app
from gateway.admin.lifecycle import ConfigInfo, Lifecycle
from gateway.admin.listener import AdminListener
from gateway.auth.keys import ApiKey
from gateway.background import Background
from gateway.errors import StartError
from gateway.features.placement.local import LocalRuntimes
from gateway.features.rollouts.decider import Decider
from gateway.features.rollouts.metrics import ComparisonMetrics
from gateway.features.scaling.actuator import PlaneActuator
from gateway.features.scaling.autoscaler import Autoscaler
from gateway.features.scaling.keda_listener import listen_to_keda
from gateway.features.scaling.metrics import ReplicaMetrics
from gateway.features.scaling.pattern import UsagePattern
from gateway.process.admin_backend import GatewayBackend
from gateway.process.data_plane import DataPlane
from gateway.process.host_writers import HostWriters
from gateway.traffic.fleet.member import FleetError
from gateway.traffic.fleet.server_tls import ServerTls
from policies.rollouts.tally import ShareOrder, StratumTally


class Gateway:
    """`start`, then `drain` and `aclose`; `reload` in between."""

    def __init__(self, path: Path, config: Config) -> None:
        """Raises `StartError`."""
        self.plane = DataPlane(config)
        self.lifecycle = Lifecycle(path, config)
        self.admin_address = ("", 0)
        self.keda_address: tuple[str, int] | None = None
        self._admin_tls = ServerTls(config.listen.tls if config.listen.admin_tls else None)
        self.decider = Decider(lambda: self.config, self._exchange, lambda: self.plane.identity.pepper)
        assert isinstance(self.plane.runtimes, LocalRuntimes)
        pattern = UsagePattern(lambda: self.config, lambda: self.writers.usage)
        actuator = PlaneActuator(self.plane.fleet, self.plane.runtimes)
        self.autoscaler = Autoscaler(lambda: self.config, actuator, pattern=pattern)
        self._background = Background()
        self._exits = AsyncExitStack()
        self.writers = HostWriters(lambda: self.config, lambda: self.plane.identity.pepper)
        self._exits.push_async_callback(self.writers.aclose)  # last: the plane leaves its counts to it
        self._exits.push_async_callback(self.plane.aclose)

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.lifecycle.config

    @property
    def demo(self) -> ApiKey | None:
        """The demo key, if the configuration has one."""
        return self.plane.demo

    @property
    def http_address(self) -> tuple[str, int]:
        """The address of the HTTP listener."""
        return self.plane.listeners.http_address

    @property
    def grpc_address(self) -> tuple[str, int] | None:
        """The address of the gRPC listener, if there is one."""
        return self.plane.listeners.grpc_address

    @property
    def picker_address(self) -> tuple[str, int] | None:
        """The address of the endpoint picker, if there is one."""
        return self.plane.listeners.picker_address

    async def start(self) -> None:
        """Open the data plane and listen. Runtimes may still be loading, see `/readyz`. Raises `StartError`."""
        self._load_admin_certificate()
        self.writers.prepare(self.config)
        await self.plane.open()
        folder = TemporaryFolder()  # only this user may enter it
        self._exits.callback(folder.cleanup)
        await self.plane.open_playground(f"{folder.name}/calls.sock")
        self.lifecycle.open(self.plane.identity.store, self._background, self._exits)
        self.lifecycle.started()
        self.plane.metrics.watch(ConfigInfo(self.lifecycle))
        await self._start_rollouts()
        self._start_writers()
        self.plane.metrics.watch(ReplicaMetrics(lambda: self.autoscaler.pools.values()))
        self._exits.callback(self._background.run(self.autoscaler.run, "replicas").cancel)
        await self._listen()

    async def _start_rollouts(self) -> None:
        """Put the stored shares in force before the first request, and decide from then on."""
        await self.decider.open()
        await self._exchange(self.decider.orders)
        self.plane.metrics.watch(ComparisonMetrics(self.decider))
        self._exits.push_async_callback(self.decider.aclose)
        self._exits.callback(self._background.run(self.decider.run, "rollouts").cancel)

    def _start_writers(self) -> None:
        for collector in self.writers.collectors():
            self.plane.metrics.watch(collector)
        for name, work in self.writers.works():
            self._exits.callback(self._background.run(work, name).cancel)

    async def _exchange(self, orders: Sequence[ShareOrder]) -> list[StratumTally]:
        counts = self.plane.rollouts.take()
        self.plane.rollouts.apply(orders)
        return counts

    async def _listen(self) -> None:
        backend = GatewayBackend(self.plane, self.lifecycle, self.decider, self.writers, self.autoscaler)
        admin, listen = AdminListener(make_app(backend)), self.config.listen
        self._exits.push_async_callback(admin.aclose)
        try:
            await self.plane.listeners.listen_tcp(listen)
            self.keda_address = await listen_to_keda(self.config, self.autoscaler, self._exits)
            address = listen.admin
            self.admin_address = await admin.listen_tcp(address.host, address.port, self._admin_tls.context)
        except OSError as error:
            raise StartError(f"listen: {error.strerror or error}") from None

    def _load_admin_certificate(self) -> None:
        try:
            self._admin_tls.load()
        except FleetError as error:
            raise StartError(str(error)) from None

    def watch(self, watcher: Watcher) -> None:
        """Follow the configuration's file until the gateway closes."""
        self._exits.callback(self._background.run(watcher.run, "configuration").cancel)

    async def reload(self, config: Config) -> None:
        """Put a new configuration in force, or log why it cannot be."""
        try:
            self._admin_tls.load()
            change = await self.plane.prepare(config)
        except FleetError as error:
            self.lifecycle.reload_failed(str(error))
            return
        self.plane.commit(change, self.decider.warm())
        self.lifecycle.reloaded(config)

    def reload_failed(self, error: ConfigError | str) -> None:
        """Record that a changed file is not a valid configuration."""
        self.lifecycle.reload_failed(error)

    async def models_without_endpoint(self) -> list[str]:
        """Names of models for which no route leads to an eligible endpoint."""
        return self.plane.models_without_endpoint()

    async def drain(self) -> bool:
        """Stop accepting and wait for requests. True if all ended within the configured time."""
        if self.plane.accepting:
            self.lifecycle.note("gateway.drain")
        return await self.plane.drain()

    async def aclose(self) -> None:
        """Close every part, in the reverse order of its creation."""
        self.plane.accepting = False
        self.lifecycle.note("gateway.stop")
        await self._exits.aclose()

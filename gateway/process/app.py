"""A gateway of one process: the data plane, the admin listener, and reloads of the configuration."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from adapters.process import TemporaryFolder
from config.loader import ConfigError
from config.schema.config import Config
from config.watcher import Watcher
from gateway.admin.lifecycle import ConfigInfo, Lifecycle
from gateway.admin.listener import AdminListener
from gateway.auth.keys import ApiKey
from gateway.background import Background
from gateway.errors import StartError
from gateway.process.data_plane import DataPlane
from gateway.process.host import HostFeatures
from gateway.process.own_runtimes import OwnRuntimes
from gateway.traffic.fleet.member import FleetError
from gateway.traffic.fleet.server_tls import ServerTls
from policies.rollouts.tally import ShareOrder, StratumTally

if TYPE_CHECKING:
    from aiohttp import web

    from gateway.features.live.board import LoadSource
    from gateway.features.scaling.actuator import Actuator


class Gateway:
    """`start`, then `drain` and `aclose`; `reload` in between."""

    def __init__(self, path: Path, config: Config) -> None:
        """Raises `StartError`."""
        self.plane = DataPlane(config)
        self.lifecycle = Lifecycle(path, config)
        self.admin_address = ("", 0)
        self.keda_address: tuple[str, int] | None = None
        self._admin_tls = ServerTls(config.listen.tls if config.listen.admin_tls else None)
        self.plane.listeners.certificates["admin"] = self._admin_tls
        self._background = Background()
        self._exits = AsyncExitStack()
        self.host = HostFeatures(
            lambda: self.config, lambda: self.plane.identity.pepper, self._exchange, self._actuator,
            self._source, self._background, self.plane.metrics.registry,
        )  # fmt: skip
        self._exits.push_async_callback(self.host.aclose)  # last: the plane leaves its counts to it
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
        self.host.prepare(self.config)
        await self.plane.open()
        folder = TemporaryFolder()  # only this user may enter it
        self._exits.callback(folder.cleanup)
        await self.plane.open_playground(f"{folder.name}/calls.sock")
        self.lifecycle.open(self.plane.identity.store, self._background, self._exits)
        self.lifecycle.started()
        self.plane.metrics.watch(ConfigInfo(self.lifecycle))
        self._exits.push_async_callback(self.host.end)
        await self.host.open()
        await self.plane.features.catch_up(self.config)
        self.host.configure(self.config)
        await self._listen()

    async def _exchange(self, orders: Sequence[ShareOrder]) -> list[StratumTally]:
        rollouts = self.plane.features.rollouts
        counts = rollouts.take()
        rollouts.apply(orders)
        return counts

    def _actuator(self) -> "Actuator":
        from gateway.features.scaling.actuator import PlaneActuator

        assert isinstance(self.plane.runtimes, OwnRuntimes)
        return PlaneActuator(self.plane.fleet, self.plane.runtimes.local)

    def _source(self) -> "LoadSource":
        from gateway.process.admin_backend import PlaneBackend

        return PlaneBackend(self.plane)

    async def _listen(self) -> None:
        admin, listen = AdminListener(self._admin_app), self.config.listen
        self._exits.push_async_callback(admin.aclose)
        try:
            await self.plane.listeners.listen_tcp(listen)
            self.keda_address = await self.host.listen_to_keda(self._exits)
            address = listen.admin
            self.admin_address = await admin.listen_tcp(address.host, address.port, self._admin_tls.contexts)
        except OSError as error:
            raise StartError(f"listen: {error.strerror or error}") from None

    def _admin_app(self) -> "web.Application":
        from gateway.admin.front import make_app
        from gateway.process.admin_backend import GatewayBackend

        return make_app(GatewayBackend(self.plane, self.lifecycle, self.host))

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
        self.plane.commit(change, self.host.warm())
        self.lifecycle.reloaded(config)
        self.host.configure(config)

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

"""The Ray clusters of the configuration, and of each the driver's process, and the replicas that it places."""

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from adapters.lasting import lasting
from config.schema.runtimes.ray import PlacedRuntime, RayConfig
from gateway.features.placement.guard import printable
from gateway.features.placement.ray.runtime import RayRuntime, describe, spec_of
from gateway.traffic.fleet.runtime import OnExit

log = logging.getLogger(__name__)
DRIVER = Path(__file__).with_name("driver.py")
FIRST_BACKOFF = 0.5
LONGEST_BACKOFF = 30.0
MAX_MESSAGE = 16 << 20
DEFAULTS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_CLIENT_RECONNECT_GRACE_PERIOD": "0"}
"""Variables of the driver. A driver whose connection to Ray Client is lost ends, and the next one connects anew."""
ALWAYS = {"RAY_ENABLE_AUTO_CONNECT": "0"}
"""Without it, Ray answers a call without a connection by the start of a cluster on the gateway's machine."""


class RayCluster:
    """Starts the driver with the first replica, and again after each end. Replicas keep their last address without it.

    Messages of the driver are trusted: it is a program of this package.
    """

    def __init__(self, config: RayConfig) -> None:
        self.address = config.address
        self.nodes: int | None = None
        """The nodes that are alive; None without a connection."""
        self.error = ""
        """The reason why there is no connection."""
        self._python = config.driver or sys.executable
        self._owner = uuid4().hex
        self._replicas: dict[str, RayRuntime] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def driver(self) -> int | None:
        """The process id of the driver; None without one."""
        return self._process.pid if self._process is not None else None

    def replicas(self) -> list[RayRuntime]:
        """The replicas that are placed here."""
        return list(self._replicas.values())

    def occupies(self, pool: str) -> bool:
        """Whether a replica of a pool is placed here."""
        return any(runtime.name == pool for runtime in self._replicas.values())

    # ── replicas ──────────────────────────────────────────────────────────────────────────────────────

    def place(self, runtime: RayRuntime) -> None:
        """Run a replica from now on."""
        self._replicas[runtime.spec.name] = runtime
        self._send(describe(runtime.spec))
        if self._task is None:
            self._task = asyncio.create_task(lasting(name := f"ray {self.address}", self._supervise), name=name)

    async def release(self, runtime: RayRuntime) -> None:
        """Let go of a replica."""
        if self._replicas.get(runtime.spec.name) is runtime:
            del self._replicas[runtime.spec.name]
            spec = runtime.spec
            self._send({"release": {"name": spec.name, "namespace": spec.namespace}})

    async def aclose(self) -> None:
        """End the driver. The replicas continue until their leases end."""
        self._replicas = {}
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    # ── the driver ────────────────────────────────────────────────────────────────────────────────────

    def _send(self, message: dict[str, Any]) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _supervise(self) -> None:
        backoff = FIRST_BACKOFF
        while True:
            self.error = ""
            ended = await self._run_once()
            if self.nodes is not None:
                backoff = FIRST_BACKOFF
            self.nodes, reason = None, self.error or ended
            log.error("Ray at %s: the driver %s; the replicas that respond stay in use", self.address, reason)
            self.error = reason
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, LONGEST_BACKOFF)

    async def _run_once(self) -> str:
        """Run the driver until it ends. Returns how it ended."""
        env = {**DEFAULTS, **os.environ, **ALWAYS}
        try:
            process = await asyncio.create_subprocess_exec(
                self._python, str(DRIVER), self.address, env=env, limit=MAX_MESSAGE,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=sys.stderr,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return f"could not be started: {self._python}: {error.strerror}"
        self._process = process
        try:
            self._send({"owner": self._owner})
            for runtime in self._replicas.values():
                self._send(describe(runtime.spec))
            assert process.stdout is not None
            while line := await process.stdout.readline():
                self._receive(json.loads(line))
            return f"ended with status {await process.wait()}"
        finally:
            self._process = None
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _receive(self, message: dict[str, Any]) -> None:
        if "connected" in message:
            if message["connected"] != self.nodes:
                log.info("Ray at %s: %d nodes", self.address, message["connected"])
            self.nodes, self.error = message["connected"], ""
        elif "error" in message:
            if self.error != message["error"]:
                log.error("Ray at %s: %s", self.address, message["error"])
            self.error = message["error"]
        elif "state" in message:
            if (runtime := self._replicas.get(message["state"]["name"])) is not None:
                runtime.report(message["state"])
        elif (runtime := self._replicas.get(message["log"]["name"])) is not None:
            for text in message["log"]["lines"]:
                log.info("runtime %s: %s", runtime.label, printable(text))


class RayClusters:
    """Creates replicas in clusters, and the clusters for them."""

    def __init__(self) -> None:
        self._clusters: dict[tuple[str, str | None], RayCluster] = {}

    def __iter__(self) -> Iterator[RayCluster]:
        return iter(self._clusters.values())

    def make(self, pool: str, config: PlacedRuntime, on_exit: OnExit, number: int) -> RayRuntime:
        """A replica of a pool's runtime."""
        assert config.ray is not None
        place = (config.ray.address, config.ray.driver)
        if place not in self._clusters:
            self._clusters[place] = RayCluster(config.ray)
        return RayRuntime(pool, config, spec_of(pool, number, config), number, on_exit, self._clusters[place])

    def occupies(self, pool: str) -> bool:
        """Whether a replica of a pool is placed in a cluster."""
        return any(cluster.occupies(pool) for cluster in self)

    async def aclose(self) -> None:
        """End the drivers. The replicas continue until their leases end."""
        await asyncio.gather(*(cluster.aclose() for cluster in self))
        self._clusters = {}

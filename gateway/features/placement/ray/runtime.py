"""One replica in a Ray cluster: its command line, and its address while a node runs it."""

import logging
import re
import weakref
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Protocol

import msgspec

from config.schema.config import LlmRuntime, RuntimeConfig, TensorRuntime
from config.schema.runtimes.ray import PlacedRuntime
from gateway.features.placement.launch import llm_arguments, tensor_arguments
from gateway.traffic.fleet.runtime import EVERYWHERE, OnExit

KEY_VARIABLE = "HEADRACE_RUNTIME_KEY"
STOP_SECONDS = 40.0
"""Seconds between SIGTERM and SIGKILL: the server finishes its requests."""
log = logging.getLogger(__name__)
CRASH_LOOP = 3
"""Ends in a row, each soon after a start, after which a replica is reported as failing."""


class ReplicaSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A replica, as the driver receives it."""

    name: str
    """The name of its actor: pool, number and a digest of everything that the server depends on."""
    group: str
    """The replicas that `strategy` places with regard to each other, as a part of a resource's name."""
    namespace: str
    python: str | None
    command: list[str]
    """Arguments of the interpreter. ``{host}`` and ``{port}`` are those of the node."""
    env: dict[str, str]
    resources: dict[str, float]
    strategy: str
    lease: float
    stop_seconds: float = STOP_SECONDS


def spec_of(pool: str, number: int, config: PlacedRuntime) -> ReplicaSpec:
    """The replica `number` of a pool's runtime."""
    assert config.ray is not None
    ray, env = config.ray, dict(config.env)
    env |= {name: value.get_secret_value() for name, value in config.secrets.items()}
    if ray.key is not None:
        env[KEY_VARIABLE] = ray.key.get_secret_value()
    spec = ReplicaSpec(
        name="",
        group="",
        namespace=ray.namespace,
        python=ray.python,
        command=_command(pool, config),
        env=env,
        resources=config.required.required(),
        strategy=ray.strategy,
        lease=ray.lease,
    )
    digest = blake2b(msgspec.json.encode(spec, order="sorted"), digest_size=6).hexdigest()
    group = re.sub(r"\W", "_", f"{pool}_{digest}")
    return msgspec.structs.replace(spec, name=f"{pool}/{number}#{digest}", group=group)


def _command(pool: str, config: PlacedRuntime) -> list[str]:
    line = ["-m", f"runtimes.{config.kind}", "--host", "{host}", "--exit-with-parent"]
    if isinstance(config, LlmRuntime):
        return [*line, "--port", "{port}", *llm_arguments(pool, config, int(config.required.cpus))]
    assert isinstance(config, TensorRuntime)
    return [*line, "--http-port", "{port}", *tensor_arguments(config)]


def describe(spec: ReplicaSpec) -> dict[str, Any]:
    """The message that places a replica."""
    return {"place": msgspec.to_builtins(spec)}


class PlacedIn(Protocol):
    """The cluster of a replica."""

    def place(self, runtime: "RayRuntime") -> None:
        """Run a replica on some node from now on."""

    async def release(self, runtime: "RayRuntime") -> None:
        """Let go of a replica. It finishes its requests and ends, unless another gateway uses it."""


class RayRuntime:
    """A replica. `address` is empty while no node runs it, and changes when another node does."""

    def __init__(
        self, name: str, config: PlacedRuntime, spec: ReplicaSpec, number: int, on_exit: OnExit, cluster: PlacedIn
    ) -> None:
        self.name = name
        self.number = number
        self.config: RuntimeConfig = config
        self.spec = spec
        self.place = EVERYWHERE
        self.address = ""
        self.restarts = 0
        self.failing = ""
        """The reason why it does not run, if waiting alone does not help; else empty."""
        self.state = "pending"
        """``pending``, ``placed``, ``lost`` or ``failed``."""
        self.pid: int | None = None
        """The id of its process on its node; None without one."""
        self._on_exit = on_exit
        self._cluster = cluster
        self._moved: list[weakref.WeakMethod[Callable[[str], object]]] = []
        self._reported = set[str]()
        """The problems since it was placed."""

    @property
    def label(self) -> str:
        """Its name for operators."""
        return self.name if self.config.replicas.most == 1 else f"{self.name}/{self.number}"

    def start(self) -> None:
        """Run it on some node until `stop`."""
        self._cluster.place(self)

    async def stop(self) -> None:
        """Let go of it. It finishes its requests on its node."""
        self._moved.clear()
        await self._cluster.release(self)

    def follow(self, moved: Callable[[str], object]) -> None:
        """Call a method with each new address, as long as its object exists."""
        self._moved.append(weakref.WeakMethod(moved))

    # ── reports of the driver ─────────────────────────────────────────────────────────────────────────

    def report(self, state: dict[str, Any]) -> None:
        """Apply a state."""
        self.state, reason = state["state"], state["reason"]
        if self.state == "placed":
            self._placed(state)
            return
        self.pid = None
        self.failing = reason if self.state == "failed" or reason.startswith("no node ") else ""
        if self.state == "pending" and self.address:
            return  # a new driver has not reached it yet: its health check decides
        if self.address:
            self.restarts += 1
            self._move("")
            self._on_exit(f"was lost: {reason}" if reason else "was lost")
        problem = self.failing or self.state
        if reason and problem not in self._reported:
            quiet = logging.INFO if self.state == "pending" else logging.WARNING
            log.log(logging.ERROR if self.failing else quiet, "runtime %s on Ray: %s", self.label, reason)
            self._reported.add(problem)

    def _placed(self, state: dict[str, Any]) -> None:
        self._reported.clear()
        ended = state["ends"] > 0 and state["pid"] is None
        if ended:
            self._on_exit(state["last_end"])
        crashes = state["ends"] >= CRASH_LOOP
        if crashes and not self.failing:
            log.error("runtime %s on Ray %s, %d times in a row", self.label, state["last_end"], state["ends"])
        self.failing = state["last_end"] if crashes else ""
        self.pid = state["pid"]
        if self.address != state["address"]:
            log.info("runtime %s runs at %s", self.label, state["address"])
            self._move(state["address"])

    def _move(self, address: str) -> None:
        self.address = address
        for method in list(self._moved):
            if (moved := method()) is not None:
                moved(address)

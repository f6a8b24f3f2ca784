"""The interface of a runtime that this or another process started."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from config.schema.config import RuntimeConfig
from config.schema.runtimes.bundled import LlmRuntime
from config.schema.runtimes.ray import PlacedRuntime

GPUS = "CUDA_VISIBLE_DEVICES"
THREADS = "OMP_NUM_THREADS"
T = TypeVar("T")
OnExit = Callable[[str], None]


class Place(NamedTuple):
    """Cores and GPUs; empty for all."""

    cores: tuple[int, ...] = ()
    gpus: tuple[str, ...] = ()

    def variables(self, config: RuntimeConfig) -> dict[str, str]:
        """The environment variables by which libraries use the place, unless the section sets them."""
        variables = {GPUS: ",".join(self.gpus)} if self.gpus else {}
        if self.cores:
            variables[THREADS] = str(len(self.cores))
        return {name: value for name, value in variables.items() if name not in config.env}


EVERYWHERE = Place()


def place_of(config: RuntimeConfig, number: int) -> Place:
    """The place of the replica `number`. Replicas that together exceed the machine share cores or GPUs. In a Ray
    cluster, Ray places it."""
    if isinstance(config, PlacedRuntime) and config.on == "ray":
        return EVERYWHERE
    replicas = config.replicas
    if replicas.most == 1:
        return Place(_turn(_cores(), replicas.cpus or 0, number))
    share = replicas.cpus or len(_cores()) // replicas.most
    return Place(_turn(_cores(), share, number), _turn(_gpus(config), replicas.gpus, number))


def _turn(present: Sequence[T], share: int, number: int) -> tuple[T, ...]:
    """The part of the replica `number`, in turn. Empty for all."""
    if not share or share >= len(present):
        return ()
    return tuple(present[(number * share + step) % len(present)] for step in range(share))


def _cores() -> list[int]:
    """The cores that this process may use; empty on systems that cannot restrict a process to some."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def _gpus(config: RuntimeConfig) -> list[str]:
    if GPUS in config.env or (isinstance(config, LlmRuntime) and config.device == "cpu"):
        return []
    if (visible := os.environ.get(GPUS)) is not None:
        return [name for name in visible.split(",") if name]
    numbers = (match[1] for path in Path("/dev").glob("nvidia*") if (match := re.fullmatch(r"nvidia(\d+)", path.name)))
    return sorted(numbers, key=int)


class CannotLaunch(Exception):
    """The runtime cannot be started. The message is a sentence for operators."""


class Runtime(Protocol):
    """A server that listens at `address`."""

    name: str
    config: RuntimeConfig
    address: str
    """The address as an endpoint's URL."""
    restarts: int

    @property
    def pid(self) -> int | None:
        """The id of its process; None if it is unknown or not running."""

    def start(self) -> None:
        """Start it and keep it running until `stop`."""

    async def stop(self) -> None:
        """Release it."""


@runtime_checkable
class MovingRuntime(Protocol):
    """A runtime whose address may change, such as one in a cluster."""

    def follow(self, moved: Callable[[str], object]) -> None:
        """Call a method with each new address, as long as its object exists."""


class OwnRuntime(Runtime, Protocol):
    """A runtime that this process started, on this machine or in a cluster."""

    number: int
    place: Place

    @property
    def label(self) -> str:
        """Its name for operators."""

    @property
    def failing(self) -> str:
        """The reason why it does not run, if waiting alone does not help; else empty."""


class Runtimes(Protocol):
    """A source of runtimes."""

    def replicas(self, name: str, config: RuntimeConfig) -> Mapping[int, str]:
        """The numbers of the replicas of the pool `name` that should run, and their addresses if they are known."""

    def make(self, name: str, config: RuntimeConfig, on_exit: OnExit, number: int = 0) -> Runtime:
        """A replica of the runtime of the pool `name`; `on_exit` receives the reason, if its end is observed.

        Raises `CannotLaunch`.
        """

    async def leave(self) -> None:
        """Let go of the runtimes that outlive this process. Their `stop` then has no effect."""

    def close(self) -> None:
        """Release the resources of all runtimes, which have been stopped."""


class NoRuntimes:
    """A source without runtimes, for a fleet whose servers all run elsewhere."""

    def replicas(self, name: str, config: RuntimeConfig) -> Mapping[int, str]:
        """None."""
        return {}

    def make(self, name: str, config: RuntimeConfig, on_exit: OnExit, number: int = 0) -> Runtime:
        """Raises `CannotLaunch`."""
        raise CannotLaunch(f"{name}: no runtimes can be started here")

    async def leave(self) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing is held."""

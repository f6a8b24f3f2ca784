"""The interface of a runtime that this or another process started."""

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from config.schema.config import RuntimeConfig
from gateway.traffic.fleet.place import Place

OnExit = Callable[[str], None]


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

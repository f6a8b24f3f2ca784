"""The interface of a runtime that this or another process started."""

from collections.abc import Callable
from typing import Protocol

from config.schema.config import RuntimeConfig

OnExit = Callable[[str], None]


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


class Runtimes(Protocol):
    """A source of runtimes."""

    def make(self, name: str, config: RuntimeConfig, on_exit: OnExit) -> Runtime:
        """The runtime of the pool `name`; `on_exit` receives the reason, if its end is observed.

        Raises `CannotLaunch`.
        """

    def close(self) -> None:
        """Release the resources of all runtimes, which have been stopped."""

"""The interface of a runtime, whichever process started it."""

from collections.abc import Callable
from typing import Protocol

from config.schema.config import RuntimeConfig

OnExit = Callable[[str], None]


class Runtime(Protocol):
    """A server that listens at `address`."""

    name: str
    config: RuntimeConfig
    address: str
    """As an endpoint's URL."""
    restarts: int

    @property
    def pid(self) -> int | None:
        """Its process, where that is known and there is one."""

    def start(self) -> None:
        """Want it to run, until `stop`."""

    async def stop(self) -> None:
        """Want it no more."""


class Runtimes(Protocol):
    """Where runtimes come from."""

    def make(self, name: str, config: RuntimeConfig, on_exit: OnExit) -> Runtime:
        """The runtime of the pool `name`; `on_exit` hears why, when it is known to have ended.

        Raises `CannotLaunch`.
        """

    def close(self) -> None:
        """None is needed any more; all have been stopped."""

"""The runtimes that a gateway of one process starts itself. Their module is imported for the first of them."""

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from config.schema.config import RuntimeConfig
from gateway.traffic.fleet.runtime import OnExit, OwnRuntime

if TYPE_CHECKING:
    from gateway.features.placement.local import LocalRuntimes


class OwnRuntimes:
    """The `Runtimes` of a fleet. Without a pool of a runtime nothing is made."""

    @cached_property
    def local(self) -> "LocalRuntimes":
        """The child processes, and the replicas in Ray clusters."""
        from gateway.features.placement.local import LocalRuntimes

        return LocalRuntimes()

    def replicas(self, name: str, config: RuntimeConfig) -> Mapping[int, str]:
        """The replicas of a pool that should run. Their addresses are not known before they are made."""
        return self.local.replicas(name, config)

    def make(self, name: str, config: RuntimeConfig, on_exit: OnExit, number: int = 0) -> OwnRuntime:
        """Create a replica of the runtime of a pool. Raises `CannotLaunch`."""
        return self.local.make(name, config, on_exit, number)

    async def leave(self) -> None:
        """Let go of the replicas in Ray clusters."""
        if "local" in vars(self):
            await self.local.leave()

    def close(self) -> None:
        """Remove what is left; all runtimes have been stopped."""
        if "local" in vars(self):
            self.local.close()

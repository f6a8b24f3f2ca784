"""Runtimes that the supervisor started for all workers."""

from collections import Counter
from collections.abc import Mapping

from config.schema.config import RuntimeConfig
from gateway.placement.runtime import OnExit


class LentRuntime:
    """Its health is what probes say: nobody tells of its exit."""

    def __init__(self, name: str, config: RuntimeConfig, address: str, in_use: Counter[str]) -> None:
        self.name = name
        self.config = config
        self.address = address
        self.restarts = 0
        self._in_use = in_use

    @property
    def pid(self) -> int | None:
        """The supervisor knows."""
        return None

    def start(self) -> None:
        """It runs, or will."""
        self._in_use[self.address] += 1

    async def stop(self) -> None:
        """It goes on for others."""
        self._in_use[self.address] -= 1


class LentRuntimes:
    """Hands out what is lent by pool, and knows which of it is still in use."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self.addresses = addresses
        """By pool; replaced before a new configuration is prepared."""
        self._in_use: Counter[str] = Counter()

    def make(self, name: str, config: RuntimeConfig, on_exit: OnExit) -> LentRuntime:
        return LentRuntime(name, config, self.addresses[name], self._in_use)

    def in_use(self) -> list[str]:
        """The addresses that requests may still go to."""
        return [address for address, count in self._in_use.items() if count > 0]

    def close(self) -> None:
        """Nothing here is ours."""

"""Runtimes that the supervisor started for all workers."""

from collections import Counter
from collections.abc import Mapping

from config.schema.config import RuntimeConfig
from gateway.traffic.fleet.runtime import OnExit


class SupervisorRuntime:
    """A runtime of the supervisor. Only probes report its health: its exit is not reported here."""

    def __init__(self, name: str, config: RuntimeConfig, address: str, in_use: Counter[str]) -> None:
        self.name = name
        self.config = config
        self.address = address
        self.restarts = 0
        self._in_use = in_use

    @property
    def pid(self) -> int | None:
        """Unknown here: the supervisor has the process."""
        return None

    def start(self) -> None:
        """Count a user. The supervisor has started the runtime."""
        self._in_use[self.address] += 1

    async def stop(self) -> None:
        """Remove a user. The runtime continues for the other workers."""
        self._in_use[self.address] -= 1


class SupervisorRuntimes:
    """Returns the lent runtimes by pool, and counts the users of each."""

    def __init__(self, addresses: Mapping[str, Mapping[int, str]]) -> None:
        self.addresses = addresses
        """Addresses by pool and replica; replaced before a new configuration is prepared."""
        self._in_use: Counter[str] = Counter()

    def replicas(self, name: str, config: RuntimeConfig) -> Mapping[int, str]:
        """The replicas of a pool, with their addresses."""
        return self.addresses.get(name, {})

    def make(self, name: str, config: RuntimeConfig, on_exit: OnExit, number: int = 0) -> SupervisorRuntime:
        """A replica of the runtime of a pool."""
        return SupervisorRuntime(name, config, self.addresses[name][number], self._in_use)

    def in_use(self) -> list[str]:
        """The addresses that requests may still use."""
        return [address for address, count in self._in_use.items() if count > 0]

    async def leave(self) -> None:
        """Does nothing: the supervisor owns the runtimes."""

    def close(self) -> None:
        """Does nothing: the supervisor owns the runtimes."""

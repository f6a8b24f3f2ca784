"""The command line of a runtime, and the address where the runtime listens."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Launch:
    """The launch of a runtime. `address`: an endpoint's URL. `stop_seconds`: the time between SIGTERM and SIGKILL."""

    command: list[str]
    address: str
    stop_seconds: float
    env: Mapping[str, str]
    """The whole environment of the process."""
    cwd: Path | None = None

    @property
    def socket(self) -> Path | None:
        """The path of the Unix socket where it listens; None for TCP."""
        kind, _, path = self.address.partition(":")
        return Path(path) if kind == "unix" else None

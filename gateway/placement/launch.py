"""The command line of a runtime, and the address where the runtime listens."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


class CannotLaunch(Exception):
    """What is missing, in a sentence for ops."""


@dataclass(frozen=True, slots=True)
class Launch:
    """`address`: as an endpoint's URL. `stop_seconds`: what it may take to end, once it is told to by SIGTERM."""

    command: list[str]
    address: str
    stop_seconds: float
    env: Mapping[str, str]
    """All that it gets."""
    cwd: Path | None = None

    @property
    def socket(self) -> Path | None:
        """Where it listens, if that is a file."""
        kind, _, path = self.address.partition(":")
        return Path(path) if kind == "unix" else None

"""Free TCP ports on loopback for child processes that cannot listen on a Unix socket."""

import random
import socket
from collections.abc import Iterable

from gateway.traffic.fleet.runtime import CannotLaunch

CHOICES = range(20_000, 32_768)
"""Below the range of ephemeral ports, one of which another connection could use when the child restarts."""
ATTEMPTS = 200


class Ports:
    """Reserved ports. Each is reserved from `take` to `give_back`, whether its owner listens or not."""

    def __init__(self) -> None:
        self._taken: set[int] = set()

    def take(self) -> int:
        """Reserve a port that no process listens on. Raises `CannotLaunch`."""
        for _ in range(ATTEMPTS):
            port = random.choice(CHOICES)
            if port not in self._taken and _is_free(port):
                self._taken.add(port)
                return port
        raise CannotLaunch(f"no port from {CHOICES[0]} to {CHOICES[-1]} is free")

    def give_back(self, ports: Iterable[int]) -> None:
        """Release reserved ports."""
        self._taken.difference_update(ports)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True

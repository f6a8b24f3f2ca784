"""The clients' ports, bound once for each slot of a worker."""

import socket

from adapters.http1.listeners import BACKLOG
from config.schema.units import HostPort


class Sockets:
    """Listening sockets that share one port. The kernel spreads new connections over them.

    They are open as long as the supervisor is: what waits in the backlog of one whose worker died waits for
    whoever is to accept from it next. One list a slot, since `localhost` may be two addresses; those of HTTP come
    first, those of gRPC from `grpc_from` on.
    """

    def __init__(self, address: HostPort, grpc: HostPort | None = None) -> None:
        self._addresses = _resolve(address)
        self.grpc_from = len(self._addresses)
        if grpc is not None:
            self._addresses += _resolve(grpc)
        self.slots: list[list[socket.socket]] = []

    def grow(self, slots: int) -> None:
        """Have at least that many slots. Raises `OSError`."""
        if not self.slots:
            for family, address in self._addresses:
                _check_free(family, address)
        while len(self.slots) < slots:
            self.slots.append([_listen(self._addresses[i][0], self._same_port(i)) for i in range(len(self._addresses))])

    def _same_port(self, index: int) -> tuple[str, int]:
        """The kernel chooses once for port 0."""
        host, port = self._addresses[index][1]
        return (host, self._name(index)[1]) if port == 0 and self.slots else (host, port)

    def _name(self, index: int) -> tuple[str, int]:
        name = self.slots[0][index].getsockname()
        return name[0], name[1]

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens, with the port that was chosen for 0."""
        return self._name(0)

    @property
    def grpc_address(self) -> tuple[str, int] | None:
        """Where it listens for gRPC, if it does."""
        return self._name(self.grpc_from) if self.grpc_from < len(self._addresses) else None

    def numbers(self) -> list[list[int]]:
        """The file descriptors by slot."""
        return [[one.fileno() for one in slot] for slot in self.slots]

    def close(self) -> None:
        """A socket closes for good when no worker has it either."""
        for slot in self.slots:
            for one in slot:
                one.close()
        self.slots = []


def _resolve(address: HostPort) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    if address.port == 0:
        found = found[:1]  # two addresses would get two ports
    return [(family, (str(name[0]), int(name[1]))) for family, _, _, _, name in found]


def _check_free(family: socket.AddressFamily, address: tuple[str, int]) -> None:
    """Sockets that share their port would share it with another gateway's too, and take half of its clients."""
    with _socket(family) as alone:
        alone.bind(address)


def _listen(family: socket.AddressFamily, address: tuple[str, int]) -> socket.socket:
    bound = _socket(family)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
        bound.setblocking(False)
    except BaseException:
        bound.close()
        raise
    return bound


def _socket(family: socket.AddressFamily) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return made

"""The listening sockets for clients, bound once for each worker slot."""

import asyncio
import errno
import socket

from adapters.http1.listeners import BACKLOG
from config.schema.listen import ListenerKind
from config.schema.units import HostPort
from gateway.process.supervisor.handover import Pair, inbox

ORPHANS_SECONDS = 5.0
"""Seconds in which workers notice the end of their supervisor and stop listening."""


class Sockets:
    """Listening sockets that share one port. The kernel spreads new connections over them.

    The supervisor holds them open, so that a worker's end does not reset the connections in its backlog. Each slot
    has a list, since `localhost` may resolve to two addresses; `kinds` has the listener of each of its sockets. A slot
    also has an inbox, for connections that other workers have accepted.
    """

    def __init__(self, address: HostPort, grpc: HostPort | None = None, picker: HostPort | None = None) -> None:
        self._addresses: list[tuple[socket.AddressFamily, tuple[str, int]]] = []
        self.kinds: list[ListenerKind] = []
        listeners: list[tuple[ListenerKind, HostPort | None]] = [
            ("http", address), ("grpc", grpc), ("endpoint_picker", picker)
        ]  # fmt: skip
        for kind, each in listeners:
            resolved = [] if each is None else _resolve(each)
            self._addresses += resolved
            self.kinds += [kind] * len(resolved)
        self.slots: list[list[socket.socket]] = []
        self.inboxes: list[Pair] = []

    async def begin(self, slots: int) -> None:
        """Like `grow`, at the start. Waits while the workers of a supervisor that was killed still have the port."""
        loop = asyncio.get_running_loop()
        end = loop.time() + ORPHANS_SECONDS
        while True:
            try:
                return self.grow(slots)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or loop.time() >= end:
                    raise
            await asyncio.sleep(0.05)

    def grow(self, slots: int) -> None:
        """Bind sockets for at least `slots` slots. Raises `OSError`."""
        if not self.slots:
            for family, address in self._addresses:
                _check_free(family, address)
        while len(self.slots) < slots:
            self.slots.append([_listen(self._addresses[i][0], self._same_port(i)) for i in range(len(self._addresses))])
            self.inboxes.append(inbox())

    def _same_port(self, index: int) -> tuple[str, int]:
        """The address to bind. For port 0, the port that the kernel selected for the first slot."""
        host, port = self._addresses[index][1]
        return (host, self._name(index)[1]) if port == 0 and self.slots else (host, port)

    def _name(self, index: int) -> tuple[str, int]:
        name = self.slots[0][index].getsockname()
        return name[0], name[1]

    @property
    def address(self) -> tuple[str, int]:
        """The HTTP address, with the port that the kernel selected for port 0."""
        return self._name(0)

    @property
    def grpc_address(self) -> tuple[str, int] | None:
        """The gRPC address, if there is one."""
        return self._name(self.kinds.index("grpc")) if "grpc" in self.kinds else None

    @property
    def picker_address(self) -> tuple[str, int] | None:
        """The address of the endpoint picker, if there is one."""
        return self._name(self.kinds.index("endpoint_picker")) if "endpoint_picker" in self.kinds else None

    def numbers(self) -> list[list[int]]:
        """The file descriptors by slot."""
        return [[one.fileno() for one in slot] for slot in self.slots]

    def inbox_numbers(self) -> list[tuple[int, int]]:
        """The file descriptors of both ends of the inboxes by slot."""
        return [(taking.fileno(), giving.fileno()) for taking, giving in self.inboxes]

    def close(self) -> None:
        """Close the supervisor's copies. A socket closes for good when no worker has a copy."""
        for slot in (*self.slots, *self.inboxes):
            for one in slot:
                one.close()
        self.slots, self.inboxes = [], []


def _resolve(address: HostPort) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    resolved = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    if address.port == 0:
        resolved = resolved[:1]  # two addresses would get two ports
    return [(family, (str(name[0]), int(name[1]))) for family, _, _, _, name in resolved]


def _check_free(family: socket.AddressFamily, address: tuple[str, int]) -> None:
    """Raise `OSError` if the port is in use: SO_REUSEPORT would silently share it with another gateway."""
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

"""Hands accepted connections over to other workers.

Each slot has an inbox: a pair of Unix sockets that all workers and the supervisor hold. A connection on its way is in
the kernel, and one process receives it: a worker that has given it takes it back if the other worker does not take it.
"""

import asyncio
import fcntl
import os
import socket
import struct
import termios
from collections.abc import Callable, Sequence

from config.schema.listen import ListenerKind
from gateway.process.supervisor.loads import KINDS, LoadTable, WorkerLoads, WorkerWords

PATIENCE = 0.05
"""Seconds after which a worker takes back a connection."""
MOST = 16
"""Connections taken in one turn of the loop."""

Pair = tuple[socket.socket, socket.socket]


class Handover:
    """The inboxes of all workers, for one of them. `adopt` serves a connection."""

    def __init__(
        self, inboxes: Sequence[Pair], slot: int, row: int, table: LoadTable,
        adopt: Callable[[ListenerKind, socket.socket], None],
    ) -> None:  # fmt: skip
        self._loop = asyncio.get_running_loop()
        self._inboxes = inboxes
        self._slot, self._row = slot, row
        self._table = table
        self._adopt = adopt
        self._members = dict[ListenerKind, ListenerSiblings]()
        self._given = dict[tuple[ListenerKind, int], tuple[WorkerWords, float]]()
        """The words of workers, by kind and row, when they were given connections that they may not have taken."""
        self._check: asyncio.TimerHandle | None = None
        self._is_open = True
        self._loop.add_reader(self._inbox(slot), self._take, slot, MOST)

    def _inbox(self, slot: int) -> socket.socket:
        return self._inboxes[slot][0]

    def member(self, kind: ListenerKind) -> "ListenerSiblings":
        """This worker among those that accept connections of a kind."""
        if kind not in self._members:
            self._members[kind] = ListenerSiblings(self, self._table.loads(self._row, self._slot, kind), kind)
        return self._members[kind]

    def waiting(self, slot: int) -> int:
        """The number of connections on their way to a slot: each is one byte."""
        if slot >= len(self._inboxes):
            return 1 << 30  # of a worker that started after this one
        (count,) = struct.unpack("i", fcntl.ioctl(self._inbox(slot), termios.FIONREAD, bytes(4)))
        return int(count)

    def send(self, kind: ListenerKind, to: WorkerWords, accepted: socket.socket) -> bool:
        """Give a connection. False if that is not possible now."""
        if not self._is_open:
            return False
        try:
            socket.send_fds(self._inboxes[to.slot][1], [bytes((KINDS.index(kind),))], [accepted.fileno()])
        except OSError:
            return False
        accepted.close()
        self._given.setdefault((kind, to.row), (to, self._loop.time()))
        if self._check is None:
            self._check = self._loop.call_later(PATIENCE, self._take_back)
        return True

    def _take(self, slot: int, most: int) -> None:
        """Serve connections of an inbox."""
        for _ in range(most):
            try:
                kind, descriptors, _, _ = socket.recv_fds(self._inbox(slot), 1, 1, socket.MSG_CMSG_CLOEXEC)
            except OSError:  # another process was faster
                return
            for descriptor in descriptors:
                self._adopt(KINDS[kind[0]], socket.socket(fileno=descriptor))

    def _take_back(self) -> None:
        """Serve connections that another worker has not taken for a while."""
        self._check, now = None, self._loop.time()
        given, self._given = self._given, {}
        for (kind, row), (before, since) in given.items():
            if not self.waiting(before.slot):
                continue
            loads = self.member(kind).loads
            if (seen := loads.seen(row)) != before and seen.slot == before.slot:
                self._given[kind, row] = (seen, now)
            elif now - since < PATIENCE / 2:
                self._given[kind, row] = (before, since)
            else:
                loads.silence(seen)
                self._take(before.slot, self.waiting(before.slot))
        if self._given:
            self._check = self._loop.call_later(PATIENCE, self._take_back)

    def close(self) -> None:
        """Give and take no more. Serves the connections of the own inbox, and those that others have not taken."""
        if not self._is_open:
            return
        self._is_open = False
        for member in self._members.values():
            member.leave()
        if self._check is not None:
            self._check.cancel()
        self._loop.remove_reader(self._inbox(self._slot))
        for slot in {self._slot, *(seen.slot for seen, _ in self._given.values())}:
            self._take(slot, self.waiting(slot))


class ListenerSiblings:
    """One worker among those that accept connections of a kind."""

    def __init__(self, handover: Handover, loads: WorkerLoads, kind: ListenerKind) -> None:
        self.loads = loads
        self._handover = handover
        self._kind = kind
        loads.join()

    def give(self, accepted: socket.socket) -> bool:
        """Hand a connection over to another worker if that one has fewer. False if this worker must serve it."""
        least = self.loads.least(self._handover.waiting)
        return least is not None and self._handover.send(self._kind, least, accepted)

    def arrived(self) -> None:
        """Count a new connection of this worker."""
        self.loads.count()

    def hold(self, connections: int) -> None:
        """This worker has that number of open connections."""
        self.loads.hold(connections)

    def leave(self) -> None:
        """Accept no more."""
        self.loads.leave()


def inbox() -> Pair:
    """Both ends of an inbox."""
    taking, giving = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    for end in (taking, giving):
        end.setblocking(False)
        os.set_inheritable(end.fileno(), True)
    return taking, giving

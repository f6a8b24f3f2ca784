"""One of several processes that serve clients: a gateway whose sockets are lent, and which does as it is told."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

import uvloop

from adapters.http1.listeners import Listeners
from config.handover import unpack
from config.schema.config import Config
from gateway.app import Gateway, Lent, StartError
from gateway.auth.keys import ApiKey, id_of
from gateway.limits.shared import SharedTable
from gateway.placement.lent import LentRuntimes
from gateway.signals import until
from gateway.supervisor.control import Control
from gateway.supervisor.orders import Orders, Report, Terms, decode, encode
from gateway.supervisor.share import share
from gateway.traffic.fleet import Change
from gateway.traffic.operations import adopt

log = logging.getLogger(__name__)
LAST_SECONDS = 15.0
"""What an orphan gets beyond its drain, be it stuck or not."""


def run() -> int:
    """Read the orders from standard input and serve; the process's exit status."""
    orders = decode(sys.stdin.buffer.readline(), Orders)
    label = f"worker-{orders.slot}"
    logging.basicConfig(
        level=logging.INFO, format=f"%(asctime)s %(levelname)s {label} %(name)s %(message)s", force=True
    )
    return uvloop.run(_work(orders))


async def _work(orders: Orders) -> int:
    leave, cut = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_terminate() -> None:
        (cut if leave.is_set() else leave).set()

    loop.add_signal_handler(signal.SIGTERM, on_terminate)
    loop.add_signal_handler(signal.SIGINT, cut.set)
    try:
        worker = Worker(orders)
        _when_orphaned(lambda: loop.call_soon_threadsafe(leave.set), worker.gateway.config.drain + LAST_SECONDS)
        await worker.start()
    except (StartError, ValueError) as error:
        _report(orders.report, Report(str(error)))
        return 2
    gc.collect()
    gc.freeze()  # what is loaded by now stays: no collection need look at it again
    _report(orders.report, Report())
    if await until(cut, leave.wait()):
        await until(cut, worker.drain())
    await worker.aclose()
    return 0


def _report(fd: int, report: Report) -> None:
    with open(fd, "wb") as pipe:
        pipe.write(encode(report) + b"\n")


def _when_orphaned(leave: Callable[[], object], seconds: float) -> None:
    """Standard input ends with the supervisor, however that ends. A thread notices even if the loop is stuck."""

    def watch() -> None:
        # Not `sys.stdin`: a thread that reads from it holds its lock, for which the interpreter aborts at its end.
        while os.read(descriptor, 4096):
            continue
        with contextlib.suppress(RuntimeError):  # the loop is closed: we are leaving already
            leave()
        time.sleep(seconds)
        os._exit(1)

    descriptor = sys.stdin.fileno()
    threading.Thread(target=watch, name="orphan watch", daemon=True).start()


class Worker:
    """The gateway of one slot."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._lent = LentRuntimes(orders.terms.runtimes)
        demo = ApiKey(id_of(orders.demo) or "", orders.demo) if orders.demo else None
        table = SharedTable.attach(orders.limits, worker=orders.limit_slot)
        self.gateway = Gateway(Path(orders.path), self._config(orders.terms), Lent(self._lent, demo, table))
        self._sockets = [[socket.socket(fileno=fd) for fd in slot] for slot in orders.listeners]
        self._accepting: dict[int, list[tuple[Listeners, asyncio.Server]]] = {}
        self._change: Change | None = None
        self._draining: asyncio.Task[bool] | None = None
        self._control = Control(self)

    def _config(self, terms: Terms) -> Config:
        return share(unpack(terms.config), self._orders.slot, terms.workers)

    async def start(self) -> None:
        """Be ready for what the supervisor asks. Raises `StartError`."""
        try:
            await self.gateway.open()
            if self._orders.overrides:
                adopt(self.gateway.fleet, self._orders.overrides)
            await self._control.open(self._orders.control)
        except BaseException:
            await self.aclose()
            raise

    # ── what the supervisor asks ──────────────────────────────────────────────────────────────────────

    async def accept(self, slots: Collection[int]) -> None:
        """Accept from the sockets of these slots, and of no other."""
        for slot in [slot for slot in self._accepting if slot not in slots]:
            for server, listener in self._accepting.pop(slot):
                server.leave_socket(listener)
        for slot in slots:
            if slot not in self._accepting and slot < len(self._sockets):
                listening = enumerate(self._sockets[slot])
                grpc_from = self._orders.grpc_from
                self._accepting[slot] = [
                    await self.gateway.listen_socket(bound, grpc=i >= grpc_from) for i, bound in listening
                ]

    def let_go(self) -> None:
        """Close all sockets that are not accepted from: they are about to close for good."""
        for slot, sockets in enumerate(self._sockets):
            if slot not in self._accepting:
                for bound in sockets:
                    bound.close()

    async def prepare(self, terms: Terms) -> None:
        """Make ready for other terms. Raises `FleetError` or `ValueError` and goes on as before."""
        self.abandon()
        self._lent.addresses = terms.runtimes
        self._change = await self.gateway.prepare(self._config(terms))

    def commit(self) -> None:
        """Put the terms prepared into force."""
        change, self._change = self._change, None
        assert change is not None
        self.gateway.commit(change)

    def abandon(self) -> None:
        """The terms prepared do not come."""
        change, self._change = self._change, None
        if change is not None:
            self.gateway.abandon(change)

    def runtimes_in_use(self) -> list[str]:
        """The addresses of runtimes that requests may still go to."""
        return self._lent.in_use()

    async def drain(self) -> None:
        """Take no more, and return when requests in flight have ended or their time is up."""
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain())
        await asyncio.shield(self._draining)

    async def _drain(self) -> bool:
        listening = self._sockets
        done = self.gateway.drain()
        self._sockets, self._accepting = [], {}
        for bound in [bound for slot in listening for bound in slot]:
            bound.close()  # the server has copies, which it closes when it has taken what waits
        return await done

    async def aclose(self) -> None:
        """End at once."""
        await self._control.aclose()
        await self.gateway.aclose()

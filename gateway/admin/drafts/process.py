"""Runs the process that reads drafts within bounds of time, memory and number."""

import asyncio
import sys
from typing import NamedTuple

import msgspec

from gateway.admin.drafts.child import OUT_OF_MEMORY
from gateway.admin.drafts.orders import DraftOrder, DraftResult

MOST_RUNNING = 2
MOST_WAITING = 8
MOST_RESULT = 64 * 1024**2
_SECONDS = {"show": 30, "check": 60, "replay": 120}
"""Seconds of processor time, and of waiting for the result."""


class DraftRefused(Exception):
    """An order that was not done. `status` and `code` are for the client."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class DraftBounds(NamedTuple):
    """Bounds of one process."""

    cpu: int
    wall: float


class DraftProcesses:
    """Runs orders, each in a process of its own."""

    def __init__(self, slower: float = 1.0) -> None:
        """`slower` multiplies the time of an order."""
        self._slower = slower
        self._places = asyncio.Semaphore(MOST_RUNNING)
        self._waiting = 0

    async def run(self, order: DraftOrder) -> DraftResult:
        """The result of an order. Raises `DraftRefused`."""
        if self._waiting >= MOST_WAITING:
            raise DraftRefused(503, "overloaded", "too many drafts are being checked: retry later")
        self._waiting += 1
        try:
            async with self._places:
                return await self._run(order)
        finally:
            self._waiting -= 1

    async def _run(self, order: DraftOrder) -> DraftResult:
        cpu = max(int(_SECONDS[order.task] * self._slower), 1)
        bounds = DraftBounds(cpu, 4.0 * cpu)  # the machine may be busy
        data = await asyncio.to_thread(msgspec.msgpack.encode, order)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "gateway.admin.drafts.child", str(bounds.cpu)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(bounds.wall):
                output, _ = await process.communicate(data)
        except TimeoutError:
            output = b""
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        status = process.returncode or 0
        if status == OUT_OF_MEMORY or status < 0:
            raise DraftRefused(422, "draft_too_large", _exceeded(order, bounds))
        if status:
            raise RuntimeError(f"the process of a draft ended with status {status}")
        return await asyncio.to_thread(msgspec.msgpack.decode, output, type=DraftResult)


def _exceeded(order: DraftOrder, bounds: DraftBounds) -> str:
    return (
        f"the {order.task} needed more than {bounds.cpu} s of processor time or too much memory: "
        "use `headrace check` and `headrace replay` for this file"
    )

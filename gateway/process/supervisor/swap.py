"""Puts new settings in force in all workers at once, or in none."""

import asyncio
import logging
from collections.abc import Sequence

from config.schema.config import Config
from gateway.process.supervisor.messages import WorkerSettings, encode
from gateway.process.supervisor.process import WorkerLost, WorkerProcess
from gateway.process.supervisor.runtimes import SharedRuntimes
from gateway.process.supervisor.workers import Workers
from gateway.traffic.fleet.runtime import OwnRuntime

log = logging.getLogger(__name__)
PREPARE_SECONDS = 60.0
POLL_SECONDS = 0.25


class ReloadRefused(Exception):
    """A worker refused the new settings. The message is its reason."""


async def swap(workers: Workers, settings: WorkerSettings, config: Config) -> None:
    """Prepare in every worker, which may take long, then commit in all, which is fast. Raises `ReloadRefused`."""
    seconds = PREPARE_SECONDS + max((p.runtime.start_timeout for p in config.pools if p.runtime), default=0.0)
    first = workers.ready
    await _prepare(workers, first, settings, seconds)
    async with workers.lock:
        await _prepare(workers, [worker for worker in workers.ready if worker not in first], settings, seconds)
        workers.settings = settings
        await asyncio.gather(*(_commit(worker) for worker in workers.ready))


async def _prepare(workers: Workers, group: Sequence[WorkerProcess], settings: WorkerSettings, seconds: float) -> None:
    """Prepare in a group of workers. If one refuses, all abandon the settings. Raises `ReloadRefused`."""
    refusals = await asyncio.gather(*(_refusal(worker, encode(settings), seconds) for worker in group))
    if why := next(filter(None, refusals), None):
        await asyncio.gather(*(worker.call("POST", "/abandon") for worker in workers.ready), return_exceptions=True)
        raise ReloadRefused(why)


async def _refusal(worker: WorkerProcess, settings: bytes, seconds: float) -> str:
    """A worker's reason to refuse the settings. Empty if it accepts, or has ended and thus will be replaced."""
    try:
        reply = await worker.call("POST", "/prepare", settings, seconds=seconds)
    except WorkerLost:
        return ""
    return "" if reply.status == 200 else f"worker {worker.slot}: {reply.body.decode(errors='replace')}"


async def _commit(worker: WorkerProcess) -> None:
    """Commit in one worker. Stop a worker that fails: its successor starts with the new settings."""
    try:
        if (await worker.call("POST", "/commit")).status == 200:
            return
    except WorkerLost:
        pass
    log.error("worker %d cannot apply the configuration and is replaced", worker.slot)
    await worker.stop()


async def retire(runtime: OwnRuntime, runtimes: SharedRuntimes, workers: Workers) -> None:
    """Stop a replaced runtime when its time as a warm one is over and no worker uses it any more, unless a reload uses
    it again."""
    while (seconds := runtimes.leaves_in(runtime)) is not None:
        if seconds == 0 and not await _in_use(runtime.address, workers) and runtimes.leaves_in(runtime) == 0:
            await runtimes.stop(runtime)
            return
        await asyncio.sleep(max(seconds, POLL_SECONDS))


async def _in_use(address: str, workers: Workers) -> bool:
    if not address:
        return False
    calls = (worker.call("GET", "/runtimes") for worker in workers.everyone)
    replies = await asyncio.gather(*calls, return_exceptions=True)
    return any(isinstance(reply, BaseException) or address.encode() in reply.body for reply in replies)

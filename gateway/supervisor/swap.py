"""Other terms for all workers at one moment, or for none."""

import asyncio
import logging
from collections.abc import Sequence

from config.schema.config import Config
from gateway.placement.local import LocalRuntime
from gateway.supervisor.orders import Terms, encode
from gateway.supervisor.process import WorkerLost, WorkerProcess
from gateway.supervisor.workers import Workers

log = logging.getLogger(__name__)
PREPARE_SECONDS = 60.0
POLL_SECONDS = 0.25


class Refused(Exception):
    """Why the workers do not take other terms."""


async def swap(workers: Workers, terms: Terms, config: Config) -> None:
    """Every worker prepares, which may take long; then all commit, which does not. Raises `Refused`."""
    patience = PREPARE_SECONDS + max((p.runtime.start_timeout for p in config.pools if p.runtime), default=0.0)
    first = workers.ready
    await _prepare(workers, first, terms, patience)
    async with workers.lock:
        await _prepare(workers, [worker for worker in workers.ready if worker not in first], terms, patience)
        workers.terms = terms
        await asyncio.gather(*(_commit(worker) for worker in workers.ready))


async def _prepare(workers: Workers, group: Sequence[WorkerProcess], terms: Terms, seconds: float) -> None:
    """Raises `Refused` when one cannot, and then all go on as before."""
    refusals = await asyncio.gather(*(_refusal(worker, encode(terms), seconds) for worker in group))
    if why := next(filter(None, refusals), None):
        await asyncio.gather(*(worker.ask("POST", "/abandon") for worker in workers.ready), return_exceptions=True)
        raise Refused(why)


async def _refusal(worker: WorkerProcess, terms: bytes, seconds: float) -> str:
    """Why it does not take these terms; empty where it does, or has died, for its successor begins under others."""
    try:
        reply = await worker.ask("POST", "/prepare", terms, seconds=seconds)
    except WorkerLost:
        return ""
    return "" if reply.status == 200 else f"worker {worker.slot}: {reply.body.decode(errors='replace')}"


async def _commit(worker: WorkerProcess) -> None:
    """One that fails now is replaced by one that begins under these terms."""
    try:
        if (await worker.ask("POST", "/commit")).status == 200:
            return
    except WorkerLost:
        pass
    log.error("worker %d did not take the configuration, and is replaced", worker.slot)
    await worker.stop()


async def retire(runtime: LocalRuntime, workers: Workers) -> None:
    """Stop a runtime when no worker asks it any more."""
    while await _in_use(runtime.address, workers):  # noqa: ASYNC110 - rare, and asked across processes
        await asyncio.sleep(POLL_SECONDS)
    await runtime.stop()


async def _in_use(address: str, workers: Workers) -> bool:
    asked = (worker.ask("GET", "/runtimes") for worker in workers.everyone)
    replies = await asyncio.gather(*asked, return_exceptions=True)
    return any(isinstance(reply, BaseException) or address.encode() in reply.body for reply in replies)

"""Other terms for all workers at one moment, or for none."""

import asyncio
import logging
from collections.abc import Sequence

from config.schema.config import Config
from gateway.placement.local import LocalRuntime
from gateway.supervisor.crew import Crew
from gateway.supervisor.orders import Terms, encode
from gateway.supervisor.process import WorkerLost, WorkerProcess

log = logging.getLogger(__name__)
PREPARE_SECONDS = 60.0
POLL_SECONDS = 0.25


class Refused(Exception):
    """Why the workers do not take other terms."""


async def swap(crew: Crew, terms: Terms, config: Config) -> None:
    """Every worker prepares, which may take long; then all commit, which does not. Raises `Refused`."""
    patience = PREPARE_SECONDS + max((p.runtime.start_timeout for p in config.pools if p.runtime), default=0.0)
    asked = crew.ready
    await _prepare(crew, asked, terms, patience)
    async with crew.lock:
        await _prepare(crew, [worker for worker in crew.ready if worker not in asked], terms, patience)
        crew.terms = terms
        await asyncio.gather(*(_commit(worker) for worker in crew.ready))


async def _prepare(crew: Crew, workers: Sequence[WorkerProcess], terms: Terms, seconds: float) -> None:
    """Raises `Refused` when one cannot, and then all go on as before."""
    refusals = await asyncio.gather(*(_refusal(worker, encode(terms), seconds) for worker in workers))
    if why := next(filter(None, refusals), None):
        await asyncio.gather(*(worker.ask("POST", "/abandon") for worker in crew.ready), return_exceptions=True)
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


async def retire(runtime: LocalRuntime, crew: Crew) -> None:
    """Stop a runtime when no worker asks it any more."""
    while await _in_use(runtime.address, crew):  # noqa: ASYNC110 - rare, and asked across processes
        await asyncio.sleep(POLL_SECONDS)
    await runtime.stop()


async def _in_use(address: str, crew: Crew) -> bool:
    asked = (worker.ask("GET", "/runtimes") for worker in crew.everyone)
    replies = await asyncio.gather(*asked, return_exceptions=True)
    return any(isinstance(reply, BaseException) or address.encode() in reply.body for reply in replies)

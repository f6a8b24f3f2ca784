"""`headrace serve`: from the command line to a running gateway, and back to nothing on a signal."""

import asyncio
import gc
import logging
import sys
from pathlib import Path

import uvloop

from adapters.open_files import raise_limit
from adapters.temporary import sweep
from config.schema.config import Config
from config.watcher import Watcher
from gateway import first_request
from gateway.app import Gateway, StartError
from gateway.signals import Signals, each, until
from gateway.supervisor.supervisor import Supervisor

log = logging.getLogger(__name__)
READY_POLL = 0.1


def run(path: Path, config: Config) -> int:
    """Serve until told to stop; the process's exit status."""
    raise_limit()
    return uvloop.run(_serve(path, config))


async def _serve(path: Path, config: Config) -> int:
    signals = Signals()
    await asyncio.to_thread(sweep)
    try:
        gateway = Supervisor(path, config) if config.workers > 1 else Gateway(path, config)
    except StartError as error:
        return _cannot_start(error)
    watcher = Watcher(path, gateway.reload, gateway.reload_failed)  # now: an edit during the start counts too
    gateway.watcher = watcher
    try:
        if await until(signals.stop, gateway.start()):
            await _run(gateway, watcher, signals)
    except StartError as error:
        await gateway.aclose()
        return _cannot_start(error)
    log.info("draining for at most %g s", gateway.config.drain)
    if not await until(signals.stop_now, gateway.drain()):
        log.warning("second signal: stopping at once")
    await gateway.aclose()
    log.info("stopped")
    return 0


async def _run(gateway: Gateway | Supervisor, watcher: Watcher, signals: Signals) -> None:
    """Follow the file and the operators' signals until one of them stops the gateway."""

    async def restart() -> None:
        if isinstance(gateway, Gateway):
            log.warning("SIGUSR2 restarts workers one by one, and there is one process only: nothing is done")
        elif not gateway.restart():
            log.warning("the workers are being restarted already")

    gateway.watch(watcher)
    gc.collect()
    gc.freeze()  # what is loaded by now stays: no collection need look at it again
    tasks = [
        asyncio.create_task(each(signals.reload, watcher.reload_now)),
        asyncio.create_task(each(signals.restart, restart)),
        asyncio.create_task(_announce(gateway)),
    ]
    try:
        await signals.stop.wait()
    finally:
        for task in tasks:
            task.cancel()


async def _announce(gateway: Gateway | Supervisor) -> None:
    """Say where, and once a model answers, how."""
    config = gateway.config
    scheme = "https" if config.listen.tls else "http"
    base = f"{scheme}://{_written(gateway.address)}"
    admin = "https" if config.listen.admin_tls else "http"
    grpc = f"gRPC: {_written(gateway.grpc_address)}, " if gateway.grpc_address is not None else ""
    _say(f"Headrace listens on {base} ({grpc}admin: {admin}://{_written(gateway.admin_address)})")
    waiting = await _waiting(gateway)
    if waiting:
        _say(f"Starting: {', '.join(waiting)}")
    while await _waiting(gateway):  # noqa: ASYNC110 - a person is waiting, not a program
        await asyncio.sleep(READY_POLL)
    _say("Ready.")
    if gateway.demo is not None:
        _say(f"Demo key (until this process ends, this machine only): {gateway.demo.plaintext}")
        if lines := await first_request.command(config, base, gateway.demo.plaintext):
            _say("Try:")
            for line in lines:
                _say(f"  {line}")


async def _waiting(gateway: Gateway | Supervisor) -> list[str]:
    """Models that have no endpoint yet."""
    return gateway.models_without_endpoint() if isinstance(gateway, Gateway) else await gateway.missing()


def _cannot_start(error: StartError) -> int:
    _say(f"headrace cannot start: {error}")
    return 2


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _written(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

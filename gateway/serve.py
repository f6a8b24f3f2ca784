"""`headrace serve`: from the command line to a running gateway, and back to nothing on a signal."""

import asyncio
import gc
import logging
import signal
import sys
from pathlib import Path

import uvloop

from config.schema import Config
from config.watcher import Watcher
from gateway.app import Gateway, StartError
from gateway.supervisor.supervisor import Supervisor

log = logging.getLogger(__name__)
READY_POLL = 0.1


def run(path: Path, config: Config) -> int:
    """Serve until told to stop; the process's exit status."""
    return uvloop.run(_serve(path, config))


async def _serve(path: Path, config: Config) -> int:
    try:
        gateway = Supervisor(path, config) if config.workers > 1 else Gateway(path, config)
    except StartError as error:
        return _cannot_start(error)
    watcher = Watcher(path, gateway.reload, gateway.reload_failed)  # now: an edit during the start counts too
    gateway.watcher = watcher
    try:
        await gateway.start()
    except StartError as error:
        await gateway.aclose()
        return _cannot_start(error)
    stop = asyncio.Event()
    closing: asyncio.Task[bool] | None = None
    reloads: set[asyncio.Task[None]] = set()

    def reload_now() -> None:
        task = asyncio.create_task(watcher.reload_now())
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    def restart_workers() -> None:
        if isinstance(gateway, Gateway):
            log.warning("SIGUSR2 restarts workers one by one, and there is one process only: nothing is done")
        elif not gateway.restart():
            log.warning("the workers are being restarted already")

    def told_to_stop() -> None:
        if stop.is_set():
            log.warning("second signal: stopping at once")
        if closing is not None:
            closing.cancel()
        stop.set()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, reload_now)
    loop.add_signal_handler(signal.SIGUSR2, restart_workers)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told_to_stop)
    gateway.watch(watcher)
    gc.collect()
    gc.freeze()  # what is loaded by now stays: no collection need look at it again
    announcing = asyncio.create_task(_announce(gateway))
    await stop.wait()
    announcing.cancel()
    log.info("draining for at most %g s", gateway.config.drain)
    closing = asyncio.create_task(gateway.drain())
    await asyncio.wait([closing])
    await gateway.aclose()
    log.info("stopped")
    return 0


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
        model = next((m.name for m in config.models), "")
        _say(f"Demo key (until this process ends, this machine only): {gateway.demo.plaintext}")
        _say("Try:")
        _say(f"  curl {base}/v1/chat/completions \\")
        _say(f"    -H 'Authorization: Bearer {gateway.demo.plaintext}' -H 'Content-Type: application/json' \\")
        body = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "What is a river?"}}]}}'
        _say(f"    -d '{body}'")


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

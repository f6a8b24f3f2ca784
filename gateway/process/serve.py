"""`headrace serve`: runs a gateway until a signal stops it."""

import asyncio
import logging
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from adapters import process as temporary
from adapters.process import raise_limit, sweep
from config.schema.config import Config
from config.watcher import Watcher
from gateway.background import Background
from gateway.errors import StartError
from gateway.process.signals import Signals, until

if TYPE_CHECKING:  # one of them runs
    from gateway.process.app import Gateway
    from gateway.process.supervisor.supervisor import Supervisor

log = logging.getLogger(__name__)
READY_POLL = 0.1


def run(path: Path, config: Config) -> int:
    """Serve until a signal. Returns the exit status."""
    raise_limit()
    return uvloop.run(_serve(path, config))


async def _serve(path: Path, config: Config) -> int:
    signals = Signals()
    await asyncio.to_thread(sweep)
    try:
        gateway = _made(path, config)
    except StartError as error:
        return _cannot_start(error)
    watcher = Watcher(path, gateway.reload, gateway.reload_failed)  # before the start, to notice edits during the start
    gateway.lifecycle.watcher = watcher
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


def _made(path: Path, config: Config) -> "Gateway | Supervisor":
    if config.workers == 1:
        from gateway.process.app import Gateway

        return Gateway(path, config)
    from gateway.process.supervisor.supervisor import Supervisor

    return Supervisor(path, config)


async def _run(gateway: "Gateway | Supervisor", watcher: Watcher, signals: Signals) -> None:
    """Follow the configuration's file and signals until a signal stops the gateway."""

    async def restart() -> None:
        from gateway.process.app import Gateway

        if isinstance(gateway, Gateway):
            log.warning("SIGUSR2 ignored: it restarts workers, and `workers: 1` has none")
        elif not gateway.restart():
            log.warning("SIGUSR2 ignored: the workers are being restarted already")

    gateway.watch(watcher)
    temporary.freeze_heap()
    background = Background()
    acts = {signal.SIGHUP: watcher.reload_now, signal.SIGUSR2: restart}
    background.run(partial(signals.follow, acts), "signals")
    background.once(_announce(gateway), "announcement")
    try:
        await signals.stop.wait()
    finally:
        await background.cancel()


async def _announce(gateway: "Gateway | Supervisor") -> None:
    """Print the addresses, and when all models are ready, a first request to try."""
    config = gateway.config
    scheme = "https" if config.listen.tls else "http"
    base = f"{scheme}://{_host_port(gateway.http_address)}"
    admin = "https" if config.listen.admin_tls else "http"
    grpc = f"gRPC: {_host_port(gateway.grpc_address)}, " if gateway.grpc_address is not None else ""
    if gateway.picker_address is not None:
        grpc += f"endpoint picker: {_host_port(gateway.picker_address)}, "
    _print(f"Headrace listens on {base} ({grpc}admin: {admin}://{_host_port(gateway.admin_address)})")
    if gateway.keda_address is not None:
        _print(f"KEDA's external scaler listens on {_host_port(gateway.keda_address)}")
    waiting = await gateway.models_without_endpoint()
    if waiting:
        _print(f"Starting: {', '.join(waiting)}")
    while await gateway.models_without_endpoint():  # noqa: ASYNC110 - for a person, not a program
        await asyncio.sleep(READY_POLL)
    _print("Ready.")
    if config.console.enabled:
        _print(f"Console: {admin}://{_host_port(gateway.admin_address)}/console/")
    if gateway.demo is not None:
        _print(f"Demo key (until this process ends, this machine only): {gateway.demo.plaintext}")
        from gateway.process import first_request

        if lines := await first_request.command(config, base, gateway.demo.plaintext):
            _print("Try:")
            for line in lines:
                _print(f"  {line}")


def _cannot_start(error: StartError) -> int:
    _print(f"headrace cannot start: {error}")
    return 2


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _host_port(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

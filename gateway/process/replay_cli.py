"""`headrace replay`."""

import asyncio
import json as json_text
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from config.loader import ConfigError, load
from config.schema.config import Config
from gateway.auth.terminal import print_status, stop
from gateway.errors import StartError
from gateway.features.recording.segments import RecordError
from gateway.features.replay import options
from gateway.features.replay.exchanging import ResentRequest
from gateway.features.replay.policies import replay_policies
from gateway.features.replay.records import RecordedTraffic, Records, record_key
from gateway.features.replay.report import SENT, Expectation
from gateway.features.replay.sending import INTERRUPTED, SendSettings, send_all
from gateway.features.replay.sent_report import SentReport
from gateway.features.replay.traces import TracedTraffic, trace_of
from gateway.process.replay_pool import pool_gateway, pool_of
from gateway.state.errors import StateConfigError
from gateway.terminal import counted
from gateway.traffic.fleet.member import FleetError


def replay(
    folder: options.Folder = None,
    config: options.ConfigPath = None,
    expect: options.Expect = None,
    against: options.Against = None,
    trace: options.Trace = None,
    export: options.Export = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    record_key_env: options.KeyEnv = None,
    key: options.Key = None,
    speed: options.Speed = "1",
    concurrency: options.Concurrency = 1000,
    timeout: options.Timeout = 600.0,
    text: options.Text = "normalized",
    rtol: options.Rtol = 0.001,
    model: options.Model = "",
) -> None:
    """Decide recorded requests under another configuration, send them again, or export their lengths.

    Exit status 1 if an expectation is not met, 2 for an invalid argument, file or record, 130 after an interrupt.
    """
    task = options.Task(folder, config, against, trace, export, expect or [])
    try:
        task.check()
        if task.against is None and task.config is not None:
            status = _decide(task, task.config, record_key_env, as_json=json)
        elif task.against is not None:
            settings = options.settings_of(task, key, speed, concurrency, timeout, text, rtol)
            status = _send(task, settings, record_key_env, model, as_json=json)
        else:
            status = _export(task, record_key_env)
    except (ConfigError, StateConfigError, RecordError, FleetError, StartError, ValueError, OSError) as error:
        stop(str(error))
    raise typer.Exit(status)


def _decide(task: options.Task, config: Path, key_env: str | None, *, as_json: bool) -> int:
    """Decide under another configuration. Returns the exit status."""
    assert task.folder is not None
    expectations = [Expectation.parse(written) for written in task.expect]
    settings = load(config)
    # Only guards read texts.
    records = Records(task.folder, record_key(settings, key_env), contents=bool(settings.guards))
    with _progress(records) as advanced:
        report = replay_policies(records, settings, advanced)
    report.notes += _torn(records.torn)
    unmet = [difference for expectation in expectations if (difference := expectation.unmet(report))]
    if as_json:
        typer.echo(json_text.dumps({**report.as_json(), "unmet": unmet}))
    else:
        report.show(Console())
    for difference in unmet:
        print_status(difference)
    return 1 if unmet else 0


def _send(task: options.Task, settings: SendSettings, key_env: str | None, model: str, *, as_json: bool) -> int:
    """Send to a gateway or a pool. Returns the exit status."""
    expectations = [Expectation.parse(written, SENT) for written in task.expect]
    file = None if task.config is None else load(task.config)
    if file is not None and task.pool is not None:
        pool_of(file, task.pool)
    if task.trace is not None:
        if not model:
            raise ValueError("--trace needs --model")
        report = asyncio.run(_sent(TracedTraffic(*task.trace, model), settings, file, task.pool))
    else:
        assert task.folder is not None
        recorded = RecordedTraffic(task.folder, record_key(file, key_env))
        report = asyncio.run(_sent(recorded, settings, file, task.pool))
        report.unsent = recorded.unsent
        report.notes += _torn(recorded.torn)
    unmet = [difference for expectation in expectations if (difference := expectation.unmet(report))]
    if as_json:
        typer.echo(json_text.dumps({**report.as_json(), "unmet": unmet}))
    else:
        report.show(Console())
    for difference in unmet:
        print_status(difference)
    return INTERRUPTED if report.interrupted else 1 if unmet else 0


async def _sent(
    requests: Iterable[ResentRequest], settings: SendSettings, file: Config | None, pool: str | None
) -> SentReport:
    """Send to the URL of the settings, or to a pool of the file."""
    requests = counted(requests, "requests sent")
    if file is None or pool is None:
        return await send_all(requests, settings)
    async with pool_gateway(file, pool, settings.seconds) as served:
        return await send_all(requests, settings._replace(url=served.url, key=served.key))


def _export(task: options.Task, key_env: str | None) -> int:
    """Print a trace. Returns the exit status."""
    assert task.folder is not None
    records = Records(task.folder, record_key(None, key_env), contents=True)
    for line in counted(trace_of(iter(records)), "requests"):
        typer.echo(msgspec.json.encode(line))
    for note in _torn(records.torn):
        print_status(note)
    return 0


def _torn(torn: dict[str, int]) -> list[str]:
    return [f"{name}: is not closed; {count} bytes are left out." for name, count in torn.items()]


@contextmanager
def _progress(records: Records) -> Iterator[Callable[[int], None]]:
    """A bar with the rate and the remaining time, on a terminal."""
    columns = (
        TextColumn("{task.fields[requests]:,} requests"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=records.size, requests=0)
        yield lambda number: bar.update(task, completed=records.read, requests=number)

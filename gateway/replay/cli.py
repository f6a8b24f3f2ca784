"""`headrace replay`."""

import asyncio
import json as json_text
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from config.loader import ConfigError, load
from gateway.auth.errors import KeyConfigError
from gateway.auth.terminal import print_status, stop
from gateway.recording.keys import RecordError
from gateway.replay import options
from gateway.replay.against.command import INTERRUPTED, SendSettings, send_all
from gateway.replay.against.recorded import RecordedTraffic
from gateway.replay.against.traces import TracedTraffic
from gateway.replay.expectations import Expectation
from gateway.replay.keys import record_key
from gateway.replay.mooncake import trace_of
from gateway.replay.policies import replay_policies
from gateway.replay.records import Records


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
        if task.config is not None:
            status = _decide(task, task.config, record_key_env, as_json=json)
        elif task.against is not None:
            settings = options.settings_of(task.against, key, speed, concurrency, timeout, text, rtol)
            status = _send(task, settings, record_key_env, model, as_json=json)
        else:
            status = _export(task, record_key_env)
    except (ConfigError, KeyConfigError, RecordError, ValueError, OSError) as error:
        stop(str(error))
    raise typer.Exit(status)


def _decide(task: options.Task, config: Path, key_env: str | None, *, as_json: bool) -> int:
    """Decide under another configuration. Returns the exit status."""
    assert task.folder is not None
    expectations = [Expectation.parse(written) for written in task.expect]
    settings = load(config)
    records = Records(task.folder, record_key(settings, key_env))
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
    """Send to a gateway. Returns the exit status."""
    if task.trace is not None:
        if not model:
            raise ValueError("--trace needs --model")
        traced = TracedTraffic(*task.trace, model)
        report = asyncio.run(send_all(traced, settings))
    else:
        assert task.folder is not None
        recorded = RecordedTraffic(task.folder, record_key(None, key_env))
        report = asyncio.run(send_all(recorded, settings))
        report.unsent = recorded.unsent
        report.notes += _torn(recorded.torn)
    if as_json:
        typer.echo(json_text.dumps(report.as_json()))
    else:
        report.show(Console())
    return INTERRUPTED if report.interrupted else 0


def _export(task: options.Task, key_env: str | None) -> int:
    """Print a trace. Returns the exit status."""
    assert task.folder is not None
    records = Records(task.folder, record_key(None, key_env), contents=True)
    for line in trace_of(iter(records)):
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

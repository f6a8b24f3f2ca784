"""`headrace replay`."""

import json as json_text
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from config.loader import ConfigError, load
from gateway.auth.errors import KeyConfigError
from gateway.auth.terminal import print_status, stop
from gateway.recording.keys import RecordError
from gateway.replay.expectations import Expectation
from gateway.replay.keys import record_key
from gateway.replay.policies import replay_policies
from gateway.replay.records import Records

KeyEnv = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Environment variable with the key of the records. That of the file by default."),
]


def replay(
    folder: Annotated[Path, typer.Argument(help="Folder of the records: `record.to` of the file.")],
    config: Annotated[Path, typer.Option("--config", "-c", help="The YAML file under which requests are decided.")],
    expect: Annotated[
        list[str] | None,
        typer.Option(metavar="CONDITION", help="Such as `changed <= 1%` or `refused == 0`. May be repeated."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    record_key_env: KeyEnv = None,
) -> None:
    """Decide recorded requests under another configuration, and count the changes.

    Exit status 1 if an expectation is not met, 2 for an invalid argument, file or record.
    """
    try:
        expectations = [Expectation.parse(written) for written in expect or ()]
        settings = load(config)
        records = Records(folder, record_key(settings, record_key_env))
        with _progress(records) as advanced:
            report = replay_policies(records, settings, advanced)
    except (ConfigError, KeyConfigError, RecordError, ValueError, OSError) as error:
        stop(str(error))
    report.notes += [f"{name}: is not closed; {count} bytes are left out." for name, count in records.torn.items()]
    unmet = [difference for expectation in expectations if (difference := expectation.unmet(report))]
    if json:
        typer.echo(json_text.dumps({**report.as_json(), "unmet": unmet}))
    else:
        report.show(Console())
    for difference in unmet:
        print_status(difference)
    raise typer.Exit(1 if unmet else 0)


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

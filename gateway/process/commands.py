"""One endpoint for every model server: run, check and administer the gateway."""

import json
import logging
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from adapters import native
from config import default_path
from config.loader import read, read_sections
from gateway.admin.top_cli import top
from gateway.auth.audit_cli import app as audit
from gateway.auth.cli import app as keys
from gateway.auth.teams.cli import app as teams
from gateway.features.batches.client.cli import app as batch
from gateway.features.experiments.cli import app as experiment
from gateway.features.recording.cli import app as record
from gateway.features.requests.cli import app as requests
from gateway.features.rollouts.cli import app as rollout
from gateway.features.shadow.cli import app as shadow
from gateway.features.usage.cli import app as usage
from gateway.process.explain_cli import check, explain
from gateway.process.extras import missing_extras
from gateway.process.foreign.conformance import conformance
from gateway.process.foreign.imports import app as imports
from gateway.process.foreign.prices import app as prices
from gateway.process.foreign.probe import probe
from gateway.process.ownership import foreign_rooms
from gateway.process.replay_cli import replay

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)


def _version(show: bool) -> None:
    if show:
        core = "with the native core" if native.AVAILABLE else "in Python alone"
        typer.echo(f"headrace {version('headrace')}, {core}")
        raise typer.Exit


@app.callback()
def headrace(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """One endpoint for every model server: run, check and administer the gateway."""
    del show_version


app.command()(check)
app.command()(explain)
app.command()(probe)
app.command()(conformance)
app.command()(replay)
app.command()(top)
app.add_typer(imports, name="import")
app.add_typer(batch, name="batch")
app.add_typer(keys, name="keys")
app.add_typer(teams, name="teams")
app.add_typer(audit, name="audit")
app.add_typer(rollout, name="rollout")
app.add_typer(experiment, name="experiment")
app.add_typer(shadow, name="shadow")
app.add_typer(record, name="record")
app.add_typer(usage, name="usage")
app.add_typer(requests, name="requests")
app.add_typer(prices, name="prices")


runtime = typer.Typer(no_args_is_help=True, help="Run a bundled runtime alone, without the gateway.")
app.add_typer(runtime, name="runtime")

_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command()
def serve(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="YAML file. The bundled default when not given.")
    ] = None,
) -> None:
    """Run the gateway."""
    from gateway.process.serve import run  # the other commands need neither sockets nor an event loop

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    problems = foreign_rooms()
    path = config or default_path()
    reading = read(path)
    problems += map(str, reading.problems)
    if problems or reading.config is None:
        typer.echo("\n".join(problems), err=True)
        raise typer.Exit(2)
    log = logging.getLogger(__name__)
    for warning in reading.warnings:
        log.warning("%s", warning)
    if absent := ",".join(missing_extras(reading.config)):
        log.error("%s needs packages that are not installed: run `pip install 'headrace[%s]'`", path, absent)
    raise typer.Exit(run(path, reading.config))


@app.command()
def extras(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="YAML file. The bundled default when not given.")
    ] = None,
) -> None:
    """Print the extras that a configuration needs and that are not installed, separated by commas."""
    reading = read_sections(config or default_path())
    if reading.config is None:
        typer.echo("\n".join(map(str, reading.problems)), err=True)
        raise typer.Exit(2)
    typer.echo(",".join(missing_extras(reading.config)))


@runtime.command(context_settings=_PASSED_ON)
def llm(context: typer.Context) -> None:
    """Serve one language model, over OpenAI's API."""
    _become("runtimes.llm", context.args)


@runtime.command(context_settings=_PASSED_ON)
def tensor(context: typer.Context) -> None:
    """Serve a repository of models of any framework, over the Open Inference Protocol."""
    _become("runtimes.tensor", context.args)


@app.command(hidden=True)
def worker(slot: Annotated[int, typer.Argument(help="Number of the worker, shown in the process list.")]) -> None:
    """Run one of several workers. `serve` starts it, with its start message on standard input."""
    from gateway.process.supervisor.child import run

    del slot
    raise typer.Exit(run())


@app.command(context_settings=_PASSED_ON)
def models(context: typer.Context) -> None:
    """List small models for the tensor runtime, and download them into a model repository."""
    _become("runtimes.tensor.catalogue", context.args)


def _become(module: str, arguments: list[str]) -> None:
    """Replace this process by a module that the gateway does not import. Signals then reach the module."""
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])  # noqa: S606 - no shell is needed


@app.command()
def schema() -> None:
    """Print the JSON Schema of the configuration, for editors."""
    from config.jsonschema import json_schema

    typer.echo(json.dumps(json_schema(), indent=2))

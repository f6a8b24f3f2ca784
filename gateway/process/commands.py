"""One endpoint for every model server: run, check and administer the gateway."""

import importlib
import json
import logging
import os
import sys
from collections.abc import Iterator, MutableMapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from adapters import native
from config import default_path
from config.installing import installing
from config.loader import read, read_sections
from gateway.process.extras import missing_extras
from gateway.process.ownership import foreign_rooms

COMMANDS = {
    "check": "gateway.process.explain_cli:check",
    "explain": "gateway.process.explain_cli:explain",
    "errors": "gateway.process.errors_cli:errors",
    "probe": "gateway.process.foreign.probe:probe",
    "conformance": "gateway.process.foreign.conformance:conformance",
    "replay": "gateway.process.replay_cli:replay",
    "top": "gateway.admin.top_cli:top",
    "why": "gateway.admin.diagnosis.why_cli:why",
    "serve": "",
    "migrate": "gateway.process.migrate_cli:migrate",
    "extras": "",
    "worker": "",
    "models": "",
    "schema": "",
    "import": "gateway.process.foreign.imports:app",
    "batch": "gateway.features.batches.client.cli:app",
    "keys": "gateway.auth.cli:app",
    "teams": "gateway.auth.teams_cli:app",
    "audit": "gateway.auth.audit_cli:app",
    "erase": "gateway.features.stored.erasure:erase",
    "rollout": "gateway.features.rollouts.cli:app",
    "experiment": "gateway.features.experiments.cli:app",
    "shadow": "gateway.features.shadow.cli:app",
    "record": "gateway.features.recording.cli:app",
    "usage": "gateway.features.usage.cli:app",
    "requests": "gateway.features.requests.cli:app",
    "prices": "gateway.process.foreign.prices:app",
    "runtime": "",
}
"""The commands in the order of the help, with the function or group of each. Those of this module have no place."""


class _Commands(MutableMapping[str, Any]):
    """The commands by name. The module of a command is imported when the command runs, or for the help."""

    def __init__(self, here: dict[str, Any]) -> None:
        self._made = here

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _made(name, COMMANDS[name])
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        raise TypeError

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _made(name: str, place: str) -> Any:
    module, _, attribute = place.partition(":")
    command, holder = getattr(importlib.import_module(module), attribute), typer.Typer(pretty_exceptions_enable=False)
    if isinstance(command, typer.Typer):
        holder.add_typer(command, name=name)
    else:
        holder.command(name)(command)
    return typer.main.get_group(holder).commands[name]


class _Group(TyperGroup):
    def __init__(self, *, commands: Any = None, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands(commands)


app = typer.Typer(cls=_Group, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)


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
    from gateway.telemetry.process_log import begin_log, configure_log

    begin_log()
    problems = foreign_rooms()
    path = config or default_path()
    reading = read(path)
    problems += map(str, reading.problems)
    if problems or reading.config is None:
        typer.echo("\n".join(problems), err=True)
        raise typer.Exit(2)
    configure_log(reading.config.log)
    log = logging.getLogger(__name__)
    for warning in reading.warnings:
        log.warning("%s", warning)
    if absent := missing_extras(reading.config):
        log.error("%s needs packages that are not installed: %s", path, installing(*absent))
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


@runtime.command(context_settings=_PASSED_ON)
def recogniser(context: typer.Context) -> None:
    """Find names and places in texts for guards, over the HTTP API of Presidio's analyzer."""
    _become("runtimes.recogniser", context.args)


@app.command(hidden=True)
def worker(slot: Annotated[int, typer.Argument(help="Number of the worker, shown in the process list.")]) -> None:
    """Run one of several workers. `serve` starts it, with its start message on standard input."""
    from gateway.process.supervisor.child import run

    del slot
    raise typer.Exit(run())


@app.command(context_settings=_PASSED_ON)
def models(context: typer.Context) -> None:
    """List small models for the tensor runtime, download them, and write language models with fewer bits."""
    _become("runtimes.tensor.catalogue", context.args)


def _become(module: str, arguments: list[str]) -> None:
    """Replace this process by a module that the gateway does not import. Signals then reach the module."""
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])  # noqa: S606 - no shell is needed


@app.command()
def schema() -> None:
    """Print the JSON Schema of the configuration, for editors."""
    from config.jsonschema import json_schema

    typer.echo(json.dumps(json_schema(), indent=2))

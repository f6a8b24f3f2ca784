"""The command line: `headrace serve | check | explain | probe | conformance | models | keys | audit | …`."""

import json
import logging
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from config import default_path
from config.jsonschema import json_schema
from config.loader import read
from gateway.auth.audit_cli import app as audit
from gateway.auth.cli import app as keys
from gateway.explain.cli import check, explain
from gateway.foreign.conformance import conformance
from gateway.foreign.probe import probe
from gateway.ownership import foreign_rooms

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
app.command()(check)
app.command()(explain)
app.command()(probe)
app.command()(conformance)
app.add_typer(keys, name="keys")
app.add_typer(audit, name="audit")


class Kind(StrEnum):
    """The bundled runtimes."""

    llm = "llm"
    tensor = "tensor"


@app.command()
def serve(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="YAML file; the bundled default without.")
    ] = None,
) -> None:
    """Run the gateway."""
    from gateway.serve import run  # a check needs neither sockets nor an event loop

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    problems = foreign_rooms()
    path = config or default_path()
    reading = read(path)
    problems += map(str, reading.problems)
    if problems or reading.config is None:
        typer.echo("\n".join(problems), err=True)
        raise typer.Exit(2)
    for warning in reading.warnings:
        logging.getLogger(__name__).warning("%s", warning)
    raise typer.Exit(run(path, reading.config))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def runtime(
    context: typer.Context,
    kind: Annotated[Kind, typer.Argument(help="Which one.")],
) -> None:
    """Run a bundled runtime alone: `headrace runtime tensor --help` has its options."""
    command = [sys.executable, "-m", f"runtimes.{kind.value}", *context.args]
    os.execv(command[0], command)  # noqa: S606 - this process becomes it, so that signals reach it


@app.command(hidden=True)
def worker(slot: Annotated[int, typer.Argument(help="Which one, for who looks at the process list.")]) -> None:
    """One of several workers, started by `serve` with its orders on standard input."""
    from gateway.supervisor.worker import run

    del slot
    raise typer.Exit(run())


_HANDED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command(context_settings=_HANDED_ON)
def models(context: typer.Context) -> None:
    """List small real models for the tensor runtime, and put them into a model repository."""
    _become("runtimes.tensor.catalogue", context.args)


def _become(module: str, arguments: list[str]) -> None:
    """Let a program of another room take this process over: the gateway imports none of them."""
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])  # noqa: S606 - no shell is wanted


@app.command()
def schema() -> None:
    """Print the JSON Schema of the configuration, for editors."""
    typer.echo(json.dumps(json_schema(), indent=2))


def main() -> None:
    """The console script."""
    app(prog_name="headrace")


if __name__ == "__main__":
    main()

"""The command line: `headrace serve | check | schema | keys | audit`."""

import json
import logging
from pathlib import Path
from typing import Annotated

import typer

from config import default_path
from config.jsonschema import json_schema
from config.loader import ConfigError, load
from gateway.auth.audit_cli import app as audit
from gateway.auth.cli import app as keys
from gateway.ownership import foreign_rooms

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
app.add_typer(keys, name="keys")
app.add_typer(audit, name="audit")


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
    try:
        loaded = load(path)
    except ConfigError as error:
        problems.append(str(error))
    if problems:
        typer.echo("\n".join(problems), err=True)
        raise typer.Exit(2)
    raise typer.Exit(run(path, loaded))


@app.command()
def check(file: Annotated[Path, typer.Argument(help="YAML file.")]) -> None:
    """Print every error of a configuration; exit status 0 when there is none, else 1."""
    try:
        load(file)
    except ConfigError as error:
        typer.echo(str(error))
        raise typer.Exit(1) from None
    typer.echo(f"{file}: ok")


@app.command()
def schema() -> None:
    """Print the JSON Schema of the configuration, for editors."""
    typer.echo(json.dumps(json_schema(), indent=2))


def main() -> None:
    """The console script."""
    app(prog_name="headrace")


if __name__ == "__main__":
    main()

"""`headrace import`: configurations of other servers."""

from pathlib import Path
from typing import Annotated

import typer

from config.document import parse
from config.imports.inference_graph import read_graph
from config.imports.pipeline import render
from config.problem import ConfigError

app = typer.Typer(no_args_is_help=True, help="Print the configuration of another server as one of Headrace.")


@app.callback()
def _commands() -> None:
    """Preserve the name of the only command."""


@app.command()
def inferencegraph(file: Annotated[Path, typer.Argument(help="YAML file of KServe's InferenceGraph.")]) -> None:
    """Print a KServe InferenceGraph as pools, models and a pipeline, with the points in which it differs.

    Exit status 2 if the graph is invalid.
    """
    try:
        typer.echo(render(read_graph(parse(file, example="kind: InferenceGraph"))), nl=False)
    except ConfigError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None

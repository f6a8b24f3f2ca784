"""`headrace import`: configurations of other servers."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from config.document import Document, parse
from config.imports.draft import Blueprint, ImportFailed
from config.imports.inference_graph import read_graph
from config.imports.pipeline import render
from config.problem import ConfigError, Problem
from gateway.process.foreign.address import stop

Output = Annotated[Path | None, typer.Option(help="File to write, in place of standard output.")]

app = typer.Typer(no_args_is_help=True, help="Print the configuration of another server as one of Headrace.")


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


@app.command()
def litellm(
    file: Annotated[Path, typer.Argument(help="LiteLLM's `config.yaml`.")],
    output: Output = None,
) -> None:
    """Print the configuration of a LiteLLM proxy as one of Headrace. The result passes `headrace check`.

    Standard error has each setting that is not imported, with its line and the reason. Secrets become `${NAME}`.
    Exit status 2 if the file is invalid, or if none of its models can be imported.
    """
    from config.imports.litellm.conversion import convert

    _import(file, "model_list:", convert, output)


@app.command()
def portkey(
    file: Annotated[
        Path, typer.Argument(help="JSON file of a Portkey config, or the answer of Portkey's API with several.")
    ],
    model: Annotated[str, typer.Option(help="Name of a model, or a glob, that the config serves.")] = "*",
    output: Output = None,
) -> None:
    """Print a config of Portkey as a configuration of Headrace. The result passes `headrace check`.

    Standard error has each setting that is not imported, with its line and the reason. Secrets become `${NAME}`.
    Exit status 2 if the file is invalid, or if none of its targets can be imported.
    """
    from config.imports.portkey import convert

    _import(file, "targets:", lambda doc: convert(doc, model), output)


def _import(
    file: Path, example: str, convert: Callable[[Document], tuple[Blueprint, list[Problem]]], output: Path | None
) -> None:
    try:
        draft, left = convert(parse(file, example))
        text = draft.text()
        if output is not None:
            output.write_text(text, encoding="utf-8")
    except ConfigError as error:
        stop(str(error))
    except ImportFailed as error:
        for problem in left:
            typer.echo(str(problem), err=True)
        stop(f"{file}: {error}")
    except OSError as error:
        stop(f"{output}: {error.strerror}")
    for problem in left:
        typer.echo(str(problem), err=True)
    if left:
        typer.echo(f"{len(left)} {'setting is' if len(left) == 1 else 'settings are'} not imported.", err=True)
    if output is None:
        typer.echo(text, nl=False)

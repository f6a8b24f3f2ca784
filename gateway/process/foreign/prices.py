"""`headrace prices`: prices of models from published lists."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from config.imports.price_list import PriceListError, entry_of, price_of, read_list, unread
from config.schema.config import Config
from gateway.auth.terminal import ConfigFile, plain_errors, print_status, settings_of, stop

if TYPE_CHECKING:
    from config.catalogue.reading import ModelCatalogue

app = typer.Typer(no_args_is_help=True, help="Read prices of models from published lists.")


@app.command("import")
def import_prices(
    file: Annotated[Path, typer.Argument(help="LiteLLM's `model_prices_and_context_window.json`.")],
    models: Annotated[list[str] | None, typer.Argument(metavar="[MODEL]...", help="Names of models.")] = None,
    config: ConfigFile = None,
    catalogue: Annotated[
        Path | None, typer.Option(metavar="OUTPUT", help="Write the whole list as a catalogue, and print nothing.")
    ] = None,
) -> None:
    """Print prices for `price:` of models, one line for each. Without MODEL: those of the configuration's models."""
    if catalogue is not None:
        _write_catalogue(file, catalogue)
        return
    if not models:
        with plain_errors():
            models = _models_of(settings_of(config))
    entries = _entries(file)
    missing = 0
    for model in models:
        entry = entry_of(entries, model)
        try:
            price = None if entry is None else price_of(entry)
        except PriceListError as error:
            stop(f"{file}: {model}: {error}")
        if entry is None or price is None:
            missing += 1
            print_status(f"{model}: the list has no price of tokens.")
        else:
            typer.echo(f"{_flow(model)}: {_flow(price)}")
            if left := unread(entry):
                print_status(f"{model}: not imported: {', '.join(left)}.")
    if missing == len(models):
        raise typer.Exit(1)


@app.command("show")
def show_prices(
    models: Annotated[list[str] | None, typer.Argument(metavar="[MODEL]...", help="Names of models.")] = None,
    config: ConfigFile = None,
    catalogue: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Catalogue. The configuration's, else the shipped one.")
    ] = None,
) -> None:
    """Print prices for `price:` from the catalogue. Without MODEL: those of the configuration's models.

    Standard error has the other facts: context, longest answer, abilities, deprecation. Exit status 1 if none is there.
    """
    if models and config is None:
        book = _catalogue(catalogue)
    else:
        with plain_errors():
            settings = settings_of(config)
        models = models or _models_of(settings)
        book = _catalogue(catalogue or settings.catalogue_file)
    missing = 0
    for model in models:
        provider, _, name = model.rpartition(":") if model.partition(":")[0] in book.hosts else ("", "", model)
        facts = book.find(name, provider or None)
        price = None if facts is None else facts.written_price()
        if facts is None or price is None:
            missing += 1
            print_status(f"{model}: the catalogue of {book.date} has no price of it.")
            continue
        typer.echo(f"{_flow(model)}: {_flow(price)}")
        fields = {name: value for name, value in facts.as_fields().items() if name != "price"}
        print_status(f"{model}: {_flow({'provider': facts.provider, **fields})}")
    if missing == len(models):
        raise typer.Exit(1)


def _entries(file: Path) -> Mapping[str, Mapping[str, Any]]:
    try:
        return read_list(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        stop(f"{file}: {error}")
    except PriceListError as error:
        stop(f"{file} {error}")


def _catalogue(path: Path | None) -> "ModelCatalogue":
    from config.catalogue.reading import SHIPPED, CatalogueError, catalogue

    try:
        return catalogue(path or SHIPPED)
    except OSError as error:
        stop(f"{path}: {error.strerror}")
    except CatalogueError as error:
        stop(f"{path} {error}")


def _write_catalogue(file: Path, output: Path) -> None:
    from config.imports.model_list import catalogue_of

    day = datetime.fromtimestamp(file.stat().st_mtime, UTC).date().isoformat() if file.exists() else ""
    data = catalogue_of(_entries(file), day, file.name, _catalogue(None).hosts)
    try:
        output.write_text(json.dumps(data, indent=1), encoding="utf-8")
    except OSError as error:
        stop(f"{output}: {error.strerror}")
    count = sum(len(entry["models"]) for entry in data["providers"].values())
    print_status(f"{output}: {count} models of {day}.")


def _models_of(config: Config) -> list[str]:
    """Names that clients and servers use."""
    names = [model.name for model in config.models] + [pool.model_name for pool in config.pools if pool.model_name]
    return list(dict.fromkeys(names))


def _flow(value: str | Mapping[str, Any]) -> str:
    """One line of YAML: a name in quotes, or a price."""
    style = '"' if isinstance(value, str) else None
    written: str = yaml.safe_dump(
        value, default_flow_style=True, default_style=style, sort_keys=False, width=float("inf"), allow_unicode=True
    )
    return written.rstrip()

"""`headrace prices`: prices of models from published lists."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from config.imports.price_list import PriceListError, entry_of, price_of, read_list, unread
from config.schema.config import Config
from gateway.auth.terminal import ConfigFile, plain_errors, print_status, settings_of, stop

app = typer.Typer(no_args_is_help=True, help="Read prices of models from published lists.")


@app.callback()
def _commands() -> None:
    """Preserve the name of the only command."""


@app.command("import")
def import_prices(
    file: Annotated[Path, typer.Argument(help="LiteLLM's `model_prices_and_context_window.json`.")],
    models: Annotated[list[str] | None, typer.Argument(metavar="[MODEL]...", help="Names of models.")] = None,
    config: ConfigFile = None,
) -> None:
    """Print prices for `price:` of models, one line for each. Without MODEL: those of the configuration's models."""
    if not models:
        with plain_errors():
            models = _models_of(settings_of(config))
    try:
        entries = read_list(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        stop(f"{file}: {error}")
    except PriceListError as error:
        stop(f"{file} {error}")
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

"""The command `headrace why`."""

import asyncio
import json
from typing import Annotated, Any

import typer

from config.loader import ConfigError
from gateway.auth.terminal import ConfigFile, admin_url, plain_errors, print_status, settings_of
from gateway.features.requests.cli import read_admin

Text = str | None
_NEXT = (
    "\nNext: look whether the process runs, and at the last lines of its log. "
    "Start it by hand: `headrace serve --config FILE`."
)


def why(
    symptom: Annotated[
        str,
        typer.Argument(help="A status such as 503, a class such as 5xx, `slow` or `failing`. By default everything."),
    ] = "",
    tenant: Annotated[Text, typer.Option(help="Requests of this tenant.")] = None,
    key: Annotated[Text, typer.Option(help="Requests of the key with this id.")] = None,
    model: Annotated[Text, typer.Option(help="Requests for this model.")] = None,
    pool: Annotated[Text, typer.Option(help="Requests to this pool.")] = None,
    id: Annotated[Text, typer.Option(help="One request, by its `x-request-id`.")] = None,
    begin: Annotated[
        Text, typer.Option("--from", metavar="TIME", help="A time in UTC. By default an hour ago.")
    ] = None,
    end: Annotated[Text, typer.Option("--to", metavar="TIME", help="The end, which is not included.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the causes as JSON.")] = False,
    url: Annotated[
        Text, typer.Option("--url", help="The admin listener. By default that of the configuration.")
    ] = None,
    config: ConfigFile = None,
) -> None:
    """Find the cause of failed or slow requests: the causes, their evidence, and the next steps."""
    query = {"symptom": symptom or None, "tenant": tenant, "key": key, "model": model, "pool": pool, "id": id}
    query |= {"from": begin, "to": end}
    try:
        address = url or admin_url(settings_of(config))
    except ConfigError as error:  # a gateway cannot start with this file, which is a cause
        print_status(f"The file is invalid, so no gateway starts with it:\n{error}")
        raise typer.Exit(1) from None
    with plain_errors():
        given = {name: value for name, value in query.items() if value is not None}
        report = asyncio.run(read_admin(address.rstrip("/"), "/admin/why", given, next_step=_NEXT))
    if as_json:
        typer.echo(json.dumps(report, indent=2))
        return
    _print(report)


def _print(report: dict[str, Any]) -> None:
    examined = report["examined"]
    typer.echo(
        f"{examined['requests']} requests, {examined['failed']} of them failed, "
        f"from {report['from'][:19]} to {report['to'][:19]} UTC\n"
    )
    if not report["causes"]:
        typer.echo(report["summary"])
    for number, cause in enumerate(report["causes"], 1):
        typer.echo(f"{number}. {_plain(cause['cause'])}")
        for line in cause["evidence"]:
            typer.echo(f"     {_plain(line)}")
        for step in cause["next"]:
            typer.echo(f"   → {_plain(step)}")
        typer.echo()


def _plain(text: object) -> str:
    return "".join(char if char.isprintable() else "?" for char in str(text))

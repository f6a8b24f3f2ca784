"""`headrace audit`: shows the audit log and verifies its chain of digests."""

import json as json_text
from typing import Annotated, Any

import typer

from gateway.auth.audit import AuditEntry
from gateway.auth.listing import utc
from gateway.auth.terminal import ConfigFile, open_store, plain_errors, print_status, settings_of, stop

app = typer.Typer(name="audit", help="List and verify the audit log.", no_args_is_help=True)


@app.command("list")
def list_entries(
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Number of entries.")] = 50,
    before: Annotated[int | None, typer.Option(help="Only entries with a lower number.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
    config: ConfigFile = None,
) -> None:
    """List entries, newest first."""
    with plain_errors():
        entries = open_store(settings_of(config)).read_audit(limit, before)
    if json:
        typer.echo(json_text.dumps([as_object(entry) for entry in entries], indent=2))
        return
    from rich.table import Column, Table  # as in `listing`

    from gateway.terminal import plain, show

    table = Table(Column("seq", justify="right"), "time", "actor", "from", "action", "target", "outcome", "detail")
    for entry in entries:
        detail = "" if entry.detail == "{}" else entry.detail
        cells = (entry.actor, entry.peer, entry.action, entry.target, entry.outcome, detail)
        table.add_row(str(entry.seq), utc(entry.at), *map(plain, cells))
    show(table)


@app.command()
def verify(
    head: Annotated[str | None, typer.Option(help="SEQ:DIGEST that an earlier `verify` printed.")] = None,
    config: ConfigFile = None,
) -> None:
    """Verify the chain of digests and print its head, to store elsewhere. Exit status 1 if the chain is broken."""
    with plain_errors():
        result = open_store(settings_of(config)).verify_audit(head)
    if result.problem:
        stop(f"the audit log is not intact: {result.problem}", status=1)
    print_status(f"{result.entries} entries, each follows the one before it.")
    if result.unchecked:
        print_status(
            f"The first {result.unchecked} were written under another pepper: their contents could not be checked."
        )
    typer.echo(result.head)


def as_object(entry: AuditEntry) -> dict[str, Any]:
    """For JSON: the time as text, the detail as an object."""
    return entry._asdict() | {"at": utc(entry.at), "detail": json_text.loads(entry.detail)}

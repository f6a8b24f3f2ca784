"""`headrace usage`: what tenants have used and spent."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.auth.pepper import load_pepper
from gateway.auth.terminal import ConfigFile, plain_errors, print_status, settings_of, stop
from gateway.features.usage.discounts import volumes_of
from gateway.features.usage.export import focus_of, invoice, month_of, rows_csv, shown
from gateway.features.usage.parquet import ParquetMissing, write_focus
from gateway.features.usage.query import BadQuery, query_of
from gateway.features.usage.report import PER_CHARGE, PER_LINE, UsageQuery, groups_of
from gateway.features.usage.store import UsageStore
from gateway.terminal import counted

app = typer.Typer(name="usage", help="Show and export what tenants have used and spent.", no_args_is_help=True)

Begin = Annotated[
    str | None, typer.Option("--from", metavar="TIME", help="A day or a whole hour in UTC. The first of this month.")
]
End = Annotated[str | None, typer.Option("--to", metavar="TIME", help="The end, which is not included. Now.")]
Tenant = Annotated[str | None, typer.Option("--tenant", help="This tenant alone.")]
_SHOWN = ("requests", "failures", "prompt_tokens", "completion_tokens", "rows")


@app.command("list")
def list_usage(
    begin: Begin = None,
    end: End = None,
    tenant: Tenant = None,
    by: Annotated[str, typer.Option("--by", help="Labels: tenant, team, key, model, user, arm, currency.")] = "tenant",
    per: Annotated[str | None, typer.Option("--per", help="hour, day or month.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    config: ConfigFile = None,
) -> None:
    """List requests, tokens, rows and money by label and period."""
    query = _query({"from": begin, "to": end, "tenant": tenant, "by": by, "per": per})
    with _store(config) as store:
        rows = list(_pages(store, query))
    made = [shown(row) for row in rows]
    if as_json:
        typer.echo(json.dumps(made, indent=2))
        return
    columns = (*[name for name in groups_of(query) if name != "currency"], *_SHOWN, "amount", "currency")
    _print_table(columns, made)


@app.command()
def export(
    begin: Begin = None,
    end: End = None,
    tenant: Tenant = None,
    focus: Annotated[
        bool, typer.Option("--focus", help="FOCUS 1.2: charges by tenant, key, model, arm, team and day.")
    ] = False,
    parquet: Annotated[
        Path | None, typer.Option("--parquet", metavar="FILE", help="Write FOCUS 1.2 to a Parquet file instead.")
    ] = None,
    config: ConfigFile = None,
) -> None:
    """Print all rows by day as CSV, or write them to a Parquet file."""
    query = _query({"from": begin, "to": end, "tenant": tenant})._replace(by=PER_CHARGE, per="day")
    with _store(config) as store:
        if parquet is not None:
            _write(parquet, _pages(store, query))
            return
        rows = list(_pages(store, query))
    typer.echo(focus_of(rows) if focus else rows_csv(groups_of(query), rows), nl=False)


@app.command("invoice")
def print_invoice(
    tenant: Annotated[str, typer.Argument(metavar="TENANT")],
    month: Annotated[str, typer.Option("--month", metavar="YYYY-MM", help="The month, in UTC.")],
    config: ConfigFile = None,
) -> None:
    """Print the invoice of a tenant for a month as JSON."""
    try:
        first, last = month_of(month)
    except ValueError:
        stop(f"--month: {month} is not a month such as 2026-11")
    with _store(config) as store:
        rows = list(_pages(store, UsageQuery(first, last, PER_LINE, None, tenant)))
    with plain_errors():
        volumes = volumes_of(settings_of(config))
    typer.echo(json.dumps(invoice(tenant, month, rows, volumes), indent=2))


def _write(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    """Write a whole file, or none."""
    new = path.with_name(f"{path.name}.new")
    try:
        with new.open("wb") as file:
            write_focus(rows, file)
        new.replace(path)
    except (OSError, ParquetMissing) as error:
        new.unlink(missing_ok=True)
        stop(str(error), status=1)


def _query(options: Mapping[str, str | None]) -> UsageQuery:
    try:
        return query_of({name: text for name, text in options.items() if text is not None})
    except BadQuery as error:
        stop(f"--{error.name}: {error}")


@contextmanager
def _store(path: ConfigFile) -> Iterator[UsageStore]:
    with plain_errors():
        settings = settings_of(path)
        if settings.usage is None:
            print_status("The file has no section `usage`: no usage is recorded.")
        store = UsageStore(settings.state.database, load_pepper(settings))
        try:
            yield store
        finally:
            store.close()


def _pages(store: UsageStore, query: UsageQuery) -> Iterator[dict[str, Any]]:
    return counted(_rows(store, query), "rows")


def _rows(store: UsageStore, query: UsageQuery) -> Iterator[dict[str, Any]]:
    while rows := store.report(query):
        yield from rows
        if len(rows) < query.limit:
            return
        query = query._replace(after=[rows[-1][name] for name in groups_of(query)])


def _print_table(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    table = [columns, *[tuple(str(row.get(name, "")) for name in columns) for row in rows]]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        typer.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())

"""`headrace teams`: create, change, list and remove teams of tenants, and move keys between them."""

import json
import time
from typing import Annotated, Any

import typer

from gateway.auth.grants import check_tenant
from gateway.auth.teams.limits import check_team_of_key, parse_team, with_teams
from gateway.auth.terminal import ConfigFile, open_store, plain_errors, print_status, settings_of, stop, terminal_user

app = typer.Typer(name="teams", help="Manage the teams of tenants, and their limits.", no_args_is_help=True)

Tenant = Annotated[str, typer.Argument(metavar="TENANT")]
Team = Annotated[str, typer.Argument(metavar="TEAM")]
_UNITS = ("requests", "tokens", "rows", "bytes", "device_ms", "spend", "concurrency")


@app.command("list")
def list_teams(
    tenant: Annotated[str | None, typer.Option("--tenant", help="This tenant alone.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
    config: ConfigFile = None,
) -> None:
    """List the teams of the file and of the database with their limits."""
    with plain_errors():
        settings = settings_of(config)
        stored = open_store(settings).teams.read_all(tenant)
    rows: list[dict[str, Any]] = []
    for owner in with_teams(settings, stored):
        in_file = {team.name for team in check_tenant(settings, owner.name).teams}
        for team in owner.teams if tenant in (None, owner.name) else ():
            limits = [limit.model_dump(mode="json", exclude_defaults=True) for limit in team.limit_list()]
            place = "file" if team.name in in_file else "database"
            rows.append({"tenant": owner.name, "team": team.name, "stored_in": place, "limits": limits})
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        written = "; ".join(", ".join(f"{name} {value}" for name, value in limit.items()) for limit in row["limits"])
        typer.echo(f"{row['tenant']}  {row['team']}  {row['stored_in']}  {written or 'no limit'}")


@app.command("set")
def set_team(
    tenant: Tenant,
    team: Team,
    requests: Annotated[str | None, typer.Option(help="Such as 600/min.")] = None,
    tokens: Annotated[str | None, typer.Option(help="Such as 200k/min.")] = None,
    rows: Annotated[str | None, typer.Option(help="Such as 10k/min.")] = None,
    bytes: Annotated[str | None, typer.Option("--bytes", help="Such as 50MiB/min.")] = None,
    device_ms: Annotated[str | None, typer.Option("--device-ms", help="Such as 60000/min.")] = None,
    spend: Annotated[str | None, typer.Option(help="Such as '50 usd/month'.")] = None,
    concurrency: Annotated[int | None, typer.Option(help="Requests at the same time.")] = None,
    limits: Annotated[str | None, typer.Option(help="All limits as JSON, in the form of the file.")] = None,
    config: ConfigFile = None,
) -> None:
    """Create a team, or replace all of its limits. Running gateways apply them within a second."""
    given = (requests, tokens, rows, bytes, device_ms, spend, concurrency)
    amounts: Any = {unit: value for unit, value in zip(_UNITS, given, strict=True) if value is not None}
    if limits is not None:
        if amounts:
            stop("--limits: give either all limits as JSON, or single amounts")
        try:
            amounts = json.loads(limits)
        except ValueError as error:
            stop(f"--limits: not JSON: {error}")
    with plain_errors():
        settings = settings_of(config)
        parse_team(settings, check_tenant(settings, tenant), team, amounts)
        teams = open_store(settings).teams
        is_new = teams.put(tenant, team, amounts, by=terminal_user(), now=time.time())
    print_status(f"The team {team} of {tenant} is {'created' if is_new else 'changed'}.")


@app.command()
def remove(tenant: Tenant, team: Team, config: ConfigFile = None) -> None:
    """Remove a team without valid keys."""
    with plain_errors():
        open_store(settings_of(config)).teams.remove(tenant, team, by=terminal_user(), now=time.time())
    print_status(f"The team {team} of {tenant} is removed.")


@app.command()
def move(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The 12 characters after `hr-`.")],
    team: Annotated[str, typer.Argument(metavar="TEAM", help="The new team; empty for none.")],
    config: ConfigFile = None,
) -> None:
    """Move an issued key to a team of its tenant."""
    with plain_errors():
        settings = settings_of(config)
        store = open_store(settings)
        tenant = store.find(key_id).tenant
        owner = check_tenant(settings, tenant)
        if team:
            check_team_of_key(owner, team, store.teams.read_all(tenant))
        store.teams.move_key(tenant, key_id, team, by=terminal_user(), now=time.time())
    print_status(f"Key {key_id} is in {f'the team {team}' if team else 'no team'}.")

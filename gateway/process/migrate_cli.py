"""`headrace migrate`: creates and upgrades the tables of the state database with the rights of their owner.

A gateway does the same when it starts, if its role may. With this command its role needs the rights to rows only.
"""

import os
from contextlib import closing
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from sqlalchemy import Connection, func, select

from config import default_path
from config.loader import read
from gateway.admin.api.endings import ENDINGS
from gateway.admin.drafts.history import VERSIONS
from gateway.auth.pepper import load_pepper
from gateway.auth.state import StateDatabase
from gateway.features.alerts.store import ALERTS
from gateway.features.batches.schema import BATCHES
from gateway.features.bus.done.sql_table import BUS
from gateway.features.live.schema import LIVE
from gateway.features.quota.meter import QUOTA
from gateway.features.requests.days import PostgresDays
from gateway.features.requests.schema import day_functions
from gateway.features.rollouts.schema import ROLLOUTS
from gateway.features.shadow.store import SHADOWS
from gateway.features.stored.store import STORED
from gateway.features.usage.schema import USAGE
from gateway.state.database import open_engine, sqlite_path
from gateway.state.errors import StateConfigError, StoreMismatch, StoreRefused, StoreUnavailable
from gateway.state.faults import database_errors
from gateway.terminal import working

GROUPS = (ENDINGS, VERSIONS, LIVE, QUOTA, STORED, BATCHES, BUS, USAGE, ROLLOUTS, SHADOWS, ALERTS)
"""Beside those of keys and teams, which the database has from the start. `requests` has tables of its own."""


def migrate(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="YAML file. The bundled default when not given.")
    ] = None,
    database_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="Environment variable with the owner's URL of the database.")
    ] = None,
    role: Annotated[
        str | None, typer.Option(help="Role of the gateways: may then read and write rows, and nothing else.")
    ] = None,
) -> None:
    """Create and upgrade the tables of the state database. For Postgres, before the gateways of a new release start."""
    path = config or default_path()
    reading = read(path)
    if reading.config is None:
        _stop("\n".join(map(str, reading.problems)))
    url = reading.config.state.database if database_env is None else os.environ.get(database_env, "")
    try:
        if not url or sqlite_path(url) is not None:
            _stop("error: migrate is for Postgres: a gateway completes its SQLite file itself")
        with working("creates and upgrades tables"):
            StateDatabase(url, load_pepper(reading.config), *GROUPS).close()
            with closing(PostgresDays(url)) as days:
                days.complete()
            _grant(url, role)
    except (StateConfigError, StoreMismatch, StoreRefused, StoreUnavailable) as error:
        _stop(f"error: {error}")
    typer.echo(f"{path}: the tables are those of this release", err=True)


def _grant(url: str, role: str | None) -> None:
    """Make the functions of days, and give the role what a gateway needs."""
    engine = open_engine(url)
    try:
        with database_errors("the state database"), engine.begin() as connection:
            statements = day_functions(connection)
            days = "FUNCTION headrace_create_request_day, headrace_drop_request_day"
            statements.append(f"REVOKE ALL ON {days} FROM PUBLIC")
            if role is not None:
                statements += _grants(connection, role, days)
            for statement in statements:
                connection.exec_driver_sql(statement.replace("%", "%%"))  # the driver's form of a percent sign
    finally:
        engine.dispose()


def _grants(connection: Connection, role: str, days: str) -> list[str]:
    names = select(func.quote_ident(func.current_schema()), func.quote_ident(role))
    schema, to = connection.execute(names).one()
    rows = "SELECT, INSERT, UPDATE, DELETE ON"
    return [
        f"GRANT USAGE ON SCHEMA {schema} TO {to}",
        f"GRANT {rows} ALL TABLES IN SCHEMA {schema} TO {to}",
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {to}",
        # Of tables that this owner makes later: days of requests, and those of newer releases.
        f"ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT {rows} TABLES TO {to}",
        f"ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT USAGE ON SEQUENCES TO {to}",
        f"REVOKE UPDATE, DELETE ON audit FROM {to}",
        f"GRANT EXECUTE ON {days} TO {to}",
    ]


def _stop(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(1)

"""`headrace migrate`: the owner makes the tables, and a role with the rights to rows serves."""

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from gateway.auth.audit import Actor
from gateway.auth.state import StateDatabase
from gateway.auth.store import KeyStore
from gateway.features.requests.days import PostgresDays
from gateway.features.stored.store import ResponseDatabase
from gateway.process.commands import app
from gateway.process.migrate_cli import GROUPS
from gateway.state.database import open_engine
from gateway.state.errors import StateError
from gateway.state.schema import groups

if TYPE_CHECKING:
    from tests.support.postgres import Postgres

PEPPER = "0123456789abcdef0123456789abcdef"
FILE = """
version: 1
state: {{database: "{database}"}}
auth: {{pepper: "${{PEPPER}}"}}
pools: [{{name: a, endpoints: ["http://10.0.0.5:8000"]}}]
models: [{{name: a, routes: [{{to: a}}]}}]
tenants: [{{name: a, models: ["*"]}}]
"""


def test_every_group_of_tables_is_migrated() -> None:
    """Those in the sources: a group exists only once its module is imported."""
    written = re.compile(r"^\w+ = TableGroup\(\"([^\"]+)\"", re.MULTILINE)
    names = {name for path in Path("gateway").rglob("*.py") for name in written.findall(path.read_text())}
    migrated = {name for name, group in groups.items() if group in GROUPS}
    assert migrated | {"keys", "teams"} == names


def test_sqlite_needs_no_migration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEPPER", PEPPER)
    (tmp_path / "headrace.yaml").write_text(FILE.format(database="sqlite:///state.db"))
    done = CliRunner().invoke(app, ["migrate", "--config", str(tmp_path / "headrace.yaml")])
    assert (done.exit_code, "a gateway completes its SQLite file itself" in done.output) == (1, True)


@pytest.mark.processes
def test_a_role_without_the_right_to_tables_serves_after_a_migration(
    postgres: "Postgres", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = postgres.database()
    postgres.execute(owner, "CREATE ROLE rows_only LOGIN")
    rows = owner.replace("headrace@", "rows_only@")
    for name, value in {"PEPPER": PEPPER, "OWNER": owner}.items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "headrace.yaml"
    file.write_text(FILE.format(database=rows))
    command = ["migrate", "--config", str(file), "--database-env", "OWNER", "--role", "rows_only"]
    with pytest.raises(StateError):
        KeyStore(rows, PEPPER.encode())
    for _ in range(2):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output

    store = KeyStore(rows, PEPPER.encode())
    key = store.create("a", by=Actor("test"), now=time.time())
    store.revoke(key.id, by=Actor("test"), now=time.time())
    store.close()
    ResponseDatabase(rows).close()
    StateDatabase(rows, PEPPER.encode(), *GROUPS).close()
    _days(rows)
    engine = open_engine(rows)
    refused = (
        "CREATE TABLE other (a int)",
        "DROP TABLE keys",
        "ALTER TABLE keys ADD COLUMN a int",
        "DELETE FROM audit",
        "SELECT headrace_drop_request_day('s; DROP TABLE keys')",
    )
    for statement in refused:
        with pytest.raises(Exception, match=r"permission denied|must be owner|no day"), engine.begin() as connection:
            connection.execute(text(statement))
    engine.dispose()


def _days(rows: str) -> None:
    """Days of requests are written, read and deleted by the same role."""
    days = PostgresDays(rows)
    with days.writing("2026-03-02") as (connection, tables):
        assert connection.execute(tables.rows.select()).all() == []
        connection.execute(tables.sources.insert().values(source="a", offset=1))
    with days.reading("2026-03-02") as (connection, tables):
        assert len(connection.execute(tables.sources.select()).all()) == 1
    assert list(days.sizes()) == ["2026-03-02"]
    days.drop("2026-03-02")
    assert days.sizes() == {}
    days.close()

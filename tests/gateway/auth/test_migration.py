"""From the first release's schema to this one's."""

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gateway.auth import migration
from gateway.auth.errors import StoreMismatch
from gateway.auth.keys import Principal
from gateway.auth.table import KeyTable
from tests.gateway.auth.conftest import NOW, PEPPER, TESTER, MakeConfig, OpenStore
from tests.support.postgres import Postgres

# As the first release wrote it, with a rotated key, its successor, and one that is revoked.
OLD, NEW = (
    "hr-h3oa3mjxhwz2-A-9MyFw8O3yoaGzXJ_jPvCKuNSBVjDMFCOPLXq5Cl6s",
    "hr-52r5ukzv5m5x-X6Q4iHDS4YormgpwTOICl6ggK-w-iAiuR2LUvDDsMwQ",
)
EPOCH = 102689757027161
VERSION_1 = """
CREATE TABLE keys (
	id VARCHAR(12) NOT NULL, 
	tenant VARCHAR(128) NOT NULL, 
	label VARCHAR(100) NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	expires_at DOUBLE, 
	revoked_at DOUBLE, 
	replaced_by VARCHAR(12), 
	PRIMARY KEY (id)
);
INSERT INTO keys VALUES('h3oa3mjxhwz2','acme','ci','3baaee316d79de54287676df9e096e187919b44a2fd89590835ce682b6c13dc4',1700000000.0,1700003700.0,NULL,'52r5ukzv5m5x');
INSERT INTO keys VALUES('52r5ukzv5m5x','acme','ci','5294b7812e518a2205ee88afdf6de1343560040639181c2627f6dee3782b5018',1700000100.0,NULL,NULL,NULL);
INSERT INTO keys VALUES('4dsknz6bajbl','beta','old','b781c7ded2b9894d2b311b288ab7d9737f2ace67f9ff248e36df0f4c9777124f',1700000200.0,1900000000.0,1700000300.0,NULL);
CREATE TABLE keys_state (
	id INTEGER NOT NULL, 
	schema_version INTEGER NOT NULL, 
	epoch BIGINT NOT NULL, 
	pepper_check VARCHAR(64) NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO keys_state VALUES(1,1,102689757027161,'5284700cdab38b91e4c0b384f087c3a52b51d1052f53c5eb9939daa62fb69b4f');
"""  # noqa: E501, W291
Execute = Callable[[str], None]


@pytest.fixture
def database(any_database: str) -> str:
    return any_database


@pytest.fixture
def execute(any_database: str, request: pytest.FixtureRequest) -> Execute:
    """Statements, past the product."""
    if any_database.startswith("sqlite"):
        path = Path(any_database.removeprefix("sqlite:///"))
        path.parent.mkdir()

        def execute(statements: str) -> None:
            raw = sqlite3.connect(path)
            raw.executescript(statements)
            raw.close()

        return execute
    server: Postgres = request.getfixturevalue("postgres")
    return lambda statements: server.execute(any_database, statements.replace(" DOUBLE", " DOUBLE PRECISION"))


def test_a_database_of_the_first_release_is_brought_up_to_date(
    open_store: OpenStore, execute: Execute, make_config: MakeConfig
) -> None:
    execute(VERSION_1)
    store = open_store()
    then = 1_700_003_000.0
    live = store.read_live(then)
    assert live.epoch == store.read_epoch() == EPOCH + 1
    table = KeyTable.build(make_config(acme=[]), PEPPER, live.records)
    for token in (OLD, NEW):
        principal = table.authenticate(token, then)
        assert principal == Principal("acme", token[3:15])
    assert [(row.id, row.status(then), row.role) for row in store.read_all()] == [
        ("h3oa3mjxhwz2", "replaced", "user"),
        ("52r5ukzv5m5x", "active", "user"),
        ("4dsknz6bajbl", "revoked", "user"),
    ]
    store.revoke("52r5ukzv5m5x", by=TESTER, now=NOW)
    assert store.verify_audit().entries == 1
    assert open_store().read_epoch() == EPOCH + 2


def test_a_migration_that_fails_changes_nothing(
    open_store: OpenStore, execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(VERSION_1)

    def fail(_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(migration, "_make_audit", fail)
        with pytest.raises(ZeroDivisionError):
            open_store()
    execute("INSERT INTO keys VALUES('aaaaaaaaaaaa','acme','','00',1.0,NULL,NULL,NULL)")  # eight columns, as before
    assert len(open_store().read_all()) == 4


def test_many_gateways_bring_it_up_to_date_at_once(open_store: OpenStore, execute: Execute) -> None:
    execute(VERSION_1)
    with ThreadPoolExecutor(6) as pool:
        epochs = list(pool.map(lambda _: open_store().read_epoch(), range(8)))
    assert set(epochs) == {EPOCH + 1}


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        (3, "has schema 3, which a newer release wrote, and this one knows 2: use that release, or a database"),
        (0, "has schema no version, this release needs 2"),
    ],
)
def test_another_schema_is_left_alone(open_store: OpenStore, execute: Execute, version: int, sentence: str) -> None:
    execute(VERSION_1)
    execute(f"UPDATE keys_state SET schema_version = {version}, pepper_check = 'other'")
    with pytest.raises(StoreMismatch, match=sentence):
        open_store()
    execute("INSERT INTO keys VALUES('aaaaaaaaaaaa','acme','','00',1.0,NULL,NULL,NULL)")  # still eight columns


def test_a_gateway_that_runs_while_another_release_changes_the_schema_is_told(
    open_store: OpenStore, execute: Execute
) -> None:
    execute(VERSION_1)
    store = open_store()
    execute("UPDATE keys_state SET schema_version = 3")
    with pytest.raises(StoreMismatch, match="newer release"):
        store.read_epoch()
    with pytest.raises(StoreMismatch, match="newer release"):
        store.create("acme", by=TESTER, now=NOW)

"""The tables of the state database: created once, and never changed where another release created them."""

import pytest

from gateway.auth import schema
from gateway.state.errors import StoreMismatch
from tests.gateway.auth.conftest import NOW, TESTER, Execute, OpenStore

OTHER_RELEASE = """
CREATE TABLE keys (id VARCHAR(12) NOT NULL, PRIMARY KEY (id));
CREATE TABLE keys_state (
	id INTEGER NOT NULL,
	schema_version INTEGER NOT NULL,
	epoch BIGINT NOT NULL,
	pepper_check VARCHAR(64) NOT NULL,
	PRIMARY KEY (id)
);
INSERT INTO keys_state VALUES(1,1,102689757027161,'5284700cdab38b91e4c0b384f087c3a52b51d1052f53c5eb9939daa62fb69b4f');
"""


@pytest.fixture
def database(any_database: str) -> str:
    """Each test runs on SQLite and on a real Postgres."""
    return any_database


@pytest.mark.processes
def test_a_creation_that_fails_creates_nothing(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(schema, "APPEND_ONLY", {"sqlite": ("no SQL",), "postgresql": ("no SQL",)})
        with pytest.raises(Exception, match="syntax"):
            open_store()
    store = open_store()
    store.create("acme", by=TESTER, now=NOW)
    assert len(store.read_all()) == 1


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        (3, "has schema 3 of a newer release; this release supports 2: install the newer release again"),
        (0, "has schema no version, this release needs 2: restart the gateway"),
    ],
)
def test_another_schema_is_left_alone(open_store: OpenStore, execute: Execute, version: int, sentence: str) -> None:
    execute(OTHER_RELEASE)
    execute(f"UPDATE keys_state SET schema_version = {version}, pepper_check = 'other'")
    with pytest.raises(StoreMismatch, match=sentence):
        open_store()
    execute("INSERT INTO keys VALUES('aaaaaaaaaaaa')")  # still one column


def test_a_running_gateway_reports_that_another_release_changed_the_schema(
    open_store: OpenStore, execute: Execute
) -> None:
    store = open_store()
    execute("UPDATE keys_state SET schema_version = 3")
    with pytest.raises(StoreMismatch, match="newer release"):
        store.read_epoch()
    with pytest.raises(StoreMismatch, match="newer release"):
        store.create("acme", by=TESTER, now=NOW)


def test_a_rotated_key_has_the_lineage_of_the_first_also_from_an_earlier_release(
    open_store: OpenStore, execute: Execute
) -> None:
    earlier = open_store()
    first = earlier.create("acme", by=TESTER, now=NOW)
    before = earlier.rotate(first.id, 5, by=TESTER, now=NOW)
    earlier.close()
    execute("ALTER TABLE keys DROP COLUMN lineage")
    store = open_store()
    assert {key.lineage for key in store.read_all()} == {None}
    second = store.rotate(before.id, 60, by=TESTER, now=NOW + 1)
    third = store.rotate(second.id, 60, by=TESTER, now=NOW + 2)
    principals = {record.principal.key_id: record.principal for record in store.read_live(NOW + 3).records.values()}
    assert {key: each.subject for key, each in principals.items() if key != first.id} == dict.fromkeys(
        (before.id, second.id, third.id), before.id
    )
    assert store.create("acme", by=TESTER, now=NOW + 4).id not in {each.subject for each in principals.values()}

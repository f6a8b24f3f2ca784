"""`headrace erase` deletes all that an end user has stored, nothing of others, and notes it without the name."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select
from typer.testing import CliRunner

from gateway.auth.audit import Actor, read, verify
from gateway.auth.state import StateDatabase
from gateway.auth.terminal import settings_of
from gateway.features.journal.folders import requests_folder
from gateway.features.requests.days import open_days
from gateway.features.requests.search import RequestQuery
from gateway.features.requests.store import RequestStore
from gateway.features.stored import erasure
from gateway.features.stored.erasure import Erased, erase_user
from gateway.features.stored.store import (
    STORED,
    Conversation,
    ResponseDatabase,
    StoredItem,
    StoredTurn,
    conversations,
    items,
    responses,
)
from gateway.features.usage.labels import UsageLabels, UsageRow
from gateway.features.usage.rows import hour_values
from gateway.features.usage.schema import USAGE, days, hours
from gateway.features.usage.store import UsageStore, write_hours
from gateway.process.commands import app
from tests.support.stored_requests import line, waiting
from tests.support.stored_responses import NOW, response

PEPPER = b"p" * 32
BY = Actor("tests")


@pytest.fixture
def database(any_database: str) -> Iterator[StateDatabase]:
    opened = StateDatabase(any_database, PEPPER, STORED, USAGE)
    yield opened
    opened.close()


def stored(url: str, tenant: str, id_: str, talk: str | None = None, **answer: object) -> None:
    store = ResponseDatabase(url)
    if talk is not None:
        metadata = json.dumps(answer.get("talk_metadata", {})).encode()
        if store.conversation(tenant, talk, NOW) is None:
            store.create(Conversation(tenant, talk, NOW, NOW + 100, metadata), (StoredItem(f"item-{talk}", b"{}"),))
        answer["conversation"] = {"id": talk}
    store.write([StoredTurn(tenant, response(tenant, id_, answer=json.dumps(answer).encode()))])
    store.close()


@pytest.fixture
def records(any_database: str, tmp_path: Path) -> Iterator[RequestStore]:
    opened = RequestStore(open_days(any_database, tmp_path / "days"))
    yield opened
    opened.close()


def present(database: StateDatabase) -> set[tuple[str, str, str]]:
    with database.transaction() as connection:
        return {
            (table.name, tenant, id_)
            for table in (responses, conversations, items)
            for tenant, id_ in connection.execute(select(table.c.tenant, table.c.id))
        }


def used(url: str, tenant: str, *names: str) -> None:
    """Usage of users, in an hour and in its day."""
    rows = [
        hour_values(
            f"of {tenant}", 100, UsageRow(slot, UsageLabels(tenant, "k", "m", "", "", "", name), (0, 1) + (0,) * 6)
        )
        for slot, name in enumerate(names)
    ]
    with closing(UsageStore(url, PEPPER)) as store:
        with store._database.change(moves_epoch=False) as connection:
            write_hours(connection, rows)
        store.sum_days(0, "")


def users(database: StateDatabase) -> dict[tuple[str, str], int]:
    """Requests of hours and of days by tenant and user."""
    sums: dict[tuple[str, str], int] = {}
    with database.transaction() as connection:
        for table in (hours, days):
            for tenant, name, requests in connection.execute(select(table.c.tenant, table.c.user, table.c.requests)):
                sums[tenant, name] = sums.get((tenant, name), 0) + requests
    return sums


def test_a_count_locks_no_writer_out(
    any_database: str, database: StateDatabase, records: RequestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(any_database, "acme", "1", user="u1")
    other, forget, written = StateDatabase(any_database, PEPPER, STORED), erasure._forget, list[int]()

    def write(*given: Any, **named: Any) -> int:
        """Another process writes while the rows are counted."""
        with other.change(moves_epoch=True):
            written.append(1)
        return forget(*given, **named)

    monkeypatch.setattr(erasure, "_forget", write)
    assert erase_user(database, records, "acme", "u1", by=BY, now=NOW, only_count=True).responses == 1
    assert written == [1]
    other.close()


def test_all_of_one_user_and_nothing_else(any_database: str, database: StateDatabase, records: RequestStore) -> None:
    stored(any_database, "acme", "1", user="zoë@example.org")
    stored(any_database, "acme", "2", safety_identifier="zoë@example.org")
    stored(any_database, "acme", "3", metadata={"user_id": "zoë@example.org"})
    stored(any_database, "acme", "4", talk="hers", user="zoë@example.org")
    stored(any_database, "acme", "5", talk="named", talk_metadata={"user": "zoë@example.org"}, user="other")
    stored(any_database, "acme", "6", talk="his", user="other", output="I know zoë@example.org")
    stored(any_database, "beta", "7", user="zoë@example.org")
    used(any_database, "acme", "zoë@example.org", "other")
    used(any_database, "beta", "zoë@example.org")
    both = [("acme", "zoë@example.org"), ("acme", "other"), ("beta", "zoë@example.org")]
    records.write("s", waiting([line(tenant=tenant, user=user) for tenant, user in both]), "2026-01-01")
    before = present(database)
    counted = erase_user(database, records, "acme", "zoë@example.org", by=BY, now=NOW, only_count=True)
    assert present(database) == before
    erased = erase_user(database, records, "acme", "zoë@example.org", by=BY, now=NOW)
    assert erased == counted == Erased(responses=4, conversations=2, items=2, usage=2, requests=1)
    assert present(database) == {
        ("stored_responses", "acme", "5"),
        ("stored_responses", "acme", "6"),
        ("stored_conversations", "acme", "his"),
        ("stored_items", "acme", "item-his"),
        ("stored_responses", "beta", "7"),
    }
    assert users(database) == {("acme", ""): 2, ("acme", "other"): 2, ("beta", "zoë@example.org"): 2}
    left = [(row["tenant"], row["user"]) for row in records.search(RequestQuery(0, 2**60))]
    assert sorted(left) == [("acme", ""), *both[1:]]
    with database.transaction() as connection:
        (entry,) = read(connection, 9)
        assert verify(connection, PEPPER).problem == ""
    assert (entry.action, json.loads(entry.detail)) == ("user.erase", erased._asdict())
    assert entry.target.startswith("acme/")
    assert "zo" not in entry.target
    assert erase_user(database, records, "acme", "zoë@example.org", by=BY, now=NOW) == Erased(0, 0, 0, 0, 0)


@given(names=st.lists(st.text(min_size=1, max_size=6).filter(lambda text: text.isprintable()), min_size=2, unique=True))
def test_each_user_is_erased_alone(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    url = f"sqlite:///{tmp_path_factory.mktemp('state')}/state.db"
    for number, name in enumerate(names):
        stored(url, "acme", f"r{number}", user=name)
    database = StateDatabase(url, PEPPER, STORED, USAGE)
    records = RequestStore(open_days(url, tmp_path_factory.mktemp("days")))
    assert erase_user(database, records, "acme", names[0], by=BY, now=NOW).responses == 1
    assert {id_ for _, _, id_ in present(database)} == {f"r{number}" for number in range(1, len(names))}
    database.close()


def test_the_command(tmp_path: Path) -> None:
    config = tmp_path / "headrace.yaml"
    url = f"sqlite:///{tmp_path}/state.db"
    pools = {"pools": [{"name": "up", "endpoints": ["http://127.0.0.1:9"]}]}
    models = {"models": [{"name": "chat", "routes": [{"to": "up"}]}], "tenants": [{"name": "acme", "models": ["*"]}]}
    config.write_text(yaml.safe_dump({"version": 1, "state": {"database": url}, **pools, **models}))
    stored(url, "acme", "1", user="u1")
    days = open_days(url, requests_folder(settings_of(config)))
    RequestStore(days).write("s", waiting([line(user="u1")]), "2026-01-01")
    arguments = ["erase", "--tenant", "acme", "--user", "u1", "--config", str(config)]
    counted = CliRunner().invoke(app, [*arguments, "--dry-run"])
    done = CliRunner().invoke(app, arguments)
    erased = {"responses": 1, "conversations": 0, "items": 0, "usage": 0, "requests": 1}
    assert json.loads(counted.stdout) == json.loads(done.stdout) == erased
    assert json.loads(CliRunner().invoke(app, arguments).stdout)["responses"] == 0
    wrong = CliRunner().invoke(app, ["erase", "--tenant", "acm", "--user", "u1", "--config", str(config)])
    assert (wrong.exit_code, "acm" in wrong.stderr) == (2, True)

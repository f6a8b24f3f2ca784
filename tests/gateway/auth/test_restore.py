"""A database that is restored, or loses its newest changes in a failover: each change counts in a running gateway."""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event, insert
from sqlalchemy.engine import make_url

from config.schema.config import Config
from config.schema.identity import GrantConfig
from gateway.auth import changes, schema, store
from gateway.auth.errors import KeyEnded, NoSuchKey, TeamConflict
from gateway.auth.store import KeyStore, LiveKeys
from gateway.auth.table import KeyTable
from gateway.auth.watch import KeyWatcher
from tests.gateway.auth.conftest import NOW, PEPPER, TESTER, Execute, MakeConfig, OpenStore
from tests.support.rollouts import Gateway, planned

if TYPE_CHECKING:
    from tests.support.postgres import Postgres

Change = tuple[str, int]
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(
            ["create", "revoke", "block", "unblock", "rotate", "move", "team", "untold", "backup", "restore", "poll"]
        ),
        st.integers(0, 5),
    ),
    max_size=25,
)


class Backups:
    """The backups of one database. `restore` replaces the database by one of them."""

    def __init__(self, url: str, postgres: "Postgres | None") -> None:
        self.url = url
        self._postgres = postgres
        self._path = Path(url.removeprefix("sqlite:///"))
        self.made: list[str] = []

    def make(self) -> None:
        if self._postgres is None:
            name = f"{self._path}.{len(self.made)}"
            shutil.copy(self._path, name)
        else:
            name = f"{make_url(self.url).database}_{len(self.made)}"
            self._copy(str(make_url(self.url).database), name)
        self.made.append(name)

    def restore(self, number: int) -> None:
        name = self.made[number % len(self.made)]
        if self._postgres is None:
            for path in self._path.parent.glob("state.db-*"):
                path.unlink()
            shutil.copy(name, self._path)
            return
        database = str(make_url(self.url).database)
        with self._postgres.connect() as connection:
            connection.execute(f"DROP DATABASE {database} WITH (FORCE)".encode())
        self._copy(name, database)

    def _copy(self, name: str, to: str) -> None:
        assert self._postgres is not None
        with self._postgres.connect() as connection:
            connection.execute(f"CREATE DATABASE {to} TEMPLATE {name}".encode())


class Fleet:
    """A running gateway, an operator, and the backups of their database."""

    def __init__(self, url: str, config: Config, postgres: "Postgres | None") -> None:
        self.operator, self.gateway = KeyStore(url, PEPPER), KeyStore(url, PEPPER)
        self.backups = Backups(url, postgres)
        self.table: KeyTable
        self.watcher = KeyWatcher(self.gateway, PEPPER, config, self._changed)
        self.issued: list[str] = []
        self._url = url

    def _changed(self, table: KeyTable) -> None:
        self.table = table

    async def act(self, change: Change) -> None:
        verb, number = change
        key_id = self.issued[number % len(self.issued)] if self.issued else "aaaaaaaaaaaa"
        try:
            if verb == "create":
                team = "red" if number % 2 else None
                grant = GrantConfig(team=team)
                self.issued.append(self.operator.create("acme", by=TESTER, now=NOW, grant=grant).id)
            elif verb == "revoke":
                self.operator.revoke(key_id, by=TESTER, now=NOW)
            elif verb in ("block", "unblock"):
                getattr(self.operator, verb)(key_id, by=TESTER, now=NOW)
            elif verb == "rotate":
                self.issued.append(self.operator.rotate(key_id, 60, by=TESTER, now=NOW).id)
            elif verb == "move":
                self.operator.teams.move_key("acme", key_id, f"team{number}", by=TESTER, now=NOW)
            elif verb == "team":
                self.operator.teams.put("acme", f"team{number}", {"requests": f"{number + 1}/h"}, by=TESTER, now=NOW)
            elif verb == "untold":
                self._by_an_earlier_release(key_id)
            elif verb == "poll":
                await self.poll()
            else:
                self._back_up(verb, number)
        except (KeyEnded, NoSuchKey, TeamConflict):
            pass

    def _back_up(self, verb: str, number: int) -> None:
        for each in (self.operator, self.gateway):
            each.close()
        if verb == "backup":
            self.backups.make()
        elif self.backups.made:
            self.backups.restore(number)

    def _by_an_earlier_release(self, key_id: str) -> None:
        """A revocation that counts the epoch, and writes no row of changes."""
        with self.operator._database.transaction() as connection:
            connection.exec_driver_sql(f"UPDATE keys SET revoked_at = 1 WHERE id = '{key_id}'")
            connection.exec_driver_sql("UPDATE keys_state SET epoch = epoch + 1")

    async def poll(self) -> None:
        await self.watcher.poll()
        assert self.watcher.available
        live = self.gateway.read_live(NOW)
        assert self.table._records == live.records
        assert self.table.teams == live.teams

    def close(self) -> None:
        for each in (self.operator, self.gateway):
            each.close()


async def lives(fleet: Fleet, acts: list[Change]) -> None:
    with closing(fleet):
        fleet.table = await fleet.watcher.load()
        await fleet.act(("backup", 0))
        for change in acts:
            await fleet.act(change)
        await fleet.poll()


@pytest.fixture
def new_fleet(make_config: MakeConfig, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Fleet]:
    config = make_config()

    def new() -> Fleet:
        return Fleet(f"sqlite:///{tmp_path_factory.mktemp('fleet')}/state/state.db", config, None)

    return new


@pytest.fixture
def new_fleet_of_postgres(postgres: "Postgres", make_config: MakeConfig) -> Callable[[], Fleet]:
    config = make_config()
    return lambda: Fleet(postgres.database(), config, postgres)


FRESH = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)  # it makes a new fleet


@FRESH
@given(acts=CHANGES)
def test_each_change_counts_over_any_restores(new_fleet: Callable[[], Fleet], acts: list[Change]) -> None:
    asyncio.run(lives(new_fleet(), acts))


@pytest.mark.processes
@settings(FRESH, max_examples=6)
@given(acts=CHANGES)
def test_each_change_counts_over_any_restores_of_postgres(
    new_fleet_of_postgres: Callable[[], Fleet], acts: list[Change]
) -> None:
    asyncio.run(lives(new_fleet_of_postgres(), acts))


@pytest.mark.parametrize("verb", ["create", "revoke"])
def test_one_change_lost_and_one_made_is_a_change(new_fleet: Callable[[], Fleet], verb: str) -> None:
    acts = [("create", 0), ("backup", 0), ("create", 0), ("poll", 0), ("restore", 1), (verb, 0)]
    asyncio.run(lives(new_fleet(), acts))


def test_only_changed_keys_are_read(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    written = open_store()
    keys = [written.create("acme", by=TESTER, now=NOW) for _ in range(20)]
    read: list[str] = []
    record = store._record

    def counted(row: object) -> object:
        read.append(row.id)  # type: ignore[attr-defined]
        return record(row)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "_record", counted)
    live = written.read_live(NOW)
    assert len(read) == 20
    read.clear()
    new = written.rotate(keys[3].id, 60, by=TESTER, now=NOW)
    written.revoke(keys[7].id, by=TESTER, now=NOW)
    live = written.read_changes(live, NOW)
    assert set(read) == {keys[3].id, new.id, keys[7].id}  # the revoked one too, for the reasons of its refusals
    assert live.changed == frozenset({keys[3].id, new.id, keys[7].id})
    assert live.records == written.read_live(NOW).records


@pytest.mark.parametrize("verb", ["revoke", "rotate"])
def test_a_change_costs_the_same_among_many_keys(open_store: OpenStore, make_config: MakeConfig, verb: str) -> None:
    """The work of the database, in its own instructions, and of the table in memory, in entries that are copied."""
    written, costs = open_store(), []
    engine = written._database._engine
    assert engine is not None
    for many in (50, 5000):
        add_keys(written, many)
        keys = [written.create("acme", by=TESTER, now=NOW) for _ in range(2)]
        live = written.read_live(NOW)
        table = KeyTable.build(make_config(), PEPPER, live.records.values())
        for key in keys:
            steps = [0]

            def step(steps: list[int] = steps) -> None:
                steps[0] += 1

            def watch(raw: sqlite3.Connection, _: object, step: Callable[[], None] = step) -> None:
                raw.set_progress_handler(step, 1)

            if verb == "revoke":
                written.revoke(key.id, by=TESTER, now=NOW)
            else:
                written.rotate(key.id, 60, by=TESTER, now=NOW)
            event.listen(engine, "connect", watch)
            live = written.read_changes(live, NOW)
            event.remove(engine, "connect", watch)
            assert live.changed is not None
            changed = {key_id: live.records.get(key_id) for key_id in live.changed}
            after = table.changed(make_config(), changed, live.teams, live.ended)
            assert after._records._under is table._records._under, "all keys were copied"
            costs.append(steps[0])
            table = after
    assert costs[2] <= 1.3 * costs[0], costs
    assert costs[3] <= 1.3 * costs[1], costs


def add_keys(written: KeyStore, count: int) -> None:
    """More keys, as one change."""
    rows = [
        {"id": f"k{count}n{number:06d}", "tenant": "acme", "label": "", "hash": "00" * 32, "created_at": NOW}
        for number in range(count)
    ]
    with written._database.change(moves_epoch=True) as connection:
        connection.execute(insert(schema.keys), rows)


def test_beyond_the_stored_changes_all_keys_are_read(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MOST_STORED", 5)
    monkeypatch.setattr(store, "MOST_STORED", 5)
    written = open_store()
    live: LiveKeys = written.read_live(NOW)
    for count in (3, 3, 9):
        for _ in range(count):
            written.create("acme", by=TESTER, now=NOW)
        live = written.read_changes(live, NOW)
        assert live.records == written.read_live(NOW).records
        assert not live.is_other
    assert live.changed is None


def test_a_database_of_an_earlier_release_is_completed(open_store: OpenStore, execute: Execute) -> None:
    """Its epoch is a counter, and it has no table of changes."""
    written = open_store()
    key = written.create("acme", by=TESTER, now=NOW)
    written.close()
    execute("DROP TABLE key_changes; UPDATE keys_state SET epoch = 7")
    again = open_store()
    live = again.read_live(NOW)
    assert live.position.epoch == 7
    again.revoke(key.id, by=TESTER, now=NOW)
    assert again.read_epoch() != 8
    assert again.read_changes(live, NOW).records == {}


def test_a_comparison_that_begins_again_after_a_restore_has_another_generation(tmp_path: Path) -> None:
    generations = set()
    for name in ("lost", "restored"):
        gateway = Gateway(f"sqlite:///{tmp_path}/{name}.db")
        with closing(gateway.store):
            progress = gateway.tick(planned())
            assert progress is not None
            generations.add(progress.generation)
    assert len(generations) == 2


@pytest.mark.parametrize("before", range(8, 12))
def test_the_rows_of_one_change_are_not_cut_in_two(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    monkeypatch.setattr(changes, "MOST_READ", 10)
    written = open_store()
    key = written.create("acme", by=TESTER, now=NOW)
    live = written.read_live(NOW)
    for _ in range(before):
        written.create("acme", by=TESTER, now=NOW)
    new = written.rotate(key.id, 60, by=TESTER, now=NOW)  # two rows
    assert new.id in written.read_changes(live, NOW).records

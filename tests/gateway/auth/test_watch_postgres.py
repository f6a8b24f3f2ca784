"""A real Postgres that has nothing left for us: no valid key is refused for it."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from gateway.auth.table import KeyTable
from gateway.auth.watch import KeyWatcher
from tests.gateway.auth.conftest import NOW, PEPPER, TESTER, MakeConfig, OpenStore
from tests.support.postgres import Postgres
from tests.support.waiting import until

pytestmark = pytest.mark.processes


@pytest.fixture
def database(postgres: Postgres) -> str:
    return postgres.database()


@pytest.fixture
def hogs() -> Iterator[list[psycopg.Connection[Any]]]:
    connections: list[psycopg.Connection[Any]] = []
    yield connections
    for connection in connections:
        connection.close()


async def test_keys_stay_valid_without_a_free_connection(
    open_store: OpenStore, postgres: Postgres, make_config: MakeConfig, hogs: list[psycopg.Connection[Any]]
) -> None:
    store, admin = open_store(), open_store()
    live, ended = (admin.create("acme", by=TESTER, now=NOW) for _ in range(2))
    tables: list[KeyTable] = []
    watcher = KeyWatcher(store, PEPPER, make_config(), tables.append)
    table = await watcher.load()
    admin.revoke(ended.id, by=TESTER, now=NOW)
    for one in (store, admin):
        one.close()  # as if the server had ended our connections
    with pytest.raises(psycopg.OperationalError, match="too many clients"):
        hogs.extend(iter(postgres.connect, None))
    await watcher.poll()
    assert (tables, watcher.available) == ([], False)
    for key in (live, ended):
        assert table.authenticate(key.plaintext, NOW).tenant == "acme"
    while hogs:
        hogs.pop().close()

    async def answers() -> bool:
        await watcher.poll()
        return watcher.available

    await until(answers)  # a server notices a disconnect with a delay
    assert len(tables) == 1
    assert tables[0].authenticate(live.plaintext, NOW).tenant == "acme"
    assert len(tables[0]) == 1

"""The counter of stored bytes against the rows that are there, and the quota against everything a tenant can send."""

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from sqlalchemy import Connection, text

from adapters.errors import StorageFull
from gateway.auth.keys import Principal
from gateway.features.batches.rows import BatchHolder, BatchSpec, StoredFile
from gateway.features.batches.schema import METERED as OF_BATCHES
from gateway.features.batches.store import BatchStore, TooMany
from gateway.features.quota import room
from gateway.features.quota.meter import ROW_BYTES
from gateway.features.quota.room import used_by_all
from gateway.features.stored.store import METERED as OF_RESPONSES
from gateway.features.stored.store import STORED, Conversation, ResponseDatabase, StoredItem, StoredTurn, responses
from gateway.state.database import open_engine
from gateway.state.refusals import write_each
from tests.support.gateways import PEPPER
from tests.support.stored_responses import NOW, response

QUOTA, LIFE = 20_000, 100.0
TENANTS = ("a", "b")


def counted(url: str) -> tuple[dict[str, int], dict[str, int]]:
    """The counter of each tenant, and the sum of its rows, computed here."""
    engine = open_engine(url)
    with engine.begin() as connection:
        used = {tenant: size for tenant, size in used_by_all(connection).items() if size}
        sums = Counter[str]()
        for metered in (*OF_RESPONSES, *OF_BATCHES):
            for row in connection.execute(metered.table.select()).mappings():
                sums[row["tenant"]] += ROW_BYTES + sum(len(row[name].encode()) for name in metered.texts)
                sums[row["tenant"]] += sum(row[name] for name in metered.numbers)
    engine.dispose()
    return used, dict(sums)


class Stores:
    """Two processes over one database, and a clock."""

    def __init__(self, url: str) -> None:
        self.url, self.now = url, NOW
        self.responses = [ResponseDatabase(url, lambda tenant: QUOTA) for _ in range(2)]
        self.batches = [BatchStore(url, PEPPER, lambda tenant: QUOTA) for _ in range(2)]

    def close(self) -> None:
        for first, second in zip(self.responses, self.batches, strict=True):
            first.close()
            second.close()

    def act(self, draw: random.Random, of: int) -> None:
        """One act of one tenant at one of the processes. What exceeds the quota is refused."""
        tenant, id_, size = draw.choice(TENANTS), draw.choice("123"), draw.choice((0, 10, 500, 3000, 15_000))
        store, batches, filler = self.responses[of], self.batches[of], b'"' + b"\xc3\xa9" * (size // 2) + b'"'
        turn = StoredTurn(tenant, None, id_, (StoredItem(f"i{id_}{size}", filler),), self.now + LIFE)
        answer = response(tenant, f"r{draw.randrange(9)}", at=self.now, answer=filler)
        spec = BatchSpec(
            f"batch{draw.randrange(10**9)}", BatchHolder.of(Principal(tenant, "k")), "openai", "/v1/chat/completions",
            "f", "o", "e", "24h", self.now, self.now + LIFE, {"note": "x" * min(size, 500)}, LIFE,
        )  # fmt: skip
        file = StoredFile(
            f"f{tenant}{id_}{draw.randrange(9)}", tenant, "batch", "é.jsonl", size, self.now, self.now + LIFE
        )
        acts: list[Any] = [
            lambda: store.write([StoredTurn(tenant, answer), turn, StoredTurn("b", response("b", "z", answer=filler))]),
            lambda: store.create(Conversation(tenant, id_, self.now, self.now + LIFE, b"{}"), turn.items),
            lambda: store.append(turn),
            lambda: store.set_metadata(tenant, id_, filler[:2001], self.now, self.now + LIFE),
            lambda: store.delete_item(tenant, id_, turn.items[0].id),
            lambda: store.delete_conversation(tenant, id_, self.now),
            lambda: store.delete_response(tenant, answer.id, self.now),
            lambda: batches.add_file(file),
            lambda: batches.delete_file(tenant, file.id, self.now),
            lambda: batches.create(spec, 5, self.now + LIFE),
            lambda: store.sweep(self.now, 4),
            lambda: self._expire(batches),
        ]
        self.now += draw.choice((0, 1, LIFE))
        with suppress(StorageFull, TooMany, Exists), expected_conflicts():
            draw.choice(acts)()

    def _expire(self, batches: BatchStore) -> None:
        batches.forget_files(batches.expired_files(self.now, 100))
        batches.forget_batches(self.now)


class Exists(Exception):
    """A conversation of this id is there already."""


@contextmanager
def expected_conflicts() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if "unique" in str(error).lower():
            raise Exists from None
        raise


@pytest.mark.parametrize("seed", range(4))
def test_the_counter_is_the_sum_of_the_rows_and_stays_within_the_quota(any_database: str, seed: int) -> None:
    stores, draw = Stores(any_database), random.Random(seed)
    for step in range(60):
        stores.act(draw, of=step % 2)
        if step % 20 == 19:
            used, sums = counted(any_database)
            assert used == sums
            assert max(used.values(), default=0) <= QUOTA
    stores.close()


def test_concurrent_writers_do_not_exceed_the_quota_together(any_database: str) -> None:
    stores = Stores(any_database)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda at: stores.act(random.Random(at), of=at % 2), range(60)))
    used, sums = counted(any_database)
    assert used == sums
    assert max(used.values()) <= QUOTA
    stores.close()


def test_a_killed_transaction_counts_nothing(any_database: str) -> None:
    stores, engine = Stores(any_database), open_engine(any_database)
    connection: Connection = engine.connect()
    row = response("a", "r", answer=b"x" * 5000)._asdict() | {"input": "[]", "answer": "x" * 5000}
    connection.execute(responses.insert().values(row))
    connection.invalidate()  # the socket closes without a word, as when the process is killed
    connection.close()
    engine.dispose()
    assert counted(any_database) == ({}, {})
    stores.close()


def test_rows_of_an_earlier_release_are_counted(any_database: str) -> None:
    engine = open_engine(any_database)
    with engine.begin() as connection:
        STORED.prepare(connection)
        for statement in _without_triggers(connection):
            connection.execute(text(statement))
    with engine.begin() as connection:
        row = response("a", "old")._asdict() | {"input": "[]", "answer": "{}"}
        connection.execute(responses.insert().values(row))
    engine.dispose()
    Stores(any_database).close()
    assert counted(any_database) == ({"a": ROW_BYTES + 4}, {"a": ROW_BYTES + 4})


def _without_triggers(connection: Connection) -> list[str]:
    names = [
        (f"{m.table.name}_{event}_bytes", m.table.name)
        for m in OF_RESPONSES
        for event in ("insert", "delete", "update")
    ]
    on = connection.dialect.name == "postgresql"
    drops = [f"DROP TRIGGER {name}{f' ON {table}' if on else ''}" for name, table in names]
    return [*drops, "DROP TABLE stored_bytes"]


def test_the_parts_of_a_tenant_are_folded(any_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_PARTS", 4)
    stores = Stores(any_database)
    for at in range(20):
        stores.responses[at % 2].write([StoredTurn("a", response("a", "r", answer=b"x" * at))])
    engine = open_engine(any_database)
    with engine.begin() as connection:
        assert connection.execute(text("SELECT count(*) FROM stored_bytes")).scalar_one() <= 6
    engine.dispose()
    used, sums = counted(any_database)
    assert used == sums
    stores.close()


def test_a_turn_beyond_the_quota_is_refused_and_the_others_are_written(any_database: str) -> None:
    store = ResponseDatabase(any_database, {"a": 9000, "b": 0}.__getitem__)
    sizes = [("b", 1), ("a", 5000), ("a", 5000), ("a", 3000), ("b", 10), ("a", 100)]
    turns = [StoredTurn(of, response(of, str(at), answer=b"x" * size)) for at, (of, size) in enumerate(sizes)]
    outcome = write_each(turns, store.write)
    assert (outcome.ended, outcome.outage) == (len(turns), None)
    assert {at: type(error) for at, error in outcome.refused.items()} == dict.fromkeys((0, 2, 4), StorageFull)
    store.delete_response("a", "1", NOW)
    store.write([turns[2]])
    store.close()

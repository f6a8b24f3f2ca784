"""A key database in a temporary folder and a configuration that names it."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from config.schema.config import Config
from gateway.auth.audit import Actor
from gateway.auth.store import KeyStore

PEPPER = b"pepper-of-the-tests-" * 2
NOW = 1_800_000_000.0
TESTER = Actor("cli:tester@here")

MakeConfig = Callable[..., Config]
OpenStore = Callable[..., KeyStore]
Execute = Callable[[str], None]


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/state/state.db"


@pytest.fixture
def execute(database: str, request: pytest.FixtureRequest) -> Execute:
    """Execute statements with write access to the database, past the product."""
    if not database.startswith("sqlite"):
        server = request.getfixturevalue("postgres")
        return lambda statements: server.execute(database, statements)
    path = Path(database.removeprefix("sqlite:///"))
    path.parent.mkdir(exist_ok=True)

    def execute(statements: str) -> None:
        with closing(sqlite3.connect(path)) as raw:
            raw.executescript(statements)

    return execute


@pytest.fixture
def open_store(database: str) -> Iterator[OpenStore]:
    """One more store of the same database, closed at the end."""
    opened: list[KeyStore] = []

    def open_store(pepper: bytes = PEPPER) -> KeyStore:
        opened.append(KeyStore(database, pepper))
        return opened[-1]

    yield open_store
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: OpenStore) -> KeyStore:
    return open_store()


@pytest.fixture
def make_config(database: str) -> MakeConfig:
    """`make_config(acme=[KEY, …], other=[])`: one tenant for each name, with its keys in the file."""

    def make(*, auth: dict[str, Any] | None = None, state: str = database, **tenants: list[dict[str, Any]]) -> Config:
        written = tenants or {"acme": [], "demo": []}
        return Config.model_validate(
            {
                "version": 1,
                "state": {"database": state},
                "auth": auth or {},
                "pools": [{"name": "pool", "endpoints": ["http://127.0.0.1:9"]}],
                "models": [{"name": "chat", "routes": [{"to": "pool"}]}],
                "tenants": [{"name": name, "models": ["*"], "keys": keys} for name, keys in written.items()],
            }
        )

    return make

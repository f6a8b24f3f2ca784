"""A key database in a temporary folder and a configuration that names it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from config.schema import Config
from gateway.auth.store import KeyStore

PEPPER = b"pepper-of-the-tests-" * 2
NOW = 1_800_000_000.0

MakeConfig = Callable[..., Config]


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/state/state.db"


@pytest.fixture
def store(database: str) -> KeyStore:
    return KeyStore(database, PEPPER)


@pytest.fixture
def make_config(database: str) -> MakeConfig:
    """`make_config(acme=[KEY, …], other=[])`: one tenant a name, with the keys kept in the file."""

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

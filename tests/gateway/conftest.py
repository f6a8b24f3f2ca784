"""Empty state databases, and a Postgres for all tests of the process."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.postgres import Postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator["Postgres"]:
    from tests.support.postgres import Postgres

    server = Postgres()
    server.start()
    yield server
    server.remove()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.processes)])
def any_database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/state/state.db"
    server: Postgres = request.getfixturevalue("postgres")
    return server.database()


@pytest.fixture
def plain_generations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Generations of rollouts count from 1, without their random part."""
    monkeypatch.setattr("gateway.features.rollouts.store.GENERATION_BITS", 0)

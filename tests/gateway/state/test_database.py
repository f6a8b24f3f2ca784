import subprocess
import sys
from pathlib import Path

import pytest

from gateway.state.database import open_engine, sqlite_path, use_write_ahead_log
from gateway.state.errors import StateConfigError, StoreUnavailable
from tests.support.postgres import Postgres


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert sqlite_path("sqlite:///.headrace/state.db") == tmp_path / ".headrace" / "state.db"
    assert sqlite_path("postgresql://db/headrace") is None


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:x?uri=true", "sqlite:///x?mode=ro"])
def test_sqlite_without_a_plain_file_is_refused(url: str) -> None:
    with pytest.raises(StateConfigError, match="sqlite:///PATH"):
        sqlite_path(url)


def test_a_text_that_is_no_url_is_refused_without_repeating_it() -> None:
    with pytest.raises(StateConfigError, match="not a database URL") as caught:
        open_engine("postgres//me:hunter2@db")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["nosuchdatabase://me:hunter2@db/x", "mysql+nosuchdriver://me:hunter2@db/x"])
def test_a_missing_driver_is_named_without_the_password(url: str) -> None:
    with pytest.raises(StateConfigError, match="no driver for") as caught:
        open_engine(url)
    assert "hunter2" not in str(caught.value)


def test_psycopg_is_the_driver_unless_another_is_named() -> None:
    engine = open_engine("postgresql://me:hunter2@db/headrace")
    assert engine.driver == "psycopg"
    assert engine.url.password == "hunter2"


@pytest.mark.processes
def test_connections_to_postgres_have_a_name(postgres: Postgres) -> None:
    url = postgres.database()
    for address, name in ((url, "headrace"), (f"{url}&application_name=mine", "mine")):
        engine = open_engine(address)
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SHOW application_name").scalar_one() == name
        engine.dispose()


def test_the_error_for_a_missing_psycopg_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StateConfigError, match=r"pip install --editable '\.\[postgres\]'"):
        open_engine("postgresql://me@db/headrace")


def test_a_path_that_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot open"):
        open_engine(f"sqlite:///{tmp_path}")


@pytest.mark.processes
def test_a_second_engine_leaves_the_locks_of_open_connections(tmp_path: Path) -> None:
    """Another process that closes its connection would otherwise delete the write-ahead log of this process."""
    url, file = f"sqlite:///{tmp_path}/state.db", tmp_path / "state.db"
    with open_engine(url).connect() as connection:
        use_write_ahead_log(connection)
        connection.exec_driver_sql("CREATE TABLE numbers (number INTEGER)")
        connection.exec_driver_sql("INSERT INTO numbers VALUES (1)")
        connection.commit()
        open_engine(url)
        write_in_another_process(file, 2)
        assert (tmp_path / "state.db-wal").exists()
        connection.exec_driver_sql("INSERT INTO numbers VALUES (3)")
        connection.commit()
        with open_engine(url).connect() as later:
            assert later.exec_driver_sql("SELECT number FROM numbers").scalars().all() == [1, 2, 3]


def write_in_another_process(file: Path, number: int) -> None:
    script = (
        "import sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1])\n"
        "connection.execute('INSERT INTO numbers VALUES (?)', (int(sys.argv[2]),))\n"
        "connection.commit()\n"
        "connection.close()\n"
    )
    subprocess.run([sys.executable, "-c", script, str(file), str(number)], check=True, timeout=300)

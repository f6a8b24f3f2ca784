import sys
from pathlib import Path

import pytest

from gateway.auth.database import open_engine, sqlite_path
from gateway.auth.errors import KeyConfigError, StoreUnavailable


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert sqlite_path("sqlite:///.headrace/state.db") == tmp_path / ".headrace" / "state.db"
    assert sqlite_path("postgresql://db/headrace") is None


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:x?uri=true", "sqlite:///x?mode=ro"])
def test_sqlite_without_a_plain_file_is_refused(url: str) -> None:
    with pytest.raises(KeyConfigError, match="sqlite:///PATH"):
        sqlite_path(url)


def test_a_text_that_is_no_url_is_refused_without_repeating_it() -> None:
    with pytest.raises(KeyConfigError, match="not a database URL") as caught:
        open_engine("postgres//me:hunter2@db")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["nosuchdatabase://me:hunter2@db/x", "mysql+nosuchdriver://me:hunter2@db/x"])
def test_a_missing_driver_is_named_without_the_password(url: str) -> None:
    with pytest.raises(KeyConfigError, match="no driver for") as caught:
        open_engine(url)
    assert "hunter2" not in str(caught.value)


def test_psycopg_is_the_driver_unless_another_is_named() -> None:
    engine = open_engine("postgresql://me:hunter2@db/headrace")
    assert engine.driver == "psycopg"
    assert engine.url.password == "hunter2"


def test_the_error_for_a_missing_psycopg_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(KeyConfigError, match=r"pip install 'headrace\[postgres\]'"):
        open_engine("postgresql://me@db/headrace")


def test_a_path_that_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot open"):
        open_engine(f"sqlite:///{tmp_path}")

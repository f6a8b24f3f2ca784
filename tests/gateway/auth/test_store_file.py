"""What is so of SQLite's file only."""

import stat
from pathlib import Path

import pytest

from gateway.auth.errors import StoreUnavailable
from gateway.auth.store import KeyStore
from tests.gateway.auth.conftest import NOW, PEPPER, TESTER, OpenStore


def test_the_files_are_private(store: KeyStore, tmp_path: Path) -> None:
    store.create("acme", by=TESTER, now=NOW)
    folder = tmp_path / "state"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.iterdir()]}
    assert modes.pop("state") == 0o700
    assert modes["state.db"] == 0o600
    assert set(modes.values()) == {0o600}


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"not a database at all, only text" * 100)
    with pytest.raises(StoreUnavailable, match="not a database"):
        KeyStore(f"sqlite:///{tmp_path}/state.db", PEPPER)


def test_a_deleted_file_is_not_made_again_by_reading(store: KeyStore, tmp_path: Path) -> None:
    path = tmp_path / "state" / "state.db"
    path.unlink()
    with pytest.raises(StoreUnavailable, match="unable to open"):
        store.read_epoch()
    assert not path.exists()


def test_a_database_made_anew_has_another_epoch(store: KeyStore, open_store: OpenStore, tmp_path: Path) -> None:
    before = store.read_epoch()
    for path in (tmp_path / "state").iterdir():
        path.unlink()
    assert open_store().read_epoch() != before

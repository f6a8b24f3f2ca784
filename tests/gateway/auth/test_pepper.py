import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gateway.auth.errors import KeyConfigError
from gateway.auth.pepper import derived, load_pepper, pepper_path
from gateway.state.errors import StoreUnavailable
from tests.gateway.auth.conftest import MakeConfig


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_configured_one_counts_and_makes_no_file(make_config: MakeConfig, tmp_path: Path) -> None:
    config = make_config(auth={"pepper": " " + "s" * 32 + "\n"})
    assert load_pepper(config) == b"s" * 32
    assert pepper_path(config) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("length", [0, 15, 5000])
def test_a_length_that_is_wrong_is_refused_without_showing_it(make_config: MakeConfig, length: int) -> None:
    with pytest.raises(KeyConfigError, match=f"got {length * 2}; generate one with") as caught:
        load_pepper(make_config(auth={"pepper": "é" * length}))
    assert "é" not in str(caught.value)


def test_the_file_is_private_and_stays(make_config: MakeConfig, tmp_path: Path) -> None:
    config = make_config()
    first = load_pepper(config)
    path = pepper_path(config)
    assert path == tmp_path / "state" / "pepper"
    assert mode(path) == 0o600
    assert mode(path.parent) == 0o700
    assert load_pepper(config) == first
    assert [child.name for child in path.parent.iterdir()] == ["pepper"]


def test_the_files_text_works_as_the_configured_one(make_config: MakeConfig) -> None:
    made = load_pepper(make_config())
    path = pepper_path(make_config())
    assert path is not None
    assert load_pepper(make_config(auth={"pepper": path.read_text()})) == made


def test_many_starts_at_once_agree(make_config: MakeConfig) -> None:
    config = make_config()
    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(lambda _: load_pepper(config), range(64)))) == 1


def test_a_file_open_to_everyone_is_refused(make_config: MakeConfig) -> None:
    config = make_config()
    load_pepper(config)
    path = pepper_path(config)
    assert path is not None
    path.chmod(0o604)
    with pytest.raises(KeyConfigError, match=f"chmod 600 {path}"):
        load_pepper(config)
    path.chmod(0o660)
    assert load_pepper(config)


def test_an_emptied_file_is_refused(make_config: MakeConfig) -> None:
    config = make_config()
    load_pepper(config)
    path = pepper_path(config)
    assert path is not None
    os.truncate(path, 0)
    with pytest.raises(KeyConfigError, match="expected 32 to 4096 bytes, got 0"):
        load_pepper(config)


def test_a_shared_database_needs_a_configured_one(make_config: MakeConfig) -> None:
    with pytest.raises(KeyConfigError, match=r"auth\.pepper is needed") as caught:
        load_pepper(make_config(state="postgresql://me:hunter2@db/headrace"))
    assert "hunter2" not in str(caught.value)


def test_a_folder_that_cannot_be_made(make_config: MakeConfig, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match="cannot create the folder"):
        load_pepper(make_config(state=f"sqlite:///{tmp_path}/file/state.db"))


def test_a_derived_secret_is_stable_and_reveals_neither_the_pepper_nor_another_secret() -> None:
    one, same, other = derived(b"p" * 32, "a"), derived(b"p" * 32, "a"), derived(b"p" * 32, "b")
    assert one == same != other
    assert derived(b"q" * 32, "a") != one

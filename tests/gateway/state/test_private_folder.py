"""All folders of data are their user's alone, also those around them: `.headrace` has keys, prompts and answers."""

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.features.batches.local_storage import LocalStorage
from gateway.features.recording.segments import new_path
from gateway.state.database import open_engine
from gateway.state.journal import Journal
from gateway.state.local_folder import prepare_private

MAKERS: dict[str, Callable[[Path], object]] = {
    "database": lambda folder: open_engine(f"sqlite:///{folder}/state.db").dispose(),
    "files": lambda folder: LocalStorage(str(folder)).append("more/x", 0, b"y"),
    "usage": lambda folder: prepare_private(folder, "usage"),
    "records": lambda folder: new_path(folder, 0.0),
    "journal": lambda folder: Journal(folder).close(),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_every_folder_that_is_made_is_private(maker: str, tmp_path: Path) -> None:
    MAKERS[maker](tmp_path / ".headrace" / "x" / "y")
    made = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert len(made) >= 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700}

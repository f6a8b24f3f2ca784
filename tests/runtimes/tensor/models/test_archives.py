"""Archives of a model store that are damaged, or change while they are read."""

import json
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.tensor.models.archives import unpacked
from runtimes.tensor.models.overrides import remove
from runtimes.tensor.models.repository import Repository, RepositoryError

MANIFEST = {"model": {"modelName": "m", "handler": "h.py"}}


def write(store: Path, method: int = zipfile.ZIP_STORED) -> None:
    """One archive, whose handler is compressed by a method."""
    with zipfile.ZipFile(store / "m.mar", "w") as written:
        written.writestr("MAR-INF/MANIFEST.json", json.dumps(MANIFEST))
        written.writestr("h.py", "".join(map(str, range(300))), method)


@given(at=st.integers(0, 2000), mask=st.integers(1, 255))
def test_any_damaged_archive_is_unpacked_or_refused(
    at: int, mask: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = tmp_path_factory.mktemp("store")
    write(store, zipfile.ZIP_DEFLATED)
    content = bytearray((store / "m.mar").read_bytes())
    content[at % len(content)] ^= mask
    (store / "m.mar").write_bytes(content)
    try:
        folder, _ = unpacked(Repository(store).find("m"))
    except RepositoryError:
        return
    assert folder.version(1).is_dir()
    remove(folder.path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_compression_without_a_bound_is_refused(method: int, tmp_path: Path) -> None:
    write(tmp_path, method)
    with pytest.raises(RepositoryError, match="another method than deflate"):
        unpacked(Repository(tmp_path).find("m"))


def test_an_archive_that_is_removed_while_it_is_read_leaves_no_model(tmp_path: Path) -> None:
    write(tmp_path)
    folder = Repository(tmp_path).find("m")
    (tmp_path / "m.mar").unlink()
    with pytest.raises(RepositoryError, match="cannot be unpacked: No such file"):
        unpacked(folder)


def test_a_name_that_no_encoder_takes_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.mar", "w") as written:
        written.writestr("MAR-INF/MANIFEST.json", json.dumps({"model": {"modelName": "\ud800"}}))
    listing = Repository(tmp_path).scan()
    assert listing.models == {}
    assert list(listing.refused) == ["?"]

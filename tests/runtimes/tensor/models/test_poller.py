"""Models that are copied into the repository are loaded once complete, and removed models are unloaded."""

import asyncio
import hashlib
import os
import shutil
from pathlib import Path

import pytest

from runtimes.tensor.models import manifest
from runtimes.tensor.models.poller import Poller
from runtimes.tensor.models.repository import Listing, Repository, RepositoryError
from tests.runtimes.tensor.workshop import Workshop, managing, put
from tests.support.conditions import until
from tests.support.torchserve_store import archive

pytestmark = pytest.mark.plain


class Looker:
    """Only looks."""

    def __init__(self, root: Path) -> None:
        self._repository = Repository(root)

    async def look(self) -> Listing:
        return self._repository.scan()

    async def bring(self, name: str) -> None:
        raise NotImplementedError

    async def remove(self, name: str) -> None:
        raise NotImplementedError


@pytest.fixture
def poller(tmp_path: Path) -> Poller:
    return Poller(Looker(tmp_path), 1000.0)


def with_manifest(folder: Path) -> None:
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in sorted(folder.iterdir())]
    (folder / "SHA256SUMS").write_text("\n".join(lines) + "\n")


async def test_a_folder_is_loaded_when_it_stood_still(tmp_path: Path, poller: Poller) -> None:
    assert await poller.poll() == ([], [])
    folder = put(tmp_path, "m")
    assert await poller.poll() == ([], [])
    (folder / "weights.bin").write_bytes(b"half")
    assert await poller.poll() == ([], [])
    (folder / "weights.bin").write_bytes(b"half and the other half")
    assert await poller.poll() == ([], [])
    assert await poller.poll() == (["m"], [])
    assert await poller.poll() == ([], [])


async def test_a_copy_under_a_hidden_name_is_not_still(tmp_path: Path, poller: Poller) -> None:
    folder = put(tmp_path, "m")
    await poller.poll()
    for size in range(3):
        (folder / ".weights.bin.h3x").write_bytes(b"x" * size)
        assert await poller.poll() == ([], [])
    (folder / ".weights.bin.h3x").rename(folder / "weights.bin")
    assert await poller.poll() == ([], [])
    assert await poller.poll() == (["m"], [])


async def test_with_a_manifest_it_is_loaded_at_once_and_never_before_it_fits(tmp_path: Path, poller: Poller) -> None:
    folder = put(tmp_path, "m")
    with_manifest(folder)
    assert await poller.poll() == (["m"], [])
    new = put(tmp_path, "m", 2)
    with_manifest(new)
    whole = (new / "model.py").read_text()
    (new / "model.py").write_text(whole[:2])
    assert await poller.poll() == ([], [])
    (new / "model.py").write_text(whole)
    assert await poller.poll() == (["m"], [])


async def test_a_changed_model_is_loaded_again(tmp_path: Path, poller: Poller) -> None:
    put(tmp_path, "m")
    await poller.poll()
    assert (await poller.poll())[0] == ["m"]
    for change in ("a new version", "the configuration"):
        if change == "a new version":
            put(tmp_path, "m", 2)
        else:
            (tmp_path / "m" / "model.yaml").write_text("backend: python\n# changed\n")
        assert await poller.poll() == ([], [])
        assert await poller.poll() == (["m"], [])


async def test_a_model_absent_in_two_polls_is_unloaded(tmp_path: Path, poller: Poller) -> None:
    put(tmp_path, "m")
    put(tmp_path, "n")
    await poller.poll()
    assert (await poller.poll())[0] == ["m", "n"]
    (tmp_path / "m").rename(tmp_path / ".m")
    assert await poller.poll() == ([], [])
    (tmp_path / ".m").rename(tmp_path / "m")  # as it was
    assert await poller.poll() == ([], [])
    shutil.rmtree(tmp_path / "m")
    shutil.rmtree(tmp_path / "n" / "1")  # a model without a version is none
    assert await poller.poll() == ([], [])
    assert await poller.poll() == ([], ["m", "n"])
    assert await poller.poll() == ([], [])


async def test_at_the_start_only_settled_models_are_loaded_at_once(tmp_path: Path) -> None:
    put(tmp_path, "fresh")
    with_manifest(put(tmp_path, "complete"))
    put(tmp_path, "old")
    listing = Repository(tmp_path).scan()
    assert sorted(await Poller(Looker(tmp_path), 1000.0).first(listing)) == ["complete"]
    assert sorted(await Poller(Looker(tmp_path), -1.0).first(listing)) == ["complete", "fresh", "old"]


async def test_a_repository_is_followed(tmp_path: Path, workshop: Workshop) -> None:
    put(tmp_path, "m")
    async with managing(tmp_path, workshop, "poll", poll_seconds=0.02) as manager:
        await until(lambda: manager.table.is_ready("m"))
        put(tmp_path, "m", 2)
        put(tmp_path, "bad", words="fail")
        await until(lambda: manager.table.versions("m") == ["2"])
        await until(lambda: any(name == "bad" and record.failures for name, record in manager.table.records()))
        put(tmp_path, "bad", words="good now")
        await until(lambda: manager.table.is_ready("bad"))
        shutil.rmtree(tmp_path / "m")
        await until(lambda: "m" not in manager.table.models)
        shutil.move(tmp_path, tmp_path.with_name("away"))
        with pytest.raises(RepositoryError):
            await manager.look()
        await asyncio.sleep(0.1)
        assert manager.table.is_ready("bad")  # a repository that cannot be read is no reason to unload
        shutil.move(tmp_path.with_name("away"), tmp_path)


# ── manifests ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_manifest_has_the_form_of_sha256sum(tmp_path: Path) -> None:
    (tmp_path / "a file").write_bytes(b"abc")
    digest = hashlib.sha256(b"abc").hexdigest()
    assert not manifest.verify(tmp_path)
    for line in (f"{digest}  a file\n", f"{digest} *a file", f"{digest.upper()}  a file\n"):
        (tmp_path / "SHA256SUMS").write_text(line)
        assert manifest.verify(tmp_path)


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (b"", "is empty"),
        (b"abc\n", "SHA256SUMS:1: expected a digest"),
        (b"\xff\xfe", "expected a digest"),
        (b"0" * 64 + b"  missing\n", "missing is in SHA256SUMS, and cannot be read"),
        (b"0" * 64 + b"  there\n", "there differs from its digest"),
        (b"0" * 64 + b"  ../elsewhere\n", "not in this folder"),
    ],
)
def test_the_error_of_a_mismatched_manifest_has_the_reason(tmp_path: Path, content: bytes, reported: str) -> None:
    (tmp_path / "there").write_bytes(b"abc")
    (tmp_path / "SHA256SUMS").write_bytes(content)
    with pytest.raises(manifest.Incomplete, match=reported):
        manifest.verify(tmp_path)


def test_one_that_cannot_be_read_is_no_reason_to_load(tmp_path: Path) -> None:
    os.symlink("SHA256SUMS", tmp_path / "SHA256SUMS")
    with pytest.raises(manifest.Incomplete, match="cannot be read"):
        manifest.verify(tmp_path)


@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        (
            "models.config",
            'model_config_list { config { name: "m" base_path: "nets/m" model_platform: "tensorflow" } }',
            'model_config_list { config { name: "m"',
        ),
        (
            "config.json",
            '{"model_config_list": [{"config": {"name": "m", "base_path": "nets/m"}}]}',
            '{"model_config_list": [{"config": ',
        ),
    ],
)
async def test_a_mistake_in_a_list_does_not_end_its_models(
    file: str, right: str, wrong: str, tmp_path: Path, poller: Poller
) -> None:
    version = tmp_path / "nets" / "m" / "1"
    version.mkdir(parents=True)
    (version / "model.onnx").write_bytes(b"model")
    (tmp_path / file).write_text(right)
    await poller.poll()
    assert await poller.poll() == (["m"], [])
    (tmp_path / file).write_text(wrong)
    for _ in range(3):
        assert await poller.poll() == ([], [])
    (tmp_path / file).write_text(right.replace('"m"', '"n"'))
    await poller.poll()
    assert await poller.poll() == (["n"], ["m"])


async def test_a_damaged_archive_does_not_end_its_model(tmp_path: Path, poller: Poller) -> None:
    archive(tmp_path / "m-1.0.mar", "m", "h.py", {"h.py": ""})
    await poller.poll()
    assert await poller.poll() == (["m"], [])
    whole = (tmp_path / "m-1.0.mar").read_bytes()
    (tmp_path / "m-1.0.mar").write_bytes(whole[:-40])
    for _ in range(3):
        assert await poller.poll() == ([], [])
    (tmp_path / "m-1.0.mar").unlink()
    await poller.poll()
    assert await poller.poll() == ([], ["m"])

"""The models of a repository, and the entries that do not count."""

import os
from pathlib import Path

import pytest

from runtimes.tensor.configuration.model_config import MissingVersion, ModelConfig, VersionPolicy, served_versions
from runtimes.tensor.models.repository import Repository, RepositoryError

pytestmark = pytest.mark.plain


def put(root: Path, *files: str) -> None:
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def test_models_and_their_versions(tmp_path: Path) -> None:
    put(tmp_path, "a/1/model.onnx", "a/12/model.onnx", "a/config.pbtxt", "b/3/sub/model.bin")
    models = Repository(tmp_path).scan().models
    assert {name: model.versions for name, model in models.items()} == {"a": (1, 12), "b": (3,)}


def test_folders_that_are_neither_version_nor_model(tmp_path: Path) -> None:
    put(tmp_path, ".git/1/x", "README.md", "a.tmp/1/x", "a/1/model.onnx", "a/02/model.onnx", "a/v3/model.onnx")
    put(tmp_path, "a/4.partial/model.onnx", "a/.5/model.onnx", "a/6/.model.onnx.Xy12", "a/0/model.onnx")
    (tmp_path / "a" / "7").mkdir()
    models = Repository(tmp_path).scan().models
    assert {name: model.versions for name, model in models.items()} == {"a": (1,)}


def test_fingerprints_follow_the_files(tmp_path: Path) -> None:
    put(tmp_path, "a/1/model.onnx", "a/2/model.onnx", "a/config.pbtxt")
    repository = Repository(tmp_path)
    before = repository.find("a")
    assert before == repository.find("a")
    os.utime(tmp_path / "a/2/model.onnx", ns=(1, 1))
    after = repository.find("a")
    assert after.fingerprint(1) == before.fingerprint(1)
    assert after.fingerprint(2) != before.fingerprint(2)
    put(tmp_path, "a/labels.txt")
    assert repository.find("a").fingerprint(1) != before.fingerprint(1)


def test_a_copy_under_way_changes_the_stamp(tmp_path: Path) -> None:
    put(tmp_path, "a/1/model.onnx")
    before = Repository(tmp_path).find("a")
    put(tmp_path, "a/1/.weights.bin.Gx81Q")
    assert Repository(tmp_path).find("a").stamps != before.stamps


def test_one_name_in_two_repositories_is_neither(tmp_path: Path) -> None:
    put(tmp_path, "x/a/1/model.onnx", "x/b/1/model.onnx", "y/a/1/model.onnx")
    repository = Repository(tmp_path / "x", tmp_path / "y")
    listing = repository.scan()
    assert list(listing.models) == ["b"]
    assert "more than one repository" in listing.refused["a"]
    with pytest.raises(RepositoryError, match="more than one repository"):
        repository.find("a")


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a/b", "/etc", "a\\b", ".a", "a\0", "a\n", "x" * 256])
def test_a_name_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    put(tmp_path, "r/a/1/model.onnx", "a/1/model.onnx")
    with pytest.raises(RepositoryError, match="is that of one folder"):
        Repository(tmp_path / "r").find(name)


def test_a_repository_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match="cannot be read: No such file"):
        Repository(tmp_path / "none").scan()
    with pytest.raises(RepositoryError, match="there is no model a"):
        Repository(tmp_path).find("a")


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        (VersionPolicy(), (5,)),
        (VersionPolicy("latest", 2), (3, 5)),
        (VersionPolicy("latest", 9), (1, 2, 3, 5)),
        (VersionPolicy("all"), (1, 2, 3, 5)),
        (VersionPolicy("specific", versions=(3, 1)), (1, 3)),
        (VersionPolicy("specific", versions=(3, 7)), (3,)),
    ],
)
def test_versions_are_chosen(policy: VersionPolicy, served: tuple[int, ...]) -> None:
    assert served_versions(ModelConfig("m", "onnx", version_policy=policy), [2, 1, 5, 3]) == served


def test_labelled_versions_are_served() -> None:
    config = ModelConfig("m", "onnx", version_labels={"stable": 2, "canary": 5})
    assert served_versions(config, [1, 2, 3, 5]) == (2, 5)


def test_a_version_that_is_not_there() -> None:
    with pytest.raises(MissingVersion, match="the label stable names version 9, which is not there: m has 1, 2"):
        served_versions(ModelConfig("m", "onnx", version_labels={"stable": 9}), [1, 2])
    with pytest.raises(MissingVersion, match=r"no version of the version policy \(4\) is there: m has 1"):
        served_versions(ModelConfig("m", "onnx", version_policy=VersionPolicy("specific", versions=(4,))), [1])
    with pytest.raises(MissingVersion, match="m has no version"):
        served_versions(ModelConfig("m", "onnx"), [])

"""The catalogue: every entry can be served, and a model comes into a repository whole or not at all."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from runtimes.tensor.catalogue import repository
from runtimes.tensor.catalogue.repository import CATALOGUE, add
from runtimes.tensor.configuration.reading import read_model
from runtimes.wheels import ModelUnavailable
from tests.support.model_wheels import model_wheel, only_index

pytestmark = pytest.mark.processes
CONTENT = bytes(range(256)) * 64


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip's only index, with a package that has a model in it; `magika` is that model."""
    path, wheel = model_wheel(tmp_path / "index", "tiny-model", "tiny/model.onnx", CONTENT, "1/model.onnx")
    monkeypatch.setitem(CATALOGUE, "magika", replace(CATALOGUE["magika"], wheel=wheel))
    only_index(path.parent, tmp_path / "cache", monkeypatch)
    return path


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_model_is_added_whole(index: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    assert add("magika", models) == models / "magika"
    assert files(models) == {"magika/model.yaml", "magika/labels.txt", "magika/1/model.onnx"}
    assert (models / "magika/1/model.onnx").read_bytes() == CONTENT


def test_it_is_fetched_once(index: Path, tmp_path: Path) -> None:
    add("magika", tmp_path / "one")
    index.unlink()
    add("magika", tmp_path / "two")
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_changes_by_the_owner_are_preserved(index: Path, tmp_path: Path) -> None:
    changed = add("magika", tmp_path) / "model.yaml"
    changed.write_text("backend: onnx\n")
    add("magika", tmp_path)
    assert changed.read_text() == "backend: onnx\n"


def test_the_models_that_a_model_needs_are_added_before_it(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CATALOGUE, "guard-example", replace(CATALOGUE["guard-example"], needs=("magika",)))
    assert add("guard-example", tmp_path / "models") == tmp_path / "models/guard-example"
    assert (tmp_path / "models/magika/1/model.onnx").read_bytes() == CONTENT
    index.unlink()
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "empty"))
    with pytest.raises(ModelUnavailable):
        add("guard-example", tmp_path / "others")
    assert not (tmp_path / "others").exists()


def test_nothing_is_left_of_one_that_cannot_be_had(index: Path, tmp_path: Path) -> None:
    index.unlink()
    models = tmp_path / "models"
    with pytest.raises(ModelUnavailable, match=r"tiny-model==1\.0"):
        add("magika", models)
    assert not models.exists()


def test_nothing_is_left_where_it_cannot_be_written(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    models = tmp_path / "models"
    with pytest.raises(ModelUnavailable, match="No space left"):
        add("magika", models)
    assert list(models.iterdir()) == []


@pytest.mark.plain
def test_the_error_of_an_unknown_name_lists_the_models(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match="silero-vad"):
        add("silero", tmp_path)


@pytest.mark.plain
@pytest.mark.parametrize("name", CATALOGUE)
def test_each_has_its_configuration(name: str) -> None:
    """Its template has no warnings and lists no file twice."""
    template = repository._TEMPLATES / name
    reading = read_model(template, name, [template / "1"])
    assert reading.config.backend
    assert not reading.warnings
    wheel = CATALOGUE[name].wheel
    assert not files(template) & set(wheel.members if wheel is not None else ())
    assert set(CATALOGUE[name].needs) <= set(CATALOGUE)


@pytest.mark.plain
def test_no_template_is_left_over() -> None:
    assert {path.name for path in repository._TEMPLATES.iterdir()} == set(CATALOGUE)


def headrace(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "gateway", "models", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_the_command_lists_and_adds(index: Path, tmp_path: Path) -> None:
    listed = headrace("list")
    assert listed.returncode == 0
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(CATALOGUE)
    refused = headrace("add", "nothing", "--to", str(tmp_path / "models"))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "the catalogue has no model 'nothing'" in refused.stderr


def test_a_server_ends_with_the_reason_if_its_bundled_model_cannot_be_downloaded(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "runtimes.tensor", "--repository", str(tmp_path / "models"), "--add", "magika"]
    unset = {"PIP_NO_INDEX": "1", "HEADRACE_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [*command, "--http-port", "0"], env={**os.environ, **unset}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "cannot add magika: pip cannot fetch magika==1.0.3" in done.stderr
    assert "Traceback" not in done.stderr

"""Folders of BentoML's store: which versions are served under which names, and what is refused."""

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from config.problem import ConfigError
from runtimes.tensor.configuration import bentoml_store
from runtimes.tensor.configuration.model_config import VersionPolicy
from runtimes.tensor.configuration.reading import Reading, read_model
from runtimes.tensor.models.repository import Repository, RepositoryError, Root
from tests.support.bentoml_store import BATCHED, PREDICT, bento_model

pytestmark = pytest.mark.plain
FILES = {
    "bentoml.sklearn": "saved_model.pkl",
    "bentoml.xgboost": "saved_model.ubj",
    "bentoml.lightgbm": "saved_model.ubj",
    "bentoml.catboost": "saved_model.cbm",
    "bentoml.onnx": "saved_model.onnx",
    "bentoml.torchscript": "saved_model.pt",
}


def model(store: Path, tag: str, module: str = "bentoml.lightgbm", **more: Any) -> Path:
    folder = bento_model(store, tag, module, **more)
    (folder / FILES.get(module, "saved_model.pkl")).write_bytes(b"model")
    return folder


def reading(store: Path, name: str = "m") -> Reading:
    folder = Repository(store).find(name)
    return read_model(folder.path, name, [folder.version(one) for one in folder.versions], folder.listed)


def refusal(store: Path, name: str = "m") -> str:
    with pytest.raises(RepositoryError) as caught:
        Repository(store).find(name)
    assert name in Repository(store).scan().refused
    return str(caught.value)


def change(folder: Path, **fields: Any) -> None:
    document = yaml.safe_load((folder / "model.yaml").read_text())
    (folder / "model.yaml").write_text(yaml.safe_dump({**document, **fields}))


@pytest.mark.parametrize(
    ("module", "signatures", "backend", "parameters"),
    [
        ("bentoml.sklearn", BATCHED, "sklearn", {"methods": "predict"}),
        ("bentoml.picklable_model", {"__call__": {"batchable": False}}, "sklearn", {"methods": "__call__"}),
        ("bentoml.xgboost", PREDICT, "xgboost", {"rounds": "all"}),
        ("bentoml.lightgbm", PREDICT, "lightgbm", {}),
        ("bentoml.catboost", PREDICT, "catboost", {}),
        ("bentoml.onnx", {"run": {"batchable": True}}, "onnx", {}),
        ("bentoml.torchscript", {"__call__": {"batchable": False}}, "torch", {}),
    ],
)
def test_each_module_has_a_backend(
    module: str, signatures: dict[str, Any], backend: str, parameters: dict[str, str], tmp_path: Path
) -> None:
    model(tmp_path, "m:h5zh4aqvkk2tynzt", module, **signatures)
    config = reading(tmp_path).config
    assert (config.backend, config.default_model_filename) == (backend, FILES.get(module, "saved_model.pkl"))
    assert config.parameters == parameters
    batchable = all(one["batchable"] for one in signatures.values())
    assert (config.dynamic_batching is not None, config.batch) == (batchable, "" if batchable else "written")


def test_versions_are_labels_in_order_of_their_time(tmp_path: Path) -> None:
    for tag, day in (("zzz", 1), ("aaa", 2), ("v1.0", 3)):
        model(tmp_path, f"m:{tag}", created=f"2026-01-0{day}T00:00:00+00:00", **PREDICT)
    (tmp_path / "m" / "latest").write_text("aaa\n")
    config = reading(tmp_path).config
    assert config.version_labels == {"zzz": 1, "v1.0": 2, "aaa": 3, "latest": 3}
    assert config.version_policy == VersionPolicy("all")
    folder = Repository(tmp_path).find("m")
    assert {number: folder.version(number).name for number in folder.versions} == {1: "zzz", 2: "v1.0", 3: "aaa"}


def test_whole_numbers_stay_the_numbers_of_their_versions(tmp_path: Path) -> None:
    for tag in ("7", "12"):
        model(tmp_path, f"m:{tag}", **PREDICT)
    assert reading(tmp_path).config.version_labels == {"latest": 12}
    assert Repository(tmp_path).find("m").versions == (7, 12)
    (tmp_path / "m" / "latest").write_text("7")
    assert "its default version is 7: the default here is the highest" in refusal(tmp_path)


def test_versions_of_another_module_are_listed_and_not_served(tmp_path: Path) -> None:
    model(tmp_path, "m:old", "bentoml.sklearn", created="2025-01-01T00:00:00+00:00", **PREDICT)
    model(tmp_path, "m:odd", created="2025-01-02T00:00:00+00:00", **PREDICT).joinpath("model.yaml").write_text("[")
    model(tmp_path, "m:new", **PREDICT)
    read = reading(tmp_path)
    assert read.config.version_labels == {"new": 1, "latest": 1}
    assert [warning.path.partition(":")[0] for warning in read.warnings] == [
        "version odd",
        "version old, whose module, options or signatures differ from those of new,",
    ]


def test_a_store_serves_beside_other_models(tmp_path: Path) -> None:
    model(tmp_path, "m:h5z", **PREDICT)
    (tmp_path / "own" / "1").mkdir(parents=True)
    (tmp_path / "own" / "1" / "model.onnx").write_bytes(b"x")
    (tmp_path / "own" / "latest").write_text("1")
    assert {name: one.versions for name, one in Repository(tmp_path).scan().models.items()} == {"m": (1,), "own": (1,)}


@pytest.mark.parametrize("at", ["store", "model", "version"])
def test_a_pulled_folder_may_be_a_store_a_model_or_a_version(at: str, tmp_path: Path) -> None:
    version = model(tmp_path, "m:h5z", **PREDICT)
    path = {"store": tmp_path, "model": version.parent, "version": version}[at]
    repository = Repository(Root(path, "https://host/m.tar", "pulled", is_pulled=True))
    name = "m" if at == "store" else "pulled"
    assert list(repository.scan().models) == [name]
    assert repository.find(name).listed is not None


def test_our_own_configuration_is_beside_the_versions(tmp_path: Path) -> None:
    model(tmp_path, "m:h5z", **PREDICT)
    before = Repository(tmp_path).find("m").fingerprint(1)
    (tmp_path / "m" / "model.yaml").write_text("max_batch_size: 8\nparameters: {threshold: '0.2'}\n")
    config = reading(tmp_path).config
    assert (config.backend, config.max_batch_size, config.parameters) == ("lightgbm", 8, {"threshold": "0.2"})
    assert Repository(tmp_path).find("m").fingerprint(1) != before
    alone = model(tmp_path / "other", "m:h5z", **PREDICT).rename(tmp_path / "alone")
    (alone / "config.pbtxt").write_text("max_batch_size: 4")
    assert reading(tmp_path, "alone").config.max_batch_size == 4


@pytest.mark.parametrize(
    ("module", "more", "reason"),
    [
        ("bentoml.pytorch", {}, "module `bentoml.pytorch` is not served here: it is a pickle of a module"),
        ("bentoml.fastai", {}, "module `bentoml.fastai` is not served here: these are: bentoml.sklearn"),
        ("bentoml.sklearn", {"fit": {"batchable": False}}, "method `fit` of its signatures is not served here"),
        ("bentoml.xgboost", {"predict_proba": {}}, "a Booster has no `predict_proba`"),
        ("bentoml.onnx", {"run": {"batchable": "yes"}}, "its `batchable` true or false"),
        ("bentoml.onnx", {"run": {"batch_dim": [0]}}, "`batch_dim` of the signature of `run`"),
        ("bentoml.onnx", {"run": []}, "the signature of `run` must be an object"),
        (
            "bentoml.sklearn",
            {"options": {"partial_kwargs": {"predict": {"a": 1}}}},
            "`options.partial_kwargs` is not served here",
        ),
    ],
)
def test_a_module_method_or_option_is_refused_by_its_name(
    module: str, more: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    model(tmp_path, "m:h5z", module, **more)
    assert reason in refusal(tmp_path)


def test_both_answers_of_a_classifier_of_xgboost_are_refused(tmp_path: Path) -> None:
    options = {"model_class": "XGBClassifier"}
    model(tmp_path, "m:h5z", "bentoml.xgboost", options=options, predict={}, predict_proba={})
    assert "keep one" in refusal(tmp_path)


def test_a_version_without_its_file(tmp_path: Path) -> None:
    bento_model(tmp_path, "m:h5z", "bentoml.xgboost", **PREDICT)
    assert "h5z/model.yaml: there is no saved_model.ubj or saved_model.json beside it" in refusal(tmp_path)


@pytest.mark.parametrize("dimension", [1, [0, 1]])
def test_another_dimension_is_not_joined(dimension: Any, tmp_path: Path) -> None:
    model(tmp_path, "m:h5z", predict={"batchable": True, "batch_dim": dimension})
    read = reading(tmp_path)
    assert (read.config.dynamic_batching, read.config.batch) == (None, "written")
    assert [warning.path for warning in read.warnings] == ["signatures.predict.batch_dim"]


@pytest.mark.parametrize("latest", ["../../secret", "/etc", "", "gone", "\x00", "a/../h5z"])
def test_the_file_latest_only_selects_a_version_that_is_there(latest: str, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    model(tmp_path / "store", "m:h5z", **PREDICT)
    (tmp_path / "store" / "m" / "latest").write_text(latest)
    folder = Repository(tmp_path / "store").find("m")
    assert dict(folder.places) == {1: tmp_path / "store" / "m" / "h5z"}


def test_a_pipe_is_no_file_latest(tmp_path: Path) -> None:
    """Reading one would wait forever."""
    model(tmp_path, "m:h5z", **PREDICT)
    (tmp_path / "m" / "latest").unlink()
    os.mkfifo(tmp_path / "m" / "latest")
    assert Repository(tmp_path).find("m").versions == ()


SCALARS = st.none() | st.booleans() | st.integers(-2, 2) | st.text(max_size=6) | st.floats()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
)
FIELDS = st.sampled_from(["name", "version", "module", "options", "signatures", "creation_time", "api_version"])


@given(fields=st.dictionaries(FIELDS, VALUES, max_size=3), module=st.sampled_from(list(FILES)))
def test_any_fields_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, fields: dict[str, Any], module: str
) -> None:
    store = tmp_path_factory.mktemp("store")
    change(model(store, "m:h5z", module), **fields)
    with contextlib.suppress(RepositoryError, ConfigError):
        assert reading(store).config.backend


class NoText(dict[str, Any]):
    """An object of a file that may be of any size as text, such as one with many aliases."""

    def __repr__(self) -> str:
        raise AssertionError


def test_no_object_of_a_file_is_written_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model(tmp_path, "m:h5z", "bentoml.xgboost")
    written: dict[str, Any] = {"name": "m", "version": "h5z", "module": "bentoml.xgboost", "creation_time": NoText()}
    monkeypatch.setattr(bentoml_store, "mapping", lambda path, parse: written)
    assert reading(tmp_path).config.backend == "xgboost"
    written["options"] = {"model_class": NoText()}
    assert "`options.model_class` must be text" in refusal(tmp_path)


def test_a_method_with_a_number_without_a_text_is_refused(tmp_path: Path) -> None:
    file = model(tmp_path, "m:h5z", "bentoml.xgboost") / "model.yaml"
    change(file.parent, signatures={"PLACE": {}})
    file.write_text(file.read_text().replace("PLACE:", f"? 0x{'f' * 5000}\n  :"))
    assert "method `int` of its signatures" in refusal(tmp_path)


@given(content=st.binary(max_size=200))
def test_any_bytes_are_refused_with_the_name_of_the_file(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    store = tmp_path_factory.mktemp("store")
    (model(store, "m:h5z") / "model.yaml").write_bytes(content)
    assert "h5z/model.yaml" in refusal(store)

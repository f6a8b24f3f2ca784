"""What a model store of TorchServe tells of its models, without unpacking or running any."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.tensor.configuration.model_config import DynamicBatching
from runtimes.tensor.configuration.model_lists import list_of
from tests.support.torchserve_store import archive

FILES = {"h.py": "def handle(requests, context): ..."}


def put(store: Path, file: str = "m.mar", **options: Any) -> None:
    archive(store / file, options.pop("name", "m"), "h.py", FILES, **options)


def configured(store: Path, models: Any = None, **properties: str) -> None:
    lines = ["model_store=.", *(f"{name} = {value}" for name, value in properties.items())]
    lines += [] if models is None else [f"models={json.dumps(models, indent=1)}".replace("\n", "\\\n")]
    (store / "config.properties").write_text("\n".join(lines) + "\n")


def reasons(store: Path) -> dict[str, str]:
    models = list_of(store)
    assert models is not None
    return dict(models.refused)


def test_a_folder_of_archives_needs_no_file(tmp_path: Path) -> None:
    put(tmp_path)
    models = list_of(tmp_path)
    assert models is not None
    assert models.models["m"].archives == {1: tmp_path / "m.mar"}
    config = models.models["m"].config
    assert (config.backend, config.max_batch_size, config.version_labels) == ("torchserve", 1, {"1.0": 1})


def test_the_settings_of_the_archive_come_before_those_of_the_file(tmp_path: Path) -> None:
    put(tmp_path, settings="batchSize: 4\nmaxBatchDelay: 20\n")
    configured(tmp_path, {"m": {"1.0": {"marName": "m.mar", "batchSize": 8, "minWorkers": 3, "responseTimeout": 9}}})
    models = list_of(tmp_path)
    assert models is not None
    config = models.models["m"].config
    assert (config.max_batch_size, config.dynamic_batching) == (4, DynamicBatching(max_queue_delay=0.02))
    assert (config.instance_groups[0].count, config.execution_timeout) == (3, 9.0)
    assert config.parameters == {"model_config": "model-config.yaml"}


@pytest.mark.parametrize(
    ("load", "expected"),
    [("all", {"m", "n"}), ("m.mar", {"m"}), ("other=m.mar, n.mar", {"other", "n"}), ("", {"m", "n"})],
)
def test_the_models_that_are_loaded(load: str, expected: set[str], tmp_path: Path) -> None:
    for name in ("m", "n"):
        put(tmp_path, f"{name}.mar", name=name)
    configured(tmp_path, load_models=load)
    models = list_of(tmp_path)
    assert models is not None
    assert set(models.models) == expected


@pytest.mark.parametrize(
    ("versions", "default", "numbers"),
    [
        (["1.0", "2.0", "10.0"], "", {"1.0": 1, "2.0": 2, "10.0": 3}),
        (["1.0", "2.0"], "1.0", {"2.0": 1, "1.0": 2}),
        (["3", "7"], "7", {}),
        (["1.0", "1.²", "1." + "9" * 19], "", {"1.0": 1, "1." + "9" * 19: 2, "1.²": 3}),
    ],
)
def test_versions(versions: list[str], default: str, numbers: dict[str, int], tmp_path: Path) -> None:
    models: dict[str, Any] = {}
    for version in versions:
        put(tmp_path, f"m{version}.mar", version=version)
        models[version] = {"marName": f"m{version}.mar", "defaultVersion": version == default}
    configured(tmp_path, {"m": models}, load_models="all")
    store_list = list_of(tmp_path)
    assert store_list is not None
    assert store_list.models["m"].config.version_labels == numbers
    assert set(store_list.models["m"].archives) == (set(numbers.values()) or {3, 7})


@pytest.mark.parametrize(
    ("properties", "models", "reason"),
    [
        ({"service_envelope": "kserve"}, None, "`service_envelope`"),
        ({"install_py_dep_per_model": "true"}, None, "`install_py_dep_per_model`"),
        ({"model_store": "gone"}, None, "which is no folder here"),
        ({"load_models": "gone.mar"}, None, "gone.mar is not in the model store"),
        ({"load_models": "https://host/m.mar"}, None, "is no archive"),
        ({"load_models": "../m.mar"}, None, "is no archive"),
        ({"model_snapshot": "{"}, None, "is not valid JSON"),
        ({}, [1], "must be an object of versions"),
        ({}, {"m": {"1.0": {"marName": "m.mar", "batchSize": 0}}}, "`batchSize` is 0"),
        ({}, {"m": {"1.0": {"marName": "m.mar", "minWorkers": "2"}}}, "`minWorkers` is '2'"),
    ],
)
def test_other_settings_are_refused(properties: dict[str, str], models: Any, reason: str, tmp_path: Path) -> None:
    put(tmp_path)
    configured(tmp_path, models, **properties)
    refused = reasons(tmp_path)
    assert any(reason in why for why in refused.values()), refused


def test_versions_that_have_no_order_are_refused(tmp_path: Path) -> None:
    put(tmp_path, "a.mar", version="1")
    put(tmp_path, "b.mar", version="2.0")
    assert "write all as numbers, or none" in reasons(tmp_path)["m"]
    put(tmp_path, "b.mar", version="2")
    configured(tmp_path, {"m": {"1": {"marName": "a.mar", "defaultVersion": True}, "2": {"marName": "b.mar"}}})
    assert "the default here is the highest" in reasons(tmp_path)["m"]


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_compression_without_a_bound_is_refused(method: int, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.mar", "w", method) as written:
        written.writestr("MAR-INF/MANIFEST.json", json.dumps({"model": {"modelName": "m"}}))
    assert "another method than deflate" in reasons(tmp_path)["m"]


@given(at=st.integers(0, 400), mask=st.integers(1, 255))
def test_any_damaged_archive_is_read_or_has_a_reason(
    at: int, mask: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = tmp_path_factory.mktemp("store")
    with zipfile.ZipFile(store / "m.mar", "w", zipfile.ZIP_DEFLATED) as written:
        manifest = {"model": {"modelName": "m", "description": "".join(map(str, range(300)))}}
        written.writestr("MAR-INF/MANIFEST.json", json.dumps(manifest))
    content = bytearray((store / "m.mar").read_bytes())
    content[at % len(content)] ^= mask
    (store / "m.mar").write_bytes(content)
    models = list_of(store)
    assert models is not None
    assert len(models.models) + len(models.refused) == 1


def test_the_manifest_of_a_folder_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    manifest = tmp_path / "m.mar" / "MAR-INF" / "MANIFEST.json"
    manifest.parent.mkdir(parents=True)
    for name in ("one", "two"):
        manifest.write_text(json.dumps({"model": {"modelName": name}}))
        models = list_of(tmp_path)
        assert models is not None
        assert set(models.models) == {name}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
fields = st.dictionaries(st.sampled_from(["modelName", "modelVersion", "configFile", "handler"]), values)


@given(manifest=st.one_of(values, st.builds(lambda model: {"model": model}, fields)), settings=st.text(max_size=30))
def test_any_archive_is_read_or_has_a_reason(
    manifest: Any, settings: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = tmp_path_factory.mktemp("store")
    with zipfile.ZipFile(store / "m.mar", "w") as written:
        written.writestr("MAR-INF/MANIFEST.json", json.dumps(manifest))
        written.writestr("model-config.yaml", settings)
    models = list_of(store)
    assert models is not None
    assert len(models.models) + len(models.refused) == 1
    assert all(models.refused.values())


@given(text=st.text(max_size=60), models=values)
def test_any_file_of_properties_is_read_or_has_a_reason(
    text: str, models: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = tmp_path_factory.mktemp("store")
    (store / "config.properties").write_text(f"model_store=.\nmodels={json.dumps(models)}\n{text}", newline="")
    put(store)
    store_list = list_of(store)
    assert store_list is not None
    assert store_list.models or all(store_list.refused.values())

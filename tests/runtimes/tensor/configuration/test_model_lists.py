"""Lists of models of other servers: what each entry becomes, and which are refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.tensor.configuration.model_config import ModelConfig, VersionPolicy
from runtimes.tensor.configuration.model_lists import list_of
from runtimes.tensor.configuration.reading import read_model
from runtimes.tensor.models.repository import Repository, RepositoryError


def put(folder: Path, file: str = "saved_model.pb") -> Path:
    folder.mkdir(parents=True)
    (folder / file).write_bytes(b"model")
    return folder


def test_tensorflow_servings_list(tmp_path: Path) -> None:
    """Its documentation's example of labels, with a folder of versions that begin with zeros."""
    for version in ("0042", "0043"):
        put(tmp_path / "nets" / "half" / version)
    put(tmp_path / "not-listed" / "1")
    (tmp_path / "models.config").write_text(f"""
        model_config_list {{
          config {{
            name: "half" base_path: "{tmp_path}/nets/half" model_platform: "tensorflow"
            model_version_policy {{ specific {{ versions: 42 versions: 43 }} }}
            version_labels {{ key: "stable" value: 42 }}
            version_labels {{ key: "canary" value: 43 }}
          }}
          config {{ name: "far" base_path: "s3://bucket/far" model_platform: "tensorflow" }}
          config {{ name: "gone" base_path: "nets/gone" }}
          config {{ name: "other" base_path: "nets/half" model_platform: "caffe" }}
          config {{ name: "twice" base_path: "nets/half" }}
          config {{ name: "twice" base_path: "nets/half" }}
          config {{ name: "a/b" base_path: "nets/half" }}
        }}
    """)
    repository = Repository(tmp_path)
    listing = repository.scan()
    assert list(listing.models) == ["half"]
    reasons = {name: reason for name, reason in listing.refused.items() if name != "a/b"}
    assert {name: reason.partition(": ")[2] or reason for name, reason in reasons.items()} == {
        "far": "its files are at s3://…: put them into a folder of this machine",
        "gone": "its folder nets/gone does not exist here",
        "other": "its platform 'caffe' is not served here",
        "twice": "keep one",
    }
    folder = repository.find("half")
    assert folder.versions == (42, 43)
    config = read_model(folder.path, "half", [folder.version(one) for one in folder.versions], folder.listed).config
    assert config.backend == "tensorflow"
    assert config.version_policy == VersionPolicy("specific", versions=(42, 43))
    assert config.version_labels == {"stable": 42, "canary": 43}
    with pytest.raises(RepositoryError, match="does not exist here"):
        repository.find("gone")
    with pytest.raises(RepositoryError, match="no model not-listed"):
        repository.find("not-listed")


def test_a_change_of_the_list_changes_the_model(tmp_path: Path) -> None:
    put(tmp_path / "half" / "1")
    stamps = []
    for count in (1, 2):
        policy = f"model_version_policy {{ latest {{ num_versions: {count} }} }}"
        (tmp_path / "models.config").write_text(
            f'model_config_list {{ config {{ name: "half" base_path: "half" {policy} }} }}'
        )
        stamps.append(Repository(tmp_path).find("half").fingerprint(1))
    assert stamps[0] != stamps[1]


OVMS = {
    "name": "net", "base_path": "nets/net", "batch_size": "1", "layout": {"x": "NHWC:NCHW"}, "nireq": 4,
    "plugin_config": {"NUM_STREAMS": 2, "ENABLE_CPU_PINNING": False}, "target_device": "CPU",
    "model_version_policy": {"latest": {"num_versions": 2}}, "stateful": False,
}  # fmt: skip


def ovms(root: Path, *models: dict[str, Any], **others: Any) -> Repository:
    document = {"model_config_list": [{"config": one} for one in models], **others}
    (root / "config.json").write_text(json.dumps(document))
    return Repository(root)


def test_openvino_model_servers_list(tmp_path: Path) -> None:
    put(tmp_path / "nets" / "net" / "1", "net.xml")
    graph = {"name": "graph", "base_path": "graph/", "graph_path": "graph.pbtxt"}
    steps = {"name": "steps", "inputs": ["x"], "nodes": [], "outputs": []}
    repository = ovms(tmp_path, OVMS, mediapipe_config_list=[graph], pipeline_config_list=[steps])
    listing = repository.scan()
    assert list(listing.models) == ["net"]
    assert "MediaPipe" in listing.refused["graph"]
    assert "ensemble" in listing.refused["steps"]
    folder = repository.find("net")
    reading = read_model(folder.path, "net", [folder.version(1)], folder.listed)
    assert reading.config == ModelConfig(
        "net",
        "openvino",
        default_model_filename="net.xml",
        version_policy=VersionPolicy("latest", latest=2),
        parameters={
            "NUM_STREAMS": "2", "ENABLE_CPU_PINNING": "NO", "batch_size": "1", "layout": '{"x": "NHWC:NCHW"}',
        },
    )  # fmt: skip
    assert [warning.path for warning in reading.warnings] == ["nireq"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"stateful": True}, "`stateful` is not served here"),
        ({"mean": "1.0"}, "`mean` is not served here"),
        ({"custom_loader_options": {}}, "`custom_loader_options` is not served here"),
        ({"plugin_config": "CPU"}, "`plugin_config` must be an object"),
        ({"plugin_config": {"NUM_STREAMS": [1]}}, "`plugin_config.NUM_STREAMS` is not a property with a value"),
        ({"target_device": 3}, "`target_device` must be text"),
        ({"model_version_policy": {"latest": {"num_versions": 0}}}, "`model_version_policy` is none of"),
        ({"base_path": "gs://bucket/net"}, "its files are at gs://…"),
        ({"base_path": 3}, "it has no `base_path`"),
        ({"base_path": "nets/empty"}, "it has no version"),
        ({"base_path": "nets/two"}, "version 1 has a.xml, b.xml: keep one"),
        ({"base_path": "nets/none"}, "version 1 has no file that ends in .xml"),
    ],
)
def test_other_settings_of_openvino_model_server_are_refused(
    change: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    put(tmp_path / "nets" / "net" / "1", "net.xml")
    put(tmp_path / "nets" / "two" / "1", "a.xml")
    (tmp_path / "nets/two/1/b.xml").touch()
    put(tmp_path / "nets" / "none" / "1", "saved_model.pb")
    (tmp_path / "nets/empty").mkdir()
    listing = ovms(tmp_path, {**OVMS, **change}, {**OVMS, "name": "fine"}).scan()
    assert list(listing.models) == ["fine"]
    assert reason in listing.refused["net"]


def test_a_folder_with_an_odd_digit_is_no_version(tmp_path: Path) -> None:
    put(tmp_path / "m" / "1", "m.xml")
    put(tmp_path / "m" / "²", "n.xml")
    config = {"name": "m", "base_path": "m"}
    (tmp_path / "config.json").write_text(json.dumps({"model_config_list": [{"config": config}]}))
    models = list_of(tmp_path)
    assert models is not None
    assert models.models["m"].config.default_model_filename == "m.xml"


def test_a_file_of_that_name_of_another_project_is_no_list(tmp_path: Path) -> None:
    put(tmp_path / "net" / "1", "model.onnx")
    for text in ('{"architectures": ["Bert"]}', "[]", "{", "3"):
        (tmp_path / "config.json").write_text(text)
        assert list(Repository(tmp_path).scan().models) == ["net"]


def test_two_lists_are_refused(tmp_path: Path) -> None:
    (tmp_path / "models.config").write_text("model_config_list {}")
    listing = ovms(tmp_path).scan()
    assert listing.refused == {"models.config": "the repository has models.config and config.json: keep one of them"}


@given(text=st.one_of(st.text(max_size=80), st.just("model_config_list { config { name: 'a' logging_config {} } }")))
def test_a_broken_list_has_a_reason(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("r")
    (root / "models.config").write_text(text)
    models = list_of(root)
    assert models is not None
    assert not models.models
    assert all(name == "models.config" and reason for name, reason in models.refused.items())


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(entries=values, config=st.dictionaries(st.sampled_from([*OVMS, "mean"]), values, max_size=5))
def test_any_json_is_a_list_with_reasons(entries: Any, config: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("r")
    for document in ({"model_config_list": entries}, {"model_config_list": [{"config": config}]}):
        (root / "config.json").write_text(json.dumps(document))
        models = list_of(root)
        assert models is not None
        assert not models.models
        assert all(models.refused.values())
